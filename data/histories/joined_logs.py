"""The events of prepared data and those of another log as one log, so that appending is preparing both."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from turret.data.errors import DataError
from turret.data.events.event_arrays import PIECE, Change, EventFiles, Events, stable_order
from turret.data.events.events import Log
from turret.data.events.ids import as_keys
from turret.data.events.read_events import IngestedEvents
from turret.data.prepared import PreparedData
from turret.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class JoinedEvents:
    """The events of prepared data (`labels` 0), then those of another log (`labels` 1).

    Of equal events (one user, item and time), as many of the other log are left out as the data has. Logs
    with positions for times have no equal events.
    """

    files: EventFiles
    has_positions: bool

    @property
    def columns(self) -> dict[str, DTypeLike]:
        """As of `UnsortedEvents`."""
        return {name: dtype for name, dtype in self.files.columns.items() if name != "labels"}

    def __len__(self) -> int:
        return len(self.files)

    def by_user(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, change: Change
    ) -> Iterator[Events]:
        """As of `UnsortedEvents`."""

        def new(events: Events) -> Events:
            events = events if self.has_positions else events.take(~_known(events))
            return change(replace(events, labels=None))

        yield from self.files.by_user(users, items, work, new)


def joined_logs(
    old: PreparedData, ingested: IngestedEvents, log: Log, work: Path
) -> tuple[IngestedEvents, Log]:
    """Join the events of `old` with those of another log; `work` is a folder for their files.

    Raises DataError where the two differ in the kind of their times, or in having weights.
    """
    kind = old.manifest.time.kind
    if log.time.kind != kind:
        raise DataError(
            f"the times of {old.folder} are of the kind {kind!r}, those of {log.path} {log.time.kind!r} "
            f"({log.time.note}); name the column with --time, or its unit with --time-unit"
        )
    if log.has_weights != old.manifest.has_weights:
        raise DataError(
            f"{old.folder} has {'' if old.manifest.has_weights else 'no '}weights, and {log.path} the "
            "opposite; name their column with --weight in both, or in neither"
        )
    users, user_rows = _united(old.users, ingested.users)
    items, item_rows = _united(old.item_ids, ingested.items)
    times = np.promote_types(old.times.dtype, np.dtype(log.columns()["times"]))
    columns: dict[str, DTypeLike] = {**log.columns(), "times": times, "labels": np.int8}
    # In the order of a file, all new events come last.
    later = len(old.event_items) if kind == "position" else 0
    assert isinstance(ingested.events, EventFiles)
    with EventFiles(work / "joined", columns) as files:
        for first in range(0, len(old.event_items), PIECE):
            files.write(_old_events(old, slice(first, first + PIECE)))
        for first in range(0, len(ingested.events), PIECE):
            last = min(first + PIECE, len(ingested.events))
            added = Events(**ingested.events.read(first, last)).renumbered(user_rows, item_rows)
            labels = np.ones(len(added), dtype=np.int8)
            files.write(replace(added, times=added.times + later, labels=labels))
    ingested.events.remove()
    joined = JoinedEvents(files, has_positions=kind == "position")
    return (
        replace(ingested, events=joined, users=users, items=items),
        replace(log, user_dtype=users.dtype, item_dtype=items.dtype, is_text=False),
    )


def _old_events(old: PreparedData, piece: slice) -> Events:
    items = np.asarray(old.event_items[piece])
    positions = np.arange(piece.start, piece.start + len(items))
    return Events(
        users=(np.searchsorted(old.offsets, positions, side="right") - 1).astype(np.int32),
        items=items,
        times=np.asarray(old.times[piece]),
        weights=None if old.weights is None else np.asarray(old.weights[piece]),
        labels=np.zeros(len(items), dtype=np.int8),
    )


def _united(before: Vocabulary, keys: pl.Series) -> tuple[pl.Series, NDArray[np.int32]]:
    """The ids of the data in the order of its rows, then the new ones; and the position of each of `keys`."""
    old = pl.Series("id", before.ids(range(len(before))))
    if before.kind == "integer" and keys.dtype == pl.String:
        integers = as_keys(keys, pl.Int64())
        keys = integers if len(integers) == len(keys) else keys
    dtype = pl.Int64() if before.kind == "integer" and keys.dtype == pl.Int64 else pl.String()
    old, new = (series.cast(dtype).rename("id") for series in (old, keys))
    every = pl.concat([old, new]).unique(maintain_order=True)
    numbered = every.to_frame().with_row_index("row")
    rows = new.to_frame().join(numbered, on="id", how="left", maintain_order="left")["row"]
    return every, rows.to_numpy().astype(np.int32)


def _known(events: Events) -> NDArray[np.bool_]:
    """Mask the events of the other log that the data has already, bool [E].

    Of n equal ones as many are known as the data has, up to n.
    """
    assert events.labels is not None
    order = stable_order([events.users, events.times, events.items, events.labels])
    is_added = events.labels[order] == 1
    keys = events.users[order], events.times[order], events.items[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.any([np.diff(key) != 0 for key in keys], axis=0)
    group = np.cumsum(is_first) - 1
    of_data = np.bincount(group, weights=~is_added).astype(np.int64)
    number = np.arange(len(order)) - np.flatnonzero(is_first)[group] - of_data[group]
    known = np.empty(len(order), dtype=np.bool_)
    known[order] = is_added & (number < of_data[group])
    return known
