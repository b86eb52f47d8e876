"""Writes stored events to a Parquet file that `turret data prepare` reads without options."""

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from turret.data.errors import ConfigurationError
from turret.data.files import new_file, temporary_folder
from turret.data.moments import FORMS, parse_moment
from turret.data.progress import progress
from turret.data.vocabulary import STRANGER, is_canonical_integer
from turret.service.errors import ServiceError
from turret.service.schemas.fields import show_time
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores

PART_EVENTS = 500_000  # events in memory at a time
_SCHEMA = {
    "user_id": pl.String(),
    "session_id": pl.String(),
    "item_id": pl.String(),
    "timestamp": pl.Int64(),
    "kind": pl.String(),
    "event_id": pl.String(),
}
_EARLIEST = -(2**53)  # a score of Redis holds integers of 53 bits


class EmptyRangeError(ServiceError):
    """The store holds no event of the range of times."""


@dataclass(frozen=True)
class TimeRange:
    """The times from `first` to before `last`, in milliseconds since 1970."""

    first: int
    last: int

    @classmethod
    def of(cls, since: str | None, until: str | None) -> "TimeRange":
        """Read a range from texts; without `since` it has no beginning, without `until` it ends now.

        Raises DataError for a text that is no time, and for a range without times.
        """
        first = _EARLIEST if since is None else _milliseconds("since", since)
        last = time.time_ns() // 1_000_000 if until is None else _milliseconds("until", until)
        if first >= last:
            raise ConfigurationError(
                f"--since {_text(first)} is not before --until {_text(last)}; give an earlier --since"
            )
        return cls(first, last)


@dataclass
class DumpReport:
    """The counts of dumped events and their users, the first and the last time, and the end of the range.

    `sessions` of the users are strangers' sessions.
    """

    until: int
    events: int = 0
    users: int = 0
    sessions: int = 0
    first: int = 2**63 - 1
    last: int = -(2**63)

    def sentence(self, path: Path) -> str:
        """Describe the dump, for people."""
        sessions = f"; {self.sessions:,} of the users are sessions (--session session_id)"
        return (
            f"{self.events:,} events of {self.users:,} users, {_text(self.first)} to {_text(self.last)}, are "
            f"in {path}{sessions if self.sessions else ''}; the next dump goes on with --since "
            f"{_text(self.until)}"
        )


def dump_histories(settings: Settings, times: TimeRange, target: Path) -> DumpReport:
    """Write the stored events of a range of times to the Parquet file `target`, atomically.

    Memory holds a portion of the events; parts of the file lie beside it until it is complete. User and item
    ids are integers if all of them print as integers, as they do in a log read from CSV. Events of a session
    have its id in a column of its own and no user; without any, the file has no such column.

    Raises EmptyRangeError when the store has no such events, ServiceError when it is unavailable, OSError
    when the file can't be written.
    """
    if target.suffix != ".parquet":
        raise ConfigurationError(
            f"--to {target}: the dump is a Parquet file; give it a name like events.parquet"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    parts = target.with_name(f".{target.name}.{uuid.uuid4().hex}.new")
    with new_file(target, 0o600) as fresh, temporary_folder(parts), progress("Dumping") as advance:
        parts.chmod(0o700)  # events are personal data
        dump = _Dump(parts, DumpReport(times.last))
        asyncio.run(dump.scan(settings, times, advance))
        if not dump.report.events:
            raise EmptyRangeError(
                f"{settings.store} holds no events from {_text(times.first)} to {_text(times.last)}, "
                "so nothing is written; name the store of the service with --store, or an earlier --since"
            )
        dump.join(fresh)
    return dump.report


class _Dump:
    """Parts of the file in a folder, and the report of all their events."""

    def __init__(self, folder: Path, report: DumpReport) -> None:
        self._folder, self.report = folder, report
        self._parts: list[Path] = []
        self._last_user: str | None = None
        self._are_integers = {"user_id": True, "item_id": True}

    async def scan(self, settings: Settings, times: TimeRange, advance: Callable[[int], None]) -> None:
        """Write the events of a range of times in parts."""
        stores, waiting = open_stores(settings), list[Event]()
        try:
            async for events in stores.histories.scan(times.first, times.last):
                waiting += events
                if len(waiting) >= PART_EVENTS:
                    self._write(waiting)
                    waiting = []
                advance(len(events))
        finally:
            await stores.close()
        if waiting:
            self._write(waiting)

    def join(self, path: Path) -> None:
        """Write all parts as one file."""
        integers = [pl.col(name).cast(pl.Int64) for name, are in self._are_integers.items() if are]
        times = pl.col("timestamp").cast(pl.Datetime("ms", "UTC"))
        events = pl.scan_parquet(self._parts).with_columns(*integers, times)
        (events if self.report.sessions else events.drop("session_id")).sink_parquet(path)

    def _write(self, events: Sequence[Event]) -> None:
        """Write a part and count it; the events of a user may go on from part to part."""
        event_ids, users, items, times, kinds = zip(*events, strict=True)
        columns = (users, users, map(str, items), times, kinds, event_ids)
        frame = pl.DataFrame(dict(zip(_SCHEMA, map(list, columns), strict=True)), schema=_SCHEMA)
        runs, is_stranger = (
            frame["user_id"].rle().struct.field("value"),
            pl.col("user_id").str.starts_with(STRANGER),
        )
        frame = frame.with_columns(
            pl.when(~is_stranger).then("user_id"),
            pl.when(is_stranger).then(pl.col("session_id").str.strip_prefix(STRANGER)),
        )
        self._parts.append(self._folder / f"part-{len(self._parts):05}.parquet")
        frame.write_parquet(self._parts[-1])
        report, new = self.report, runs[int(runs[0] == self._last_user) :]
        report.events += frame.height
        report.users += len(new)
        report.sessions += len(new.filter(new.str.starts_with(STRANGER)))
        report.first, report.last = min(report.first, *times), max(report.last, *times)
        self._last_user = runs[-1]
        for name in self._are_integers:
            self._are_integers[name] &= all(map(is_canonical_integer, frame[name].drop_nulls().unique()))


def _milliseconds(option: str, text: str) -> int:
    moment = parse_moment(text)
    if moment is None:
        raise ConfigurationError(f"--{option} {text!r} is no date or time; {FORMS}")
    return math.ceil(moment)


def _text(milliseconds: int) -> str:
    return "the beginning" if milliseconds == _EARLIEST else show_time(milliseconds)
