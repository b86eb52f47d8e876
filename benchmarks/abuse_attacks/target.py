"""The service that is attacked: `turret serve` with two workers, and keys, so that its doors are closed."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.abuse_attacks.attack import NotCarriedOutError
from benchmarks.abuse_attacks.sockets import owner
from benchmarks.abuse_attacks.wire import Address, Answer, ask, asked_on, dial, head, post, read_answer
from benchmarks.processes import PROXY_FOLDER, family, running_proxy
from tests.support.ports import free_port
from turret.service.keys.keys import add_key, new_key, record

WORKERS = 2
HISTORY = [201, 202, 203]
_REPOSITORY = Path(__file__).parents[2]


class RefusedToStartError(Exception):
    """The service ended instead of serving."""


@dataclass(frozen=True)
class Target:
    """A running service.

    `address` is what attackers ask, nginx or the service; `direct` is the service, which probes and other
    clients ask. `work` is its working directory, with `bundles/`, `keys/keys.json` and `history.sqlite`;
    `reader` and `writer` are keys of the scopes read and write, `both` one of both.
    """

    process: "subprocess.Popen[str]"
    work: Path
    address: Address
    direct: Address
    admin_address: Address
    reader: str
    writer: str
    both: str

    @property
    def bundles(self) -> Path:
        """The folder of the bundles."""
        return self.work / "bundles"

    @property
    def keys(self) -> Path:
        """The file of the keys."""
        return self.work / "keys" / "keys.json"

    @property
    def admin_key(self) -> str:
        """The key of the admin calls."""
        return self.admin_key_file.read_text(encoding="utf-8").strip()

    @property
    def admin_key_file(self) -> Path:
        """Where the service keeps that key. Raises NotCarriedOutError when it keeps none."""
        path = next(self.work.rglob("admin.key"), None)
        if path is None:
            raise NotCarriedOutError("the service keeps no admin.key")
        return path

    def children(self) -> list[int]:
        """The processes that the supervisor has now: its workers, and those that check versions."""
        return [pid for pid in family(self.process.pid) if pid != self.process.pid]

    def workers(self) -> dict[int, socket.socket]:
        """An open connection to each worker, by its process. Raises NotCarriedOutError without two."""
        connections: dict[int, socket.socket] = {}
        end = time.monotonic() + 10
        while len(connections) < WORKERS:
            if time.monotonic() > end:
                raise NotCarriedOutError(f"{len(connections)} of {WORKERS} workers answer")
            try:
                connection = dial(self.direct)
            except OSError:
                time.sleep(0.05)
                continue
            alive = asked_on(connection, head("GET", "/livez")).status == 200
            pid = owner(connection, self.children()) if alive else None
            if pid is None or pid in connections:
                connection.close()
                time.sleep(0.002)
            else:
                connections[pid] = connection
        return connections

    def recommend(self, key: str | None = None, **body: object) -> Answer:
        """Ask for a recommendation on a new connection."""
        return ask(self.address, self.recommendation(key, **body))

    def recommendation(self, key: str | None = None, **body: object) -> bytes:
        """A request for a recommendation, as bytes."""
        return post("/v1/recommend", {"history": HISTORY, "k": 10, **body}, key=key)

    def admin(self, path: str, body: object = None, key: str | None = None, timeout: float = 60.0) -> Answer:
        """Make an admin call, with the right key unless another is given."""
        given = self.admin_key if key is None else key
        call = f"/admin/{path}"
        request = head("GET", call, key=given) if body is None else post(call, body, key=given)
        return ask(self.admin_address, request, timeout)

    def replace_worker(self) -> tuple[int, dict[int, socket.socket]]:
        """Kill a worker and wait for the one that takes its place; gives its process and all connections."""
        before = self.workers()
        for connection in before.values():
            connection.close()
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in self.children(), 5)
        after = self.workers()
        fresh = set(after) - set(before)
        if len(fresh) != 1:
            raise NotCarriedOutError("no worker took the place of the one that was killed")
        return fresh.pop(), after


def until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait for something to come true; tells whether it did."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def running_target(
    shop: Path,
    settings: Mapping[str, str],
    open_files: int | None = None,
    prepare: Callable[[Path], object] | None = None,
    edge: bool = False,
) -> Iterator[Target]:
    """Start a service on a copy of the bundles in `shop`, and kill it in the end.

    With `edge` nginx is in front of it. `prepare` is given its working directory first. Raises
    RefusedToStartError when it doesn't start.
    """
    with tempfile.TemporaryDirectory(prefix="turret-abuse-") as folder, ExitStack() as stack:
        work = Path(folder)
        shutil.copytree(shop, work / "bundles")
        file = work / "keys" / "keys.json"
        reader, writer = _key(file, "reader", "read"), _key(file, "writer", "write")
        both = _key(file, "both", "read", "write")
        if prepare is not None:
            prepare(work)
        process = _start(work, settings, open_files)
        try:
            direct, admin = _addresses(process, work)
            address = direct
            if edge:
                address = ("127.0.0.1", free_port())
                listen = f"127.0.0.1:{address[1]}"
                proxy = stack.enter_context(tempfile.TemporaryDirectory(prefix="turret-proxy-"))
                limits = (PROXY_FOLDER / "limits.conf").read_text("utf-8")
                stack.enter_context(running_proxy(Path(proxy), [direct[1]], listen, limits))
            yield Target(process, work, address, direct, admin, reader, writer, both)
        finally:
            _end(process)


def warm_up(target: Target, requests: int = 80) -> None:
    """Let both workers answer, so that what is made once is there before anything is measured."""
    for connection in target.workers().values():
        for _ in range(requests):
            asked_on(connection, target.recommendation(target.reader))
        for path in ("/metrics", "/docs", "/openapi.json", "/readyz"):
            asked_on(connection, head("GET", path))
        batch = post("/v1/recommend/batch", {"requests": [{"k": 10}] * 10}, key=target.reader)
        connection.sendall(batch)
        read_answer(connection)
        connection.close()


def _key(path: Path, name: str, *scopes: str) -> str:
    key = new_key(name)
    add_key(path, record(name, key, scopes))
    return key


def _start(work: Path, settings: Mapping[str, str], open_files: int | None) -> "subprocess.Popen[str]":
    usual = {"keys": str(work / "keys" / "keys.json"), "drain_delay": "0.5"}
    given = {f"TURRET_{name.upper()}": value for name, value in {**usual, **settings}.items()}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURRET_")}
    words = ["serve", "--bundles", str(work / "bundles"), "--port", "0", "--admin-port", "0"]
    words += ["--workers", str(WORKERS), "--store", f"sqlite:///{work}/history.sqlite"]
    command = [sys.executable, "-m", "turret", *words]
    with (work / "log").open("w") as log:
        return subprocess.Popen(
            command,
            cwd=work,
            env={**environment, **given, "PYTHONPATH": str(_REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=None if open_files is None else lambda: _bound_files(open_files),
        )


def _bound_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def _addresses(process: "subprocess.Popen[str]", work: Path) -> tuple[Address, Address]:
    assert process.stdout is not None
    urls = [urlsplit(url) for url in re.findall(r"http://[\d.:]+\d", process.stdout.readline())]
    if len({url.port for url in urls}) < 2:
        process.wait(10)
        raise RefusedToStartError((work / "log").read_text()[-500:])
    return tuple((str(url.hostname), int(url.port or 0)) for url in (urls[0], urls[-1]))  # type: ignore[return-value]


def _end(process: "subprocess.Popen[str]") -> None:
    for pid in family(process.pid) if process.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with process:  # waits, and closes the pipe
        pass
