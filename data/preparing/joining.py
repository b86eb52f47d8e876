"""Prepared data and the events of another log, joined as the rows of one log."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from turret.data.errors import DataError
from turret.data.events.event_arrays import PIECE, EventFiles, Events, stable_order
from turret.data.events.events import Log
from turret.data.events.ids import as_keys
from turret.data.files import open_array
from turret.data.histories.accounts import left_out_of
from turret.data.histories.negatives import LOOSE
from turret.data.kinds import NEGATIVE
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import IngestedSource
from turret.data.vocabulary import Vocabulary

_NEW = np.int8(2)
"""The bit of a label of rows of the new log; the lowest bit tells events from negatives."""

Joined = tuple[Log, EventFiles, pl.Series, pl.Series]


def join(old: PreparedData, ingested: IngestedSource, work: Path) -> tuple[Joined, int]:
    """Join the rows of `old` with those of another log in files in `work`; these have `_NEW` in their labels.

    Returns the log that both are, its events, and the ids of its users and items; and the number of rows of
    users whom `old` leaves out. Raises DataError where the two differ in the kind of their times, or in
    having weights.
    """
    log, events, kind = ingested.log, ingested.events, old.manifest.time.kind
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
    users, user_rows = _united(old.users, ingested.user_ids)
    items, item_rows = _united(old.item_ids, ingested.item_ids)
    times = np.promote_types(old.times.dtype, np.dtype(log.columns()["times"]))
    columns: dict[str, DTypeLike] = {**log.columns(), "times": times, "labels": np.int8}
    # In the order of a file, all new events come last.
    later = len(old.event_items) if kind == "position" else 0
    assert isinstance(events, EventFiles)
    is_kept, left_out = ~ingested.user_ids.cast(pl.String).is_in(left_out_of(old.folder)).to_numpy(), 0
    with EventFiles(work / "joined", columns) as files:
        for rows in _old_rows(old):
            files.write(rows)
        for first in range(0, len(events), PIECE):
            last = min(first + PIECE, len(events))
            added = Events(**events.read(first, last))
            added = added.take(is_kept[added.users]).renumbered(user_rows, item_rows)
            labels = np.ones(len(added), dtype=np.int8) if added.labels is None else added.labels
            files.write(replace(added, times=added.times + later, labels=labels | _NEW))
            left_out += last - first - len(added)
    events.remove()
    log = replace(log, user_dtype=users.dtype, item_dtype=items.dtype, is_text=False)
    return (log, files, users, items), left_out


def _old_rows(old: PreparedData) -> Iterator[Events]:
    """Yield the rows of prepared data, each negative before its event, and those that belong to none last."""
    pieces = (
        _old_events(old, slice(start, start + PIECE)) for start in range(0, len(old.event_items), PIECE)
    )
    negatives, folder = old.negatives, old.folder / LOOSE
    if negatives is None:
        yield from pieces
        return
    times, start = open_array(old.folder / "negative_times.npy", "int64", "float64"), 0
    for events in pieces:
        offsets = negatives.offsets[start : start + len(events) + 1]
        owners, piece = np.repeat(np.arange(len(events)), np.diff(offsets)), slice(offsets[0], offsets[-1])
        weights = None if negatives.weights is None else negatives.weights[piece]
        given = _negatives(events.users[owners], negatives.items[piece], times[piece], weights)
        rows = {
            name: np.concatenate([getattr(given, name), values])
            for name, values in vars(events).items()
            if values is not None
        }
        order = np.argsort(np.concatenate([2 * owners, 2 * np.arange(len(events)) + 1]), kind="stable")
        yield Events(**rows).take(order)
        start += len(events)
    loose = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    yield _negatives(loose["users"], loose["items"], loose["times"], loose.get("weights"))


def _negatives(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    times: NDArray[Any],
    weights: NDArray[np.float32] | None,
) -> Events:
    none = np.zeros(len(items), dtype=np.int8)
    return Events(users, items, times, weights, labels=none, kinds=none + np.int8(NEGATIVE))


def _old_events(old: PreparedData, piece: slice) -> Events:
    items = np.asarray(old.event_items[piece])
    positions = np.arange(piece.start, piece.start + len(items))
    return Events(
        users=(np.searchsorted(old.offsets, positions, side="right") - 1).astype(np.int32),
        items=items,
        times=np.asarray(old.times[piece]),
        weights=None if old.weights is None else np.asarray(old.weights[piece]),
        kinds=None if old.kinds is None else np.asarray(old.kinds[piece]),
        labels=np.ones(len(items), dtype=np.int8),
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


def without_known(events: Events, is_timed: bool, has_labels: bool) -> Events:
    """Leave out the rows that the data has already, and restore the labels."""
    events = events.take(~_known(events)) if is_timed else events
    assert events.labels is not None
    return replace(events, labels=events.labels & 1 if has_labels else None)


def _known(events: Events) -> NDArray[np.bool_]:
    """Mask the events of the other log that the data has already, bool [E].

    Of n equal ones as many are known as the data has, up to n.
    """
    assert events.labels is not None
    columns = [events.users, events.times, events.items, *([] if events.kinds is None else [events.kinds])]
    order = stable_order([*columns, events.labels])
    is_added = events.labels[order] & _NEW > 0
    keys = [column[order] for column in columns]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.any([np.diff(key) != 0 for key in keys], axis=0)
    group = np.cumsum(is_first) - 1
    of_data = np.bincount(group, weights=~is_added).astype(np.int64)
    number = np.arange(len(order)) - np.flatnonzero(is_first)[group] - of_data[group]
    known = np.empty(len(order), dtype=np.bool_)
    known[order] = is_added & (number < of_data[group])
    return known
