"""Histories of prepared data with the events of another log."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.events.events import Log
from turret.data.events.ids import as_keys
from turret.data.events.read_events import IngestedEvents
from turret.data.histories.build_histories import BuiltHistories
from turret.data.histories.histories import Histories, write_histories
from turret.data.histories.merging import SortedLog, merged_blocks
from turret.data.manifest import Removed
from turret.data.prepared import PreparedData
from turret.data.reading.schema import Duplicates
from turret.data.vocabulary import Vocabulary

Rows = NDArray[np.int32]


def grow_histories(
    old: PreparedData,
    ingested: IngestedEvents,
    log: Log,
    duplicates: Duplicates,
    folder: Path,
    work: Path,
) -> BuiltHistories:
    """Write the histories of `old` with the events of another log into `folder`.

    `work` is a folder for temporary files. Raises DataError where the two logs differ in the kind of their
    times, in having weights, or in user ids whose order changes.
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
    users, old_users, new_users = _united(old.users, ingested.users)
    items, old_items, new_items = _united(old.item_ids, ingested.items)
    if (np.diff(old_users) < 0).any():
        raise DataError(
            f"the user ids of {old.folder} are integers, and {log.path} has others, which sorts all users "
            "anew; prepare the whole log again"
        )
    # The new users alone, in the order of their merged rows.
    own = np.argsort(np.argsort(new_users)).astype(np.int32)
    blocks = ingested.events.by_user(own, new_items, work, lambda events: events)
    columns = {name: dtype for name, dtype in log.columns().items() if name != "users"}
    added = write_histories(blocks, work / "added", columns, has_positions=False)
    times = np.promote_types(old.times.dtype, np.dtype(columns["times"]))
    logs = (_old_log(old, old_users, old_items), _new_log(added, np.sort(new_users), len(items)))
    before, after = (replace(one, times=one.times.astype(times, copy=False)) for one in logs)
    has_positions = kind == "position"
    merged = merged_blocks(before, after, len(users), duplicates, has_positions)
    histories = write_histories(merged, folder, {**columns, "times": times}, has_positions)
    known = len(old.event_items) + len(added) - len(histories)
    removed = [Removed(filter="events that the data had already", events=known)] if known else []
    return BuiltHistories(histories, users, items, removed)


def _old_log(old: PreparedData, users: Rows, items: Rows) -> SortedLog:
    return SortedLog(old.offsets, old.event_items, old.times, old.weights, users, items)


def _new_log(added: Histories, users: Rows, item_count: int) -> SortedLog:
    arrays = {
        name: np.load(added.files.folder / f"{name}.npy", mmap_mode="r") for name in added.files.columns
    }
    every_item = np.arange(item_count, dtype=np.int32)  # its items have merged rows already
    return SortedLog(
        added.offsets, arrays["items"], arrays["times"], arrays.get("weights"), users, every_item
    )


def _united(before: Vocabulary, keys: pl.Series) -> tuple[Vocabulary, Rows, Rows]:
    """Return the sorted vocabulary of both, and in it the rows of the old ids and of the new keys."""
    old = pl.Series("id", before.ids(range(len(before))))
    if before.kind == "integer" and keys.dtype == pl.String:
        integers = as_keys(keys, pl.Int64())
        keys = integers if len(integers) == len(keys) else keys
    dtype = pl.Int64() if before.kind == "integer" and keys.dtype == pl.Int64 else pl.String()
    old, new = (series.cast(dtype).rename("id") for series in (old, keys))
    every = pl.concat([old, new]).unique().sort()
    rows = every.to_frame().with_row_index("row")
    found = [
        series.to_frame().join(rows, on="id", how="left", maintain_order="left")["row"]
        for series in (old, new)
    ]
    of_old, of_new = (row.to_numpy().astype(np.int32) for row in found)
    return Vocabulary(every.to_list()), of_old, of_new
