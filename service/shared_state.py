"""Integers in memory that all processes of a service share, read without a system call."""

import ctypes
import fcntl
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

_HEAD = 48  # integers before the first worker's slot
_PIN = slice(64, 128)  # the bytes of integers 8 to 15
_VERSION = slice(128, 192)  # those of integers 16 to 23
_REPLICATED, _OTHERS_SERVE = 4, 5


class Order(IntEnum):
    """An order of the supervisor to all workers."""

    SERVE = 0
    DRAIN = 1  # report at /readyz that no more requests should come, and answer those that do
    FINISH = 2  # accept no connections, finish running requests, exit
    STOP = 3  # exit without waiting for running requests


class Generation:
    """A number that only grows: a change to data that all workers hold raises it."""

    def __init__(self, shared_state: "SharedState", index: int) -> None:
        self._shared_state = shared_state
        self._cells = shared_state.cells
        self._index = index

    @property
    def value(self) -> int:
        """The current number."""
        return self._cells[self._index]

    def bump(self) -> int:
        """Add one and return the new number, atomically."""
        with self._shared_state.exclusive():
            self._cells[self._index] += 1
            return self._cells[self._index]

    def raise_to(self, value: int) -> None:
        """Raise it to `value`, unless it is higher already."""
        with self._shared_state.exclusive():
            self._cells[self._index] = max(self._cells[self._index], value)


class Pinned(NamedTuple):
    """The number of an activation, a 64-byte digest of its version (zeros: unknown), and the name of it."""

    number: int
    digest: bytes
    version: str


class Target(Generation):
    """The activation that should be live.

    The digest is here because a process that may write models could also write any file beside them.
    """

    def raise_to(self, value: int, pin: bytes = bytes(64), version: str = "") -> None:
        """Raise it to `value` with the digest `pin`, unless it is higher already."""
        with self._shared_state.exclusive():
            if value > self.value:
                self._set(value, pin, version)

    def begin_with(self, value: int, pin: bytes, version: str) -> None:
        """Set the first target, also to a negative number, which any other one replaces."""
        with self._shared_state.exclusive():
            if self.value == 0:
                self._set(value, pin, version)

    @property
    def pinned(self) -> Pinned:
        """The current number, its digest and its version."""
        with self._shared_state.exclusive():
            memory = self._shared_state.memory
            return Pinned(self.value, memory[_PIN], memory[_VERSION].rstrip(b"\0").decode("ascii"))

    def _set(self, value: int, pin: bytes, version: str) -> None:
        self._shared_state.memory[_PIN] = pin
        self._shared_state.memory[_VERSION] = version.encode("ascii").ljust(64, b"\0")
        self._cells[self._index] = value


class WorkerSlot(ctypes.Structure):
    """The numbers of one worker, written by it alone; the supervisor calls only `clear`.

    `pid`: its process, 0 for none. `live` and `routes`: the generations of its live version (0 for none) and
    of its routes. `in_flight` and `connections`: how many it has. A slot fills a cache line.
    """

    _fields_ = [  # ctypes reads this attribute
        *((name, ctypes.c_int64) for name in ("pid", "live", "routes", "in_flight", "connections")),
        ("_heartbeat", ctypes.c_int64),
        ("_unused", ctypes.c_int64 * 2),
    ]
    number: int
    pid: int
    live: int
    routes: int
    in_flight: int
    connections: int
    _heartbeat: int

    def clear(self) -> None:
        """Mark the slot as empty."""
        ctypes.memset(ctypes.addressof(self), 0, ctypes.sizeof(self))

    def occupy(self) -> None:
        """Mark the slot as this process's."""
        self.clear()
        self.heartbeat()
        self.pid = os.getpid()

    @property
    def silence(self) -> float:
        """Seconds since its last heartbeat."""
        return (time.monotonic_ns() - self._heartbeat) / 1e9

    def heartbeat(self) -> None:
        """Record the time."""
        self._heartbeat = time.monotonic_ns()


class SharedState:
    """Shared memory of 64-bit integers: an order, three generations, and a slot for each worker.

    Create it before the fork.

    - `target`: the activation that should be live; workers load its version if that has the pinned digest.
    - `items`: raised by every change of fresh and withdrawn items.
    - `routes`: raised by every change of the routes.
    """

    def __init__(self, workers: int = 1) -> None:
        width = ctypes.sizeof(WorkerSlot)
        size = 8 * _HEAD + workers * width
        self._file = _unnamed_file(size)
        self._lock = threading.Lock()
        # Mapped memory is read without a system call; the file under it can be locked.
        self.memory = mmap.mmap(self._file, size)
        self.cells = memoryview(self.memory).cast("q")
        self.target = Target(self, 0)
        self.items = Generation(self, 1)
        self.routes = Generation(self, 2)
        self.slots = tuple(
            WorkerSlot.from_buffer(self.memory, 8 * _HEAD + number * width) for number in range(workers)
        )
        for number, slot in enumerate(self.slots):
            slot.number = number

    def __del__(self) -> None:
        os.close(self._file)

    @property
    def order(self) -> int:
        """The `Order` to the workers."""
        return self.cells[3]

    @order.setter
    def order(self, order: Order) -> None:
        self.cells[3] = order

    @property
    def replicated(self) -> bool:
        """Whether this service is one of several replicas, which share the record of the live version."""
        return bool(self.cells[_REPLICATED])

    @replicated.setter
    def replicated(self, replicated: bool) -> None:
        self.cells[_REPLICATED] = replicated

    @property
    def others_serve(self) -> bool:
        """Whether another replica serves the target."""
        return bool(self.cells[_OTHERS_SERVE])

    @others_serve.setter
    def others_serve(self, others_serve: bool) -> None:
        self.cells[_OTHERS_SERVE] = others_serve

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the generations against all other threads and processes."""
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)  # the kernel releases it when its holder dies
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)


def _unnamed_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("turret-shared-state")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, size)
    return descriptor
