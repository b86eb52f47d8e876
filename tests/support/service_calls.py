"""Calls to a running service, and its workers."""

import os
import signal
import socket
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.support.service_process import Process, plain_client
from tests.support.until import until
from turret.service.process.server import LISTENERS


def address(service: Process) -> tuple[str, int]:
    """The host and the port of its calls."""
    host, _, port = service.urls[0].removeprefix("http://").partition(":")
    return host, int(port)


def admin(
    service: Process, bundles: Path, path: str, body: Any = None, client: httpx2.Client | None = None
) -> httpx2.Response:
    """Ask for an admin call, wherever the service takes them; `routes` without a body is read."""
    url = f"{service.urls[-1] if 'admin' in service.greeting else service.urls[0]}/admin/{path}"
    header = {"Authorization": f"Bearer {(bundles / 'admin.key').read_text().strip()}"}
    with nullcontext(client) if client is not None else plain_client() as asking:
        if body is None and path == "routes":
            return asking.get(url, headers=header)
        return asking.post(url, json=body, headers=header)


def activate(service: Process, bundles: Path, version: str, **more: Any) -> httpx2.Response:
    return admin(service, bundles, "activate", {"version": version, **more})


def anew(service: Process, method: str, path: str, **given: Any) -> httpx2.Response:
    """Ask on a connection of its own, so that any worker may answer."""
    with plain_client(service.urls[0]) as client:
        return client.request(method, path, **given)


def lasting_client(service: Process) -> httpx2.Client:
    """A client whose connection stays; the service has to keep it too (`keep_alive_seconds`)."""
    return plain_client(service.urls[0], limits=httpx2.Limits(keepalive_expiry=None))


def client_of(service: Process, pid: int) -> httpx2.Client:
    """A lasting client whose connection is to one of the workers, as another one may be stopped."""
    while True:
        client = lasting_client(service)
        stream = client.get("/livez").extensions["network_stream"]
        ends = address(service)[1], stream.get_extra_info("client_addr")[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if tuple(int(field.rpartition(":")[2], 16) for field in fields[1:3]) == ends:
                held = f"socket:[{fields[9]}]"
                if any(os.readlink(file) == held for file in Path(f"/proc/{pid}/fd").iterdir()):
                    return client
        client.close()


def answer_of(connection: socket.socket) -> bytes:
    """All that comes on a connection until it is closed."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def ask(service: Process, **body: Any) -> dict[str, Any]:
    """A recommendation on a connection of its own, without its id, by which equal answers differ."""
    found: dict[str, Any] = anew(service, "POST", "/v1/recommend", json=body).json()
    found.pop("answer_id", None)
    return found


def answered_versions(service: Process, count: int = 20) -> set[str]:
    """The versions of so many answers, of any workers."""
    return {ask(service)["version"] for _ in range(count)}


def event(event_id: str, user: int | str = 7, item: int = 101, **more: Any) -> dict[str, Any]:
    return {"event_id": event_id, "user_id": user, "item_id": item, **more}


def send(service: Process, *events: dict[str, Any]) -> httpx2.Response:
    return service.client.post("/v1/events", json={"events": events})


def acknowledged(service: Process, *events: dict[str, Any]) -> bool:
    """Send events; whether the answer is that they are stored, or else a refusal as it should be."""
    answer = send(service, *events)
    if answer.status_code == 200:
        return True
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["field"] == "store"
    return False


def stored(service: Process, user: int | str = 7) -> list[str]:
    """The ids of the events of a user, up to 1000."""
    answer = service.client.get(f"/v1/users/{user}")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    found = [one["event_id"] for one in body["events"]]
    assert body["total"] == len(found) == len(set(found))
    return found


def recommended(service: Process, user: int | str = 7) -> dict[str, Any]:
    """Five items for a stored user."""
    answer = service.client.post("/v1/recommend", json={"user_id": user, "k": 5})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert len(found["items"]) == 5
    return found


def metric(service: Process, name: str) -> float:
    """The value of a figure, all its labels together; 0 where it isn't there."""
    text = service.client.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run: the workers of a service."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(status.parent.name))
    return sorted(found)


def listeners(service: Process) -> float:
    """How many workers listen on the service's port, by the system's table of sockets."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f":{address(service)[1]:04X}"
    return sum(line[1].endswith(port) and line[3] == "0A" for line in lines) / LISTENERS


def kill_workers(service: Process, *victims: int) -> None:
    """Kill workers (all of them), and wait until others listen in their places."""
    before = children(service.process.pid)
    for pid in victims or before:
        os.kill(pid, signal.SIGKILL)

    def are_replaced() -> bool:
        found = children(service.process.pid)
        return len(found) == len(before) == listeners(service) and not {*found} & {*(victims or before)}

    until(are_replaced, "other workers listen")


def peak(pid: int) -> int:
    """The most bytes that a process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
