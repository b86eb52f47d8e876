"""Group commit: appends that arrive during a write are written together, with one disk sync."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import Event

WriteResult = int | Exception
Write = Callable[[Sequence[Sequence[Event]]], Sequence[WriteResult]]
Work = Callable[[sqlite3.Connection], Sequence[WriteResult]]
_GROUP_CALLS, _GROUP_EVENTS = 256, 5_000  # larger groups only add latency


class _Call(NamedTuple):
    events: Sequence[Event]
    stored: "asyncio.Future[int]"


class GroupCommit:
    """Collects calls' events and writes one group at a time: `run` is that of the writing `Worker`.

    `write` takes each call's events and returns for each the number of new events or its error. A group never
    waits to fill: while nothing is being written, a single call is a group.
    """

    def __init__(self, run: Callable[[Work], Awaitable[Sequence[WriteResult]]], write: Write) -> None:
        self._run = run
        self._write = write
        self._waiting: list[_Call] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, events: Sequence[Event]) -> int:
        """Write events in the next group and return the number of new ones. Raises the error of `write`."""
        loop = asyncio.get_running_loop()
        call = _Call(events, loop.create_future())
        self._waiting.append(call)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all())
        return await call.stored

    async def _write_all(self) -> None:
        while calls := self._next():

            def work(_: object, calls: Sequence[_Call] = calls) -> Sequence[WriteResult]:
                return self._write([call.events for call in calls])

            try:
                written = await self._run(work)
            except Exception as error:  # of the thread, which is shut down when the service ends
                reason = f"history store closed: {error}"
                written = [HistoryUnavailableError(reason) for _ in calls]
            _settle(calls, written)

    def _next(self) -> list[_Call]:
        """Take the next calls, without cancelled ones."""
        calls: list[_Call] = []
        events = 0
        while self._waiting and len(calls) < _GROUP_CALLS and events < _GROUP_EVENTS:
            call = self._waiting.pop(0)
            if not call.stored.done():
                calls.append(call)
                events += len(call.events)
        return calls


def _settle(calls: Sequence[_Call], written: Sequence[WriteResult]) -> None:
    for call, result in zip(calls, written, strict=True):
        if call.stored.done():
            continue
        if isinstance(result, Exception):
            call.stored.set_exception(result)
        else:
            call.stored.set_result(result)
