"""Connections until no descriptor is left, and what else the service needs one for."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import activate, children, until
from tests.support.service_process import Start
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record

FEW = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))"


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def flood(host: str, port: int) -> Iterator[None]:
    """Somebody who opens connections all the time, and keeps up to 400 of them open."""
    over = threading.Event()

    def open_connections() -> None:
        held: list[socket.socket] = []
        while not over.wait(0.002):
            held.append(socket.create_connection((host, port), timeout=5))
            if len(held) > 400:
                held.pop(0).close()
        for one in held:
            one.close()

    thread = threading.Thread(target=open_connections)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.fault(53)
def test_connections_leave_descriptors_for_everything_else(start: Start, three: Path) -> None:
    service = start(before=FEW.format(256), admin_port=0)
    (worker,) = children(service.process.pid)
    host, port = service.urls[0].removeprefix("http://").split(":")
    kept = HTTPConnection(host, int(port), timeout=10)

    def ask(method: str, path: str, body: Any = None) -> int:
        content = None if body is None else json.dumps(body)
        kept.request(method, path, content, {"Content-Type": "application/json"})
        answer = kept.getresponse()
        answer.read()
        return answer.status

    assert ask("GET", "/livez") == 200
    with flood(host, int(port)):
        until(lambda: descriptors(worker) >= 64)
        time.sleep(0.5)
        assert descriptors(worker) < 200
        assert ask("GET", "/livez") == 200
        assert activate(service, three, "v2").status_code == 200
        assert activate(service, three, "v3").status_code == 200
        event = {"event_id": "1", "user_id": 7, "item_id": 301, "time": 1}
        assert ask("POST", "/v1/events", {"events": [event]}) == 200
        assert ask("POST", "/v1/recommend", {"user_id": 7}) == 200
        assert ask("GET", "/metrics") == 200
        add_key(three.parent / "keys.json", record("shop", new_key("shop"), ["read"]))
        until(lambda: ask("POST", "/v1/recommend", {}) == 401)
        assert descriptors(worker) < 200
    kept.close()
    status, complaints = service.stop()
    assert status == 0
    assert "a worker accepts 64 connections instead of 4096" in complaints
    assert "no connection can be taken" not in complaints


@pytest.mark.fault(53)
@pytest.mark.parametrize("files", [128, 200])
def test_where_hardly_any_would_be_left_it_does_not_start(start: Start, files: int) -> None:
    service = start(before=FEW.format(files))
    assert service.process.wait(10) == 1
    assert service.process.stderr is not None
    (sentence,) = service.process.stderr.read().splitlines()
    assert f"a process may open {files} files" in sentence
    assert "ulimit -n" in sentence
