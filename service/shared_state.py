"""Integers in memory that all processes of a service share, read without a system call."""

import ctypes
import mmap
import os
import time
from enum import IntEnum

_HEAD = 8  # integers before the first worker's slot


class Order(IntEnum):
    """An order of the supervisor to all workers."""

    SERVE = 0
    DRAIN = 1  # report at /readyz that no more requests should come, and answer those that do
    FINISH = 2  # accept no connections, finish running requests, exit
    STOP = 3  # exit without waiting for running requests


class WorkerSlot(ctypes.Structure):
    """The numbers of one worker, written by it alone; the supervisor calls only `clear`.

    `pid`: its process, 0 for none. `connections`: how many it has. A slot fills a cache line.
    """

    _fields_ = [  # ctypes reads this attribute
        *((name, ctypes.c_int64) for name in ("pid", "connections")),
        ("_heartbeat", ctypes.c_int64),
        ("_unused", ctypes.c_int64 * 5),
    ]
    number: int
    pid: int
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
    """Shared memory of 64-bit integers: an order, and a slot for each worker. Create it before the fork."""

    def __init__(self, workers: int = 1) -> None:
        width = ctypes.sizeof(WorkerSlot)
        size = 8 * _HEAD + workers * width
        memory = mmap.mmap(-1, size)  # anonymous, and shared by all forks
        self._order = ctypes.c_int64.from_buffer(memory)
        self.slots = tuple(
            WorkerSlot.from_buffer(memory, 8 * _HEAD + number * width) for number in range(workers)
        )
        for number, slot in enumerate(self.slots):
            slot.number = number

    @property
    def order(self) -> int:
        """The `Order` to the workers."""
        return self._order.value

    @order.setter
    def order(self, order: Order) -> None:
        self._order.value = order
