"""The record of members in this process, by the clock of the event loop, with failures on demand."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from turret.service.errors import ReplicasUnavailableError
from turret.service.stores.contract import Member, Revision


class RecordServer:
    """What members share: the record, the number of the items, the reports, and the lease.

    `fault`: `down` refuses every call; `late` makes a change of the record, and answers that it is down.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.replacements = 0
        self.forget()

    def forget(self) -> None:
        """Lose everything, as a database that was flushed."""
        self.record = b""
        self.items = 0
        self.reports: dict[str, tuple[float, bytes]] = {}
        self.lease: tuple[str, float] = ("", 0.0)  # the holder and its end

    @contextmanager
    def failing(self, fault: str = "down") -> Iterator[None]:
        """Let every call fail in this way."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = ""

    def check(self, fault: str = "down") -> None:
        """Raise ReplicasUnavailableError with this fault."""
        if self.fault == fault:
            raise ReplicasUnavailableError("the store is unavailable")


class MemoryRecords:
    """The RecordStore of one member on a `RecordServer`."""

    def __init__(self, server: RecordServer) -> None:
        self._server = server

    async def poll(self) -> Revision:
        """Return the numbers by which changes are noticed."""
        self._server.check()
        return Revision(self._server.replacements if self._server.record else 0, self._server.items)

    async def read(self) -> bytes:
        """Return the record."""
        self._server.check()
        return self._server.record

    async def swap(self, before: bytes, after: bytes) -> bytes:
        """Replace the record if it is `before`."""
        self._server.check()
        if self._server.record == before:
            self._server.record = after
            self._server.replacements += 1
        self._server.check("late")
        return self._server.record

    async def members(
        self, name: str = "", report: bytes = b"", forget_after: float = 0
    ) -> tuple[Member, ...]:
        """Return the last report of each member."""
        self._server.check()
        now, reports = asyncio.get_running_loop().time(), self._server.reports
        if name:
            reports[name] = (now, report)
            for gone in [member for member, (time, _) in reports.items() if now - time > forget_after]:
                del reports[gone]
        return tuple(Member(member, now - time, said) for member, (time, said) in sorted(reports.items()))

    async def leave(self, name: str) -> None:
        """Forget a member that ends."""
        self._server.check()
        self._server.reports.pop(name, None)

    async def announce(self, items: int) -> None:
        """Raise the number of items to at least this."""
        self._server.check()
        self._server.items = max(self._server.items, items)

    async def take_lease(self, holder: str, seconds: float) -> bool:
        """Take, prolong or return the lease."""
        self._server.check()
        held_by, end = self._server.lease
        return (held_by == holder or self._has_ended(end)) and self._hold(holder, seconds)

    async def close(self) -> None:
        """There is nothing to release."""

    def _has_ended(self, end: float) -> bool:
        return end <= asyncio.get_running_loop().time()

    def _hold(self, holder: str, seconds: float) -> bool:
        self._server.lease = (holder, asyncio.get_running_loop().time() + seconds)
        return True
