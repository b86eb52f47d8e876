"""The reports of a service on the outcomes of its answers: counted one at a time, and kept with their age."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from turret.data.configuration import is_url
from turret.data.moments import milliseconds_of
from turret.service.errors import BusyError, ConflictError, InvalidFieldError
from turret.service.keys.keys import answer_key
from turret.service.outcomes.request import CountReport, CountRequest, read_report
from turret.service.schemas.fields import show_time
from turret.service.settings import Settings
from turret.service.stores.contract import now_ms
from turret.service.stores.registry import store_kind

FRESH_MS = 60_000  # a younger report is not counted again
STALE_MS = 900_000  # an older report is not answered
WAIT_SECONDS = 20.0  # for the first report
COUNT_SECONDS = 600.0
Count = Callable[[CountRequest], Awaitable[None]]


class OutcomeReports:
    """Counts by `count` into `folder`, which the workers of a machine share.

    A report with outcomes is answered at once for a quarter of an hour, and counted anew meanwhile.
    """

    def __init__(
        self, settings: Settings, folder: Path, bundles: Callable[[], Sequence[Path]], count: Count
    ) -> None:
        self._settings, self._folder, self._bundles, self._count = settings, folder, bundles, count
        self._task: asyncio.Task[None] | None = None
        self._counted, self._failed = "", ""

    async def read(self, kinds: Sequence[str], within: str, value: str | None) -> dict[str, Any]:
        """Return the newest report with its age.

        Raises ConflictError for a service without a log that can be counted, InvalidFieldError for a kind or
        a field that does not exist, or a text `within` that is no pause, BusyError while the first report is
        being counted.
        """
        try:
            longest = round(milliseconds_of(within))
        except ValueError as error:
            raise InvalidFieldError("within", within, str(error)) from None
        request = self._request(tuple(sorted(set(kinds))), longest, value)
        report = await asyncio.to_thread(read_report, request.report)
        # A report of the future is as old as the clock was set back.
        age = FRESH_MS if report is None else abs(now_ms() - report.time)
        if report is None or age > FRESH_MS:
            self._start(request)
            if report is None or report.error is not None or age > STALE_MS:
                report = await self._wait(request)
        if report.error is not None:
            if report.field is not None:
                raise InvalidFieldError(
                    report.field, value if report.field == "value" else None, report.error
                )
            raise ConflictError("answer_log", None, report.error)
        assert report.outcomes is not None, "a report has outcomes or an error"
        return {
            "time": show_time(report.time),
            "age_seconds": max(0.0, (now_ms() - report.time) / 1000),
            "kinds": list(request.kinds),
            "within": within,
            "value": value,
            **report.outcomes,
        }

    async def close(self) -> None:
        """End the count under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _request(self, kinds: tuple[str, ...], within: int, value: str | None) -> CountRequest:
        place, store = self._settings.answer_log, self._settings.store
        if not place:
            raise ConflictError(
                "answer_log", None, "this service logs no answers; set TURRET_ANSWER_LOG to a folder"
            )
        if is_url(place):
            raise ConflictError(
                "answer_log",
                None,
                "the log of answers is in an object store; copy it into a folder for turret outcomes",
            )
        if not store_kind(store).is_lasting:
            raise ConflictError(
                "store",
                None,
                "events in memory are those of one process; set TURRET_STORE to sqlite or redis",
            )
        name = hashlib.blake2b(repr((kinds, within, value)).encode(), digest_size=16).hexdigest()
        return CountRequest(
            answers=Path(place),
            store=store,
            key=answer_key(self._settings).hex(),
            kinds=kinds,
            within=within,
            value=value,
            bundles=tuple(self._bundles()),
            report=self._folder / f"{name}.outcomes",
            fresh_ms=FRESH_MS,
        )

    def _start(self, request: CountRequest) -> None:
        """Begin to count, unless a count is under way."""
        if self._task is None or self._task.done():
            self._counted = request.report.name
            self._task = asyncio.create_task(self._run(request), name="outcomes")

    async def _run(self, request: CountRequest) -> None:
        self._failed = ""
        try:
            await self._count(request)
        except Exception as error:  # of a library, too: a question has to get an answer
            self._failed = str(error) or type(error).__name__

    async def _wait(self, request: CountRequest) -> CountReport:
        """Wait for the first report, or for one in place of a stale one."""
        if self._counted != request.report.name:
            raise BusyError("outcomes with other parameters are being counted; retry after Retry-After", 5.0)
        assert self._task is not None, "_start has begun it"
        await asyncio.wait([self._task], timeout=WAIT_SECONDS)
        report = await asyncio.to_thread(read_report, request.report)
        if report is not None and now_ms() - report.time <= STALE_MS:
            return report
        if self._task.done() and self._failed:
            raise ConflictError("answer_log", None, self._failed)
        raise BusyError("the outcomes are being counted; retry after Retry-After", 5.0)
