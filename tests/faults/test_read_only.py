"""A service that may write to one place alone, without privileges."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service_process import HERE, START, plain_client

# Runs in a mount namespace of its own: all is read-only but the folder of events, /tmp and /dev/shm too.
ENCLOSED = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
chmod 0777 /mnt
for place in $(awk '{print $2}' /proc/mounts | grep -v -e ^/proc -e ^/sys -e ^/mnt | sort -r); do
    mount -o remount,bind,ro "$place" 2>/dev/null || true
done
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


def _can_enclose() -> bool:
    probe = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False
    )
    return probe.returncode == 0


@pytest.mark.fault(33)
@pytest.mark.skipif(not _can_enclose(), reason="making a mount namespace needs root")
def test_it_starts_where_everything_is_read_only_and_no_privilege_is_left(three: Path) -> None:
    """It serves, stores events on the one place that can be written, and refuses to activate in words."""
    settings = {
        "bundles": str(three),
        "port": 0,
        "store": "sqlite:////mnt/history.sqlite",
        "admin_key": "a-key-of-sixteen",
        "admin_port": "same",
        "workers": 2,
        "drain_delay": 0,
        "overlap_minimum": 0,
    }
    enclose = ["unshare", "--mount", "bash", "-c", ENCLOSED, "enclosed"]
    process = subprocess.Popen(
        [*enclose, sys.executable, "-B", "-c", START, json.dumps(settings)],
        cwd=HERE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "HOME": "/nonexistent"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            greeting = process.stdout.readline()
            if not greeting:
                raise AssertionError(process.stderr.read())
            url = greeting.split(" at ")[1].split()[0]
            with plain_client(url, 20) as client:
                assert client.post("/v1/recommend", json={"history": [101]}).json()["version"] == "v1"
                event = {"event_id": 1, "user_id": 7, "item_id": 101, "time": 1}
                assert client.post("/v1/events", json={"events": [event]}).json()["stored"] == 1
                header = {"Authorization": "Bearer a-key-of-sixteen"}
                refused = client.post("/admin/activate", json={"version": "v2"}, headers=header)
                assert refused.status_code == 409
                assert "can't be written" in refused.json()["error"]["message"]
                assert client.get("/readyz").json()["version"] == "v1"
                assert "turret" in client.get("/metrics").text
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert not (three / "activations.jsonl").exists()
