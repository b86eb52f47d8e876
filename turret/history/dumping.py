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
from turret.data.vocabulary import is_canonical_integer
from turret.service.errors import ServiceError
from turret.service.schemas.fields import show_time
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores

PART_EVENTS = 500_000  # events in memory at a time
_SCHEMA = {
    "user_id": pl.String(),
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


@dataclass(frozen=True)
class DumpReport:
    """The dumped events, counted, and the times of the oldest and the newest."""

    events: int
    users: int
    first: int
    last: int
    until: int

    def sentence(self, path: Path) -> str:
        """Describe the dump, for people."""
        return (
            f"{self.events:,} events of {self.users:,} users, {_text(self.first)} to {_text(self.last)}, are "
            f"in {path}; the next dump goes on with --since {_text(self.until)}"
        )


def dump_histories(settings: Settings, times: TimeRange, target: Path) -> DumpReport:
    """Write the stored events of a range of times to the Parquet file `target`, atomically.

    Memory holds a portion of the events; parts of the file lie beside it until it is complete. User and item
    ids are integers if all of them print as integers, as they do in a log read from CSV.

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
        dump = _Dump(parts)
        asyncio.run(_scan(settings, times, dump, advance))
        if not dump.events:
            raise EmptyRangeError(
                f"{settings.store} holds no events from {_text(times.first)} to {_text(times.last)}, "
                "so nothing is written; name the store of the service with --store, or an earlier --since"
            )
        dump.join(fresh)
    return DumpReport(dump.events, dump.users, dump.first, dump.last, times.last)


async def _scan(settings: Settings, times: TimeRange, dump: "_Dump", advance: Callable[[int], None]) -> None:
    stores = open_stores(settings)
    try:
        async for events in stores.histories.scan(times.first, times.last):
            dump.add(events)
            advance(len(events))
    finally:
        await stores.close()
    dump.write_part()


def _milliseconds(option: str, text: str) -> int:
    moment = parse_moment(text)
    if moment is None:
        raise ConfigurationError(f"--{option} {text!r} is no date or time; {FORMS}")
    return math.ceil(moment)


def _text(milliseconds: int) -> str:
    if milliseconds == _EARLIEST:
        return "the beginning"
    return show_time(milliseconds)


class _Dump:
    """Parts of the file in a folder, and what is known of all events."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[Event] = []
        self._parts: list[Path] = []
        self._last_user: str | None = None
        self._are_integers = {"user_id": True, "item_id": True}
        self.events = self.users = 0
        self.first, self.last = 2**63 - 1, -(2**63)

    def add(self, events: Sequence[Event]) -> None:
        """Add the next events of a scan; full parts are written."""
        self._waiting += events
        if len(self._waiting) >= PART_EVENTS:
            self.write_part()

    def write_part(self) -> None:
        """Write the events that are not written yet."""
        if not self._waiting:
            return
        event_ids, users, items, times, kinds = zip(*self._waiting, strict=True)
        columns = (users, map(str, items), times, kinds, event_ids)
        frame = pl.DataFrame(dict(zip(_SCHEMA, map(list, columns), strict=True)), schema=_SCHEMA)
        self._waiting = []
        self._count(frame)
        self._parts.append(self._folder / f"part-{len(self._parts):05}.parquet")
        frame.write_parquet(self._parts[-1])

    def join(self, path: Path) -> None:
        """Write all parts as one file."""
        columns = [
            pl.col(name).cast(pl.Int64) for name, is_integer in self._are_integers.items() if is_integer
        ]
        times = pl.col("timestamp").cast(pl.Datetime("ms", "UTC"))
        pl.scan_parquet(self._parts).with_columns(*columns, times).sink_parquet(path)

    def _count(self, frame: pl.DataFrame) -> None:
        """Count users, of whom one may go on from part to part, and look at times and ids."""
        runs = frame["user_id"].rle().struct.field("value")
        self.users += len(runs) - (runs[0] == self._last_user)
        self._last_user = runs[-1]
        self.events += frame.height
        self.first = min(self.first, *frame.select(pl.min("timestamp")).row(0))
        self.last = max(self.last, *frame.select(pl.max("timestamp")).row(0))
        for name in self._are_integers:
            self._are_integers[name] &= all(map(is_canonical_integer, frame[name].unique()))
