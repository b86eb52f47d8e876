"""The process of `monitor.Monitor`."""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from benchmarks.abuse_attacks.memory import Memory
from benchmarks.abuse_attacks.monitor import LONGEST_WAIT
from benchmarks.abuse_attacks.sockets import owner
from benchmarks.abuse_attacks.summary import Probe, summed
from benchmarks.abuse_attacks.wire import Address, head
from benchmarks.processes import family

_EACH, _EACH_HONEST, _EACH_LOOK = 0.01, 0.05, 0.025  # seconds between two of a kind
_LIVEZ, _READYZ = head("GET", "/livez"), head("GET", "/readyz")


class _Watching:
    """The probes of one service, and what they saw."""

    def __init__(self, pid: int, address: Address, honest: bytes) -> None:
        self._address = address
        self._honest = honest
        self._memory = Memory(pid)
        self._over = asyncio.Event()
        self._pids = [one for one in family(pid) if one != pid]
        self.probes: list[Probe] = []
        self.delay = 0.0

    async def run(self, begun: Callable[[], None]) -> None:
        """Watch until `end` is read."""
        kept = await self._a_connection_each()
        for _ in range(20):
            self._memory.look_idle()
            await asyncio.sleep(0.01)
        self._memory.begin()
        tasks = [asyncio.create_task(self._look())]
        for connection in kept:
            tasks.append(asyncio.create_task(self._keep("livez", _LIVEZ, _EACH, connection)))
            tasks.append(asyncio.create_task(self._keep("honest", self._honest, 2 * _EACH_HONEST)))
        tasks.append(asyncio.create_task(self._renew("livez_new", _LIVEZ, 2 * _EACH)))
        tasks.append(asyncio.create_task(self._renew("readyz", _READYZ, _EACH_HONEST)))
        tasks.append(asyncio.create_task(self._renew("honest_new", self._honest, 2 * _EACH_HONEST)))
        begun()
        await asyncio.to_thread(sys.stdin.readline)
        self._over.set()
        await asyncio.wait(tasks, timeout=LONGEST_WAIT + 1)
        for task in tasks:
            if task.done():
                task.result()
            else:
                task.cancel()

    def told(self) -> dict[str, object]:
        """Everything that was seen, in figures."""
        return {
            **self._memory.figures(),
            **summed(self.probes),
            "watch_delay_ms": round(1000 * self.delay, 1),
        }

    async def _a_connection_each(self) -> list[socket.socket]:
        """A connection to each worker."""
        by_worker: dict[int, socket.socket] = {}
        for _ in range(100):
            connection = await self._connected()
            await _asked(connection, _LIVEZ)
            pid = owner(connection, self._pids)
            if pid is None or pid in by_worker:
                connection.close()
            else:
                by_worker[pid] = connection
            if len(by_worker) == len(self._pids):
                break
        return list(by_worker.values())

    async def _look(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self._memory.look()
            looked = time.monotonic()
            await asyncio.sleep(_EACH_LOOK)
            self.delay = max(self.delay, time.monotonic() - looked - _EACH_LOOK, looked - began)

    async def _keep(
        self, name: str, request: bytes, each: float, connection: socket.socket | None = None
    ) -> None:
        """Ask on one connection, again and again; on another where it is closed."""
        while not self._over.is_set():
            began, starved = time.monotonic(), self._starved()
            status = 0
            try:
                async with asyncio.timeout(LONGEST_WAIT):
                    connection = connection or await self._connected()
                    status = await _asked(connection, request)
            except (OSError, TimeoutError, ValueError):
                if connection is not None:
                    connection.close()
                    connection = None
            self._note(name, began, starved, status)
            await asyncio.sleep(each)

    async def _renew(self, name: str, request: bytes, each: float) -> None:
        """Ask on a new connection each time."""
        while not self._over.is_set():
            began, starved = time.monotonic(), self._starved()
            status = 0
            with suppress(OSError, TimeoutError, ValueError):
                async with asyncio.timeout(LONGEST_WAIT):
                    with await self._connected() as connection:
                        status = await _asked(connection, request)
            self._note(name, began, starved, status)
            await asyncio.sleep(each)

    def _note(self, name: str, began: float, starved: dict[int, float], status: int) -> None:
        now = self._starved()
        waited = max((now[pid] - starved[pid] for pid in now.keys() & starved.keys()), default=0.0)
        self.probes.append(Probe(name, began, time.monotonic() - began, status, waited))

    def _starved(self) -> dict[int, float]:
        """Seconds that each worker's event loop has waited for a core so far."""
        by_worker = {}
        for pid in self._pids:
            with suppress(OSError, IndexError), open(f"/proc/{pid}/schedstat", encoding="ascii") as told:
                by_worker[pid] = int(told.read().split()[1]) / 1e9
        return by_worker

    async def _connected(self) -> socket.socket:
        connection = socket.socket()
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, self._address)
        except BaseException:
            connection.close()
            raise
        return connection


async def _asked(connection: socket.socket, request: bytes) -> int:
    """Send a request, read the whole answer, and return its status. Raises OSError when there is none."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, request)
    received = b""
    while True:
        part = await loop.sock_recv(connection, 65536)
        if not part:
            raise ConnectionResetError("closed without an answer")
        received += part
        first, separator, body = received.partition(b"\r\n\r\n")
        if separator:
            length = int(first.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            if len(body) >= length:
                return int(first[9:12])


def main() -> None:
    """Watch what the first line of standard input names until the second, and print the figures."""
    with suppress(OSError):  # not everybody may
        os.nice(-15)
    settings = json.loads(sys.stdin.readline())

    async def watch() -> _Watching:
        watching = _Watching(settings["pid"], tuple(settings["address"]), settings["request"].encode())
        await watching.run(lambda: print("watching", flush=True))
        return watching

    print(json.dumps(asyncio.run(watch()).told()), flush=True)


if __name__ == "__main__":
    main()
