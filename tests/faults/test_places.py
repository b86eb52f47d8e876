"""A service in places where little is allowed: nothing to write to, no rights, few descriptors."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import pytest

from tests.support.rights import BOUND
from tests.support.service_calls import activate, address, children, lasting_client
from tests.support.service_process import HERE, START, Start, plain_client
from tests.support.tools import missing, require
from tests.support.until import until
from turret.service.keys.keys import add_key, new_key, record, remove_key

ADMIN = {"Authorization": "Bearer a-key-of-32-characters-for-tests"}
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "HOME": "/nonexistent"}
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


@contextmanager
def confined(*before: str, **settings: Any) -> Iterator[tuple["subprocess.Popen[str]", httpx2.Client]]:
    """A service started by another command, and a client of it."""
    given = {
        "port": 0,
        "admin_key": "a-key-of-32-characters-for-tests",
        "admin_port": "same",
        "drain_delay": 0,
        **settings,
    }
    process = subprocess.Popen(
        [*before, sys.executable, "-B", "-c", START, json.dumps({**given, "overlap_minimum": 0})],
        cwd=HERE,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            greeting = process.stdout.readline()
            assert greeting, process.stderr.read()
            with plain_client(greeting.split(" at ")[1].split()[0]) as client:
                yield process, client
        finally:
            process.kill()


@pytest.mark.process
@pytest.mark.fault(33)
def test_it_starts_where_everything_is_read_only_and_no_privilege_is_left(three: Path) -> None:
    """It serves, stores events on the one place that can be written, and refuses to activate in words."""
    require("root")
    if subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False
    ).returncode:
        missing("root", "a mount namespace can't be made here")
    enclose = ("unshare", "--mount", "bash", "-c", ENCLOSED, "enclosed")
    store = "sqlite:////mnt/history.sqlite"
    with confined(*enclose, bundles=str(three), store=store, workers=2) as (process, client):
        assert client.post("/v1/recommend", json={"history": [101]}).json()["version"] == "v1"
        event = {"event_id": 1, "user_id": 7, "item_id": 101, "time": 1}
        assert client.post("/v1/events", json={"events": [event]}).json()["stored"] == 1
        refused = client.post("/admin/activate", json={"version": "v2"}, headers=ADMIN)
        assert refused.status_code == 409
        assert "can't be written" in refused.json()["error"]["message"]
        assert client.get("/readyz").json()["version"] == "v1"
        assert "turret" in client.get("/metrics").text
        process.terminate()
        assert process.wait() == 0
    assert not (three / "activations.jsonl").exists()


@pytest.fixture
def locked(three: Path) -> Iterator[Path]:
    """The folder of bundles; its rights are given back for the clean-up."""
    require("root")  # without its capabilities, root is bound by the rights of files as others are
    yield three
    three.chmod(0o755)


@pytest.mark.nightly
@pytest.mark.fault(73)
def test_a_folder_that_loses_its_rights_keeps_the_live_version(locked: Path) -> None:
    with confined(*BOUND, bundles=str(locked), store="memory://") as (_, client):
        locked.chmod(0)
        refused = client.post("/admin/activate", json={"version": "v2"}, headers=ADMIN)
        assert refused.status_code == 409
        message = refused.json()["error"]["message"]
        assert message == "the folder of bundles can't be opened: Permission denied"
        assert client.get("/v1/versions").status_code == 503
        assert client.post("/v1/recommend", json={"history": [101]}).json()["version"] == "v1"
        assert client.get("/readyz").json()["version"] == "v1"
        locked.chmod(0o755)
        activated = client.post("/admin/activate", json={"version": "v2"}, headers=ADMIN)
        assert activated.status_code == 200


FEW = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))"


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def flood(place: tuple[str, int]) -> Iterator[None]:
    """Somebody who opens connections all the time, and keeps up to 400 of them open."""
    over = Event()

    def open_connections() -> None:
        held: list[socket.socket] = []
        while not over.wait(0.002):
            held.append(socket.create_connection(place))
            if len(held) > 400:
                held.pop(0).close()
        for one in held:
            one.close()

    thread = Thread(target=open_connections)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.process
@pytest.mark.fault(53)
def test_connections_leave_descriptors_for_everything_else(start: Start, three: Path) -> None:
    service = start(before=FEW.format(512), admin_port=0, keep_alive_seconds=600)
    (worker,) = children(service.process.pid)
    kept = lasting_client(service)

    def ask(path: str, body: Any) -> int:
        return kept.post(path, json=body).status_code

    assert kept.get("/livez").status_code == 200
    with flood(address(service)):
        until(lambda: descriptors(worker) >= 256, "as many connections as may be")
        assert kept.get("/livez").status_code == 200
        assert activate(service, three, "v2").status_code == 200
        assert activate(service, three, "v3").status_code == 200
        event = {"event_id": "1", "user_id": 7, "item_id": 301, "time": 1}
        assert ask("/v1/events", {"events": [event]}) == 200
        assert ask("/v1/recommend", {"user_id": 7}) == 200
        assert kept.get("/metrics").status_code == 200
        key, keys = new_key("shop"), three.parent / "keys.json"
        add_key(keys, record("shop", key, ["read"]))
        until(lambda: ask("/v1/recommend", {}) == 401, "the file of the keys is read")
        kept.headers["Authorization"] = f"Bearer {key}"
        assert ask("/v1/recommend", {}) == 200
        remove_key(keys, "shop")
        until(lambda: ask("/v1/recommend", {}) == 401, "the key is revoked")
        assert descriptors(worker) < 400
    kept.close()
    status, complaints = service.stop()
    assert status == 0
    assert "no connection can be taken" not in complaints
