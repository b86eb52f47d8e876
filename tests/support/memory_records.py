"""The record of replicas in this process, by the clock of the event loop, with failures on demand."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from turret.service.errors import ReplicasUnavailableError
from turret.service.stores.contract import Beat, RecordView


class RecordServer:
    """What replicas share: the record, the number of the items, the reports, and the lease.

    `fault`: `down` refuses every call; `late` makes a change, and answers that it is down.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.forget()

    def forget(self) -> None:
        """Lose everything, as a database that was flushed."""
        self.record = b""
        self.items = 0
        self.reports: dict[str, tuple[float, bytes]] = {}
        self.lease: tuple[str, float] = ("", 0.0)  # the holder and its end

    @contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        """Let every call fail in this way."""
        self.fault = fault
        yield
        self.fault = ""

    def check(self, fault: str = "down") -> None:
        """Raise ReplicasUnavailableError with this fault."""
        if self.fault == fault:
            raise ReplicasUnavailableError("the store is unavailable")


class MemoryRecords:
    """The RecordStore of one replica on a `RecordServer`."""

    def __init__(self, server: RecordServer) -> None:
        self._server = server

    async def view(self, replica: str = "", report: bytes = b"", forget_after: float = 0) -> RecordView:
        """Read all, and report for a replica; see RecordStore."""
        self._server.check()
        now, reports = asyncio.get_running_loop().time(), self._server.reports
        if replica:
            reports[replica] = (now, report)
            for name in [name for name, (time, _) in reports.items() if now - time >= forget_after]:
                del reports[name]
        beats = tuple(Beat(name, now - time, said) for name, (time, said) in sorted(reports.items()))
        return RecordView(self._server.record, self._server.items, beats)

    async def swap(self, before: bytes, after: bytes) -> bytes:
        """Replace the record if it is `before`; see RecordStore."""
        self._server.check()
        if self._server.record == before:
            self._server.record = after
        self._server.check("late")
        return self._server.record

    async def take_lease(self, holder: str, seconds: float) -> bool:
        """Take or prolong the lease; see RecordStore."""
        self._server.check()
        now = asyncio.get_running_loop().time()
        held_by, end = self._server.lease
        is_free = held_by in ("", holder) or end <= now
        if is_free:
            self._server.lease = (holder, now + seconds)
        return is_free

    async def prolong_lease(self, holder: str, seconds: float) -> bool:
        """Prolong the lease, or return it with 0; see RecordStore."""
        self._server.check()
        now = asyncio.get_running_loop().time()
        held_by, end = self._server.lease
        has_it = held_by == holder and end > now
        if has_it:
            self._server.lease = (holder, now + seconds)
        return has_it

    async def leave(self, replica: str) -> None:
        """Forget a replica that ends."""
        self._server.check()
        self._server.reports.pop(replica, None)

    async def close(self) -> None:
        """There is nothing to release."""
