"""A load on a service: connections that send the next request when the last is answered, or at a pace."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import processor_seconds

GIVE_UP = 10.0  # seconds after the end in which answers that are under way may still come


@dataclass(frozen=True)
class Load:
    """The requests of a load, and how they are sent.

    Attributes:
        url: where the service listens.
        path: the call; each of `bodies` is a JSON text, sent in turn by POST.
        connections: how many are open; each waits for its answer.
        seconds: how long new requests are sent.
        rate: requests/s over all connections; None sends the next one as soon as the last is answered.
        cpu: the processor that the generator keeps to.
    """

    url: str
    path: str
    bodies: tuple[str, ...]
    connections: int = 16
    seconds: float = 2.0
    rate: float | None = None
    cpu: int | None = None


@dataclass(frozen=True)
class Outcome:
    """When each request was sent (time.monotonic), the seconds to its answer, and its status.

    With a rate, a request counts from the moment when it was due, whether or not a connection was free then.
    Status 0: no answer.
    """

    sent: NDArray[np.float64]
    seconds: NDArray[np.float64]
    status: NDArray[np.int64]

    @property
    def good(self) -> NDArray[np.bool_]:
        """Whether each request was answered with 200."""
        good: NDArray[np.bool_] = self.status == 200
        return good

    def checked(self) -> "Outcome":
        """This outcome. Raises RuntimeError where a request was not answered with 200."""
        if not self.good.all():
            raise RuntimeError(f"{int((~self.good).sum())} requests were not answered with 200")
        return self

    def rate(self) -> float:
        """Good answers a second."""
        return float(self.good.sum() / (self.sent.max() + self.seconds[-1] - self.sent.min()))

    def percentile(self, share: float) -> float:
        """The seconds within which a share of the good answers came."""
        return float(np.percentile(self.seconds[self.good], 100 * share))


def run_load(load: Load) -> Outcome:
    """Send the load from a process of its own, and wait for it."""
    with start_load(load) as running:
        return running.result()


@contextmanager
def start_load(load: Load) -> Iterator["Future[Outcome]"]:
    """Run a load in a process of its own, while the caller goes on."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=keep_to, initargs=(load.cpu,)) as pool:
        pool.submit(int).result()  # the process has started
        yield pool.submit(_send, load)


def _send(load: Load) -> Outcome:
    import uvloop

    sent, seconds, status = uvloop.run(_Generator(load).run())
    return Outcome(sent, seconds, status.astype(np.int64))


def in_turns(loads: Mapping[str, Load], rounds: int) -> dict[str, list[Outcome]]:
    """Send loads in turns, so that other work on the machine affects all; a first turn is not counted."""
    turns = [{name: run_load(load).checked() for name, load in loads.items()} for _ in range(1 + rounds)]
    return {name: [turn[name] for turn in turns[1:]] for name in loads}


def request_costs(load: Load, *groups: Sequence[int]) -> list[float]:
    """Processor milliseconds of a request in each group of processes. Raises RuntimeError where one fails."""

    def used() -> list[float]:
        return [sum(map(processor_seconds, pids)) for pids in groups]

    before, outcome, after = used(), run_load(load).checked(), used()
    return [1e3 * (end - begin) / len(outcome.sent) for begin, end in zip(before, after, strict=True)]


class _Connection(asyncio.Protocol):
    """A connection that writes a request, and completes a future with its status after the whole answer."""

    def __init__(self) -> None:
        self.transport: Any = None  # uvloop's transports are no asyncio.WriteTransport, but behave as one
        self.answered: asyncio.Future[int] | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, request: bytes) -> "asyncio.Future[int]":
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answered

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if separator and len(body) >= _length(head):
            self._buffer = b""
            self._answer(int(head[9:12]))

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self._answer(0)

    def _answer(self, status: int) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(status)


def _length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(b"content-length:")
    return int(lowered[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


class _Generator:
    """Sends one load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        parts = urlsplit(load.url)
        self._place = parts.hostname or "127.0.0.1", parts.port or 80
        self._requests = [_request(load, body) for body in load.bodies]
        self._next = 0
        self._rows: list[tuple[float, float, int]] = []

    async def run(self) -> NDArray[np.float64]:
        """Send until the time is over; return [3, requests]: sent, seconds, status."""
        self._begin = time.monotonic()
        workers = [asyncio.create_task(self._work()) for _ in range(self._load.connections)]
        await asyncio.wait(workers, timeout=self._load.seconds + GIVE_UP)
        for worker in workers:
            worker.cancel()
        return np.array(self._rows, dtype=np.float64).reshape(-1, 3).T

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        connection = _Connection()
        while (due := await self._turn()) is not None:
            status = 0
            try:
                if connection.transport is None:
                    _, connection = await loop.create_connection(_Connection, *self._place)
                status = await connection.send(self._requests[self._next % len(self._requests)])
            except OSError:
                await asyncio.sleep(0.01)
            self._rows.append((due, time.monotonic() - due, status))

    async def _turn(self) -> float | None:
        """Wait for the moment at which the next request is due; None after the end."""
        number, self._next = self._next, self._next + 1
        now = time.monotonic()
        due = now if self._load.rate is None else self._begin + number / self._load.rate
        if due > self._begin + self._load.seconds:
            return None
        if due > now:
            await asyncio.sleep(due - now)
        return due


def _request(load: Load, body: str) -> bytes:
    content = body.encode()
    lines = [f"POST {load.path} HTTP/1.1", "Host: benchmark", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(content)}", "", ""]).encode() + content


def processors(count: int) -> Sequence[int | None]:
    """`count` processors of this machine for processes to keep to; Nones where there are not enough."""
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return available[:count] if len(available) >= count else [None] * count


def keep_to(cpu: int | None) -> None:
    """Let this process run on the processor `cpu` alone."""
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
