"""A service in places where little is allowed: nothing to write to, no rights, few descriptors."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.support.service_app import ADMIN, KEY
from tests.support.service_calls import activate, address, ask, children, event, lasting_client, send
from tests.support.service_process import Start
from tests.support.tools import BOUND, missing, require
from tests.support.until import until
from turret.service.keys.keys import add_key, new_key, record, remove_key

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


@pytest.mark.process
@pytest.mark.fault(33)
def test_it_starts_where_everything_is_read_only_and_no_privilege_is_left(start: Start, three: Path) -> None:
    """It serves, stores events on the one place that can be written, and refuses to activate in words."""
    require("root")
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(mount, check=False).returncode:
        missing("root", "a mount namespace can't be made here")
    enclose = ("unshare", "--mount", "bash", "-c", ENCLOSED, "enclosed")
    store = "sqlite:////mnt/history.sqlite"
    service = start(prefix=enclose, store=store, workers=2, admin_key=KEY)
    assert ask(service, history=[101])["version"] == "v1"
    assert send(service, event("1", time=1)).json()["stored"] == 1
    refused = service.client.post("/admin/activate", json={"version": "v2"}, headers=ADMIN)
    assert refused.status_code == 409
    assert "can't be written" in refused.json()["error"]["message"]
    assert service.client.get("/readyz").json()["version"] == "v1"
    assert "turret" in service.client.get("/metrics").text
    assert service.stop()[0] == 0
    assert not (three / "activations.jsonl").exists()


@pytest.fixture
def locked(three: Path) -> Iterator[Path]:
    """The folder of bundles; its rights are given back for the clean-up."""
    require("root")  # without its capabilities, root is bound by the rights of files as others are
    yield three
    three.chmod(0o755)


@pytest.mark.nightly
@pytest.mark.fault(73)
def test_a_folder_that_loses_its_rights_keeps_the_live_version(start: Start, locked: Path) -> None:
    service = start(prefix=BOUND, store="memory://", admin_key=KEY)
    locked.chmod(0)
    refused = service.client.post("/admin/activate", json={"version": "v2"}, headers=ADMIN)
    assert refused.status_code == 409
    assert "the folder of bundles can't be opened: Permission denied" in refused.text
    assert service.client.get("/v1/versions").status_code == 503
    assert ask(service, history=[101])["version"] == "v1"
    locked.chmod(0o755)
    again = service.client.post("/admin/activate", json={"version": "v2"}, headers=ADMIN)
    assert again.status_code == 200


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
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))"
    service = start(before=few, admin_port=0, keep_alive_seconds=600)
    (worker,) = children(service.process.pid)
    kept = lasting_client(service)

    def status(path: str, body: Any) -> int:
        return kept.post(path, json=body).status_code

    with flood(address(service)):
        until(lambda: descriptors(worker) >= 256, "as many connections as may be")
        assert kept.get("/livez").status_code == 200
        assert activate(service, three, "v2").status_code == 200
        assert status("/v1/events", {"events": [event("1")]}) == 200
        assert status("/v1/recommend", {"user_id": 7}) == 200
        assert kept.get("/metrics").status_code == 200
        key, keys = new_key("shop"), three.parent / "keys.json"
        add_key(keys, record("shop", key, ["read"]))
        until(lambda: status("/v1/recommend", {}) == 401, "the file of the keys is read")
        kept.headers["Authorization"] = f"Bearer {key}"
        assert status("/v1/recommend", {}) == 200
        remove_key(keys, "shop")
        until(lambda: status("/v1/recommend", {}) == 401, "the key is revoked")
        assert descriptors(worker) < 400
    kept.close()
    stopped, complaints = service.stop()
    assert stopped == 0
    assert "no connection can be taken" not in complaints
