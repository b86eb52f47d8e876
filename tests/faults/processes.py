"""What the tests of processes share: a client of a service, its workers, and traffic while things happen."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.service_process import Process, plain_client

HISTORIES = {"v1": [101, 102], "v2": [201, 202], "v3": [301, 302]}


def admin_of(service: Process, bundles: Path) -> dict[str, str]:
    """The header with the admin key of a service."""
    return {"Authorization": f"Bearer {(bundles / 'admin.key').read_text().strip()}"}


def admin(service: Process, bundles: Path, path: str, body: Any = None) -> httpx2.Response:
    """Ask for an admin call, wherever the service takes them."""
    url = f"{service.urls[-1] if 'admin' in service.greeting else service.urls[0]}/admin/{path}"
    with plain_client(timeout=60) as client:
        header = admin_of(service, bundles)
        if body is None and path == "routes":
            return client.get(url, headers=header)
        return client.post(url, json=body, headers=header)


def activate(service: Process, bundles: Path, version: str, **more: Any) -> httpx2.Response:
    return admin(service, bundles, "activate", {"version": version, **more})


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(status.parent.name))
    return sorted(found)


def until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait for something to come true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.02)


def metric(service: Process, name: str) -> float:
    """The value of a figure, all its labels together; 0 where it isn't there."""
    text = service.client.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


class Traffic:
    """Clients that ask as fast as they are answered, each on a connection of its own."""

    def __init__(self, url: str, bodies: Callable[[], dict[str, Any]] = dict) -> None:
        self.answers: list[tuple[float, float, int, str | None]] = []  # begun, took, status, version
        self.broken: list[str] = []
        self._url = url
        self._bodies = bodies
        self._over = threading.Event()

    def _ask(self) -> None:
        with plain_client(self._url, 30) as client:
            while not self._over.is_set():
                begun = time.monotonic()
                try:
                    answer = client.post("/v1/recommend", json=self._bodies())
                except httpx2.HTTPError as error:
                    self.broken.append(repr(error))
                    continue
                took = time.monotonic() - begun
                version = answer.json().get("version") if answer.status_code == 200 else None
                self.answers.append((begun, took, answer.status_code, version))

    @contextmanager
    def flowing(self, clients: int = 4) -> Iterator["Traffic"]:
        threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def statuses(self) -> set[int]:
        return {status for _, _, status, _ in self.answers}


def rss(pid: int, field: str = "Pss") -> int:
    """Kilobytes of a process: `Rss`, or `Pss`, in which a page of n processes counts as an nth."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise AssertionError(f"{pid} has no {field}")


def kill(pid: int, number: int) -> None:
    os.kill(pid, number)
