"""Writes stored events to a Parquet file that `turret data prepare` reads without options."""

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable
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
    "answer_id": pl.String(),
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

    `sessions` is the number of users that are strangers' sessions, `answered` that of the events that name an
    answer.
    """

    until: int
    events: int = 0
    users: int = 0
    sessions: int = 0
    answered: int = 0
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
    have its id in a separate column and no user id, and `answer_id` names the answers of events; without such
    events, the file has no such column.

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
        report = DumpReport(times.last)
        integers = asyncio.run(_write_parts(settings, times, parts, report, advance))
        if not report.events:
            raise EmptyRangeError(
                f"{settings.store} holds no events from {_text(times.first)} to {_text(times.last)}, "
                "so nothing is written; name the store of the service with --store, or an earlier --since"
            )
        events = pl.scan_parquet(sorted(parts.iterdir()), glob=False).with_columns(
            pl.col(integers).cast(pl.Int64), pl.col("timestamp").cast(pl.Datetime("ms", "UTC"))
        )
        empty = {"session_id": not report.sessions, "answer_id": not report.answered}
        events.drop(name for name, is_empty in empty.items() if is_empty).sink_parquet(fresh)
    return report


async def _write_parts(
    settings: Settings, times: TimeRange, folder: Path, report: DumpReport, advance: Callable[[int], None]
) -> list[str]:
    """Write the events in parts and count them; return the columns whose ids all print as integers."""
    last_user, integers = None, ["user_id", "item_id"]
    async for events in _portions(settings, times, advance):
        event_ids, users, items, moments, kinds, answers = zip(*events, strict=True)
        columns = (users, users, map(str, items), moments, kinds, event_ids, answers)
        frame = pl.DataFrame(dict(zip(_SCHEMA, map(list, columns), strict=True)), schema=_SCHEMA)
        runs = frame["user_id"].rle().struct.field("value")
        new = runs[int(runs[0] == last_user) :]  # the events of a user may go on from part to part
        last_user = runs[-1]
        is_stranger = pl.col("user_id").str.starts_with(STRANGER)
        frame = frame.with_columns(
            pl.when(~is_stranger).then("user_id"),
            pl.when(is_stranger).then(pl.col("session_id").str.strip_prefix(STRANGER)),
        )
        frame.write_parquet(folder / f"{report.events:020}.parquet")
        report.events += frame.height
        report.answered += frame["answer_id"].count()
        report.users += len(new)
        report.sessions += len(new.filter(new.str.starts_with(STRANGER)))
        report.first, report.last = min(report.first, *moments), max(report.last, *moments)
        integers = [
            name for name in integers if all(map(is_canonical_integer, frame[name].drop_nulls().unique()))
        ]
    return integers


async def _portions(
    settings: Settings, times: TimeRange, advance: Callable[[int], None]
) -> AsyncIterator[list[Event]]:
    """Yield the stored events of a range of times, about PART_EVENTS at a time."""
    stores, waiting = open_stores(settings), list[Event]()
    try:
        async for events in stores.histories.scan(times.first, times.last):
            waiting += events
            if len(waiting) >= PART_EVENTS:
                yield waiting
                waiting = []
            advance(len(events))
        if waiting:
            yield waiting
    finally:
        await stores.close()


def _milliseconds(option: str, text: str) -> int:
    moment = parse_moment(text)
    if moment is None:
        raise ConfigurationError(f"--{option} {text!r} is no date or time; {FORMS}")
    return math.ceil(moment)


def _text(milliseconds: int) -> str:
    return "the beginning" if milliseconds == _EARLIEST else show_time(milliseconds)
