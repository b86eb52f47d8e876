"""A real redis-server for tests: one for all that only store something, others to be stopped and broken."""

import atexit
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as NotThereError

from tests.support.ports import held_port
from tests.support.tools import require
from tests.support.until import until
from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import Event
from turret.service.stores.redis.histories import RedisHistory

EVENT = Event("e", "u", 1, 0)


class RedisServer:
    """A redis-server on a port of its own; its files are in `folder`, `config` as in redis.conf."""

    def __init__(self, folder: Path, **config: str) -> None:
        require("redis")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = held_port(self)
        # Each write is synced: a server that is killed during a sync may lose what it has acknowledged.
        self.config = {"appendonly": "yes", "appendfsync": "always", "save": ""}
        self.config |= {"loglevel": "warning", "enable-debug-command": "yes"}
        self.config |= config
        self.start()

    @property
    def address(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, again after `kill` too, and wait until it answers."""
        options = [word for name, value in self.config.items() for word in (f"--{name}", value)]
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", *options]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        until(self._answers, f"{self.address} answers")

    def ask(self, *command: str | int | bytes) -> Any:
        """Run one command."""
        given: dict[str, Any] = {"port": self.port, "password": self.config.get("requirepass")}
        with closing(Redis(**given, socket_timeout=10)) as client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it hang: connections stay, and new ones are made, but nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait()

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return bool(self.ask("PING"))
        except (NotThereError, OSError):
            return False


@contextmanager
def own_redis(folder: Path, **config: str) -> Iterator[RedisServer]:
    """A server that ends with the test."""
    server = RedisServer(folder, **config)
    try:
        yield server
    finally:
        server.kill()


# What ends with the tests of this process.
LASTING = ExitStack()
atexit.register(LASTING.close)


def lasting_folder() -> Path:
    """A folder for the files of a server that all tests share."""
    return Path(LASTING.enter_context(TemporaryDirectory(prefix="turret-", ignore_cleanup_errors=True)))


@cache
def shared_redis() -> str:
    """The address of the server for all: that of TURRET_TEST_REDIS, else one that ends with the tests."""
    given = os.environ.get("TURRET_TEST_REDIS")
    return given or LASTING.enter_context(own_redis(lasting_folder(), appendonly="no")).address


def place_in_redis(folder: Path) -> str:
    """An address whose keys are of one test, which has `folder`; see `swept`."""
    return f"{shared_redis()}?prefix=turret-test-{os.getpid()}-{folder.name}:"


def sweep(address: str) -> None:
    """Delete all keys of an address."""
    plain, _, prefix = address.partition("?prefix=")
    if not prefix:
        return
    for server in _masters(plain):
        with closing(Redis.from_url(server)) as client:
            for key in client.scan_iter(match=f"{prefix}*", count=5_000):
                client.unlink(key)


def _masters(address: str) -> list[str]:
    """The server of an address, or the masters of a cluster."""
    scheme, _, hosts = address.partition("://")
    if scheme == "redis":
        return [address]
    assert scheme == "redis+cluster"
    with closing(Redis.from_url(f"redis://{hosts.partition(',')[0]}")) as client:
        shards = client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    return [f"redis://127.0.0.1:{master[1]}" for _, _, master, *_ in shards]


@asynccontextmanager
async def history(address: str, seconds: float = 0.3, **options: Any) -> AsyncIterator[RedisHistory]:
    """A store with a short timeout."""
    store = RedisHistory(address, seconds=seconds, **options)
    try:
        yield store
    finally:
        await store.close()


async def refused(call: Coroutine[Any, Any, Any]) -> str:
    """The message of a call that fails because the store is unavailable."""
    with pytest.raises(HistoryUnavailableError) as caught:
        await call
    return str(caught.value)
