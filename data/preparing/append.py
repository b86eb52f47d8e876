"""Append new events to prepared data: both are prepared as one log, whose old part is in arrays."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from turret.data.databases.results import query_results
from turret.data.errors import DataError
from turret.data.events.dropped_rows import NO_KIND, PrepareReport, describe_dropped
from turret.data.events.event_arrays import PIECE, EventFiles, Events
from turret.data.events.ids import as_keys
from turret.data.events.log import Log
from turret.data.events.sessions import NO_SESSION
from turret.data.histories.histories import Histories, build_histories, left_out_of, save_left_out
from turret.data.manifest import BadRows, DataManifest, Removed, hash_all
from turret.data.object_stores import Place, local_copies
from turret.data.prepared import LOOSE, PreparedData
from turret.data.preparing.append_settings import appended_columns, appended_settings
from turret.data.preparing.contexts import read_keys
from turret.data.preparing.prepare import (
    IngestedSource,
    complete,
    ingest_source,
    new_prepared_folder,
    one_writer,
)
from turret.data.progress import progress
from turret.data.ranges import stable_order
from turret.data.reading.open_source import open_source
from turret.data.reading.schema import PrepareConfig
from turret.data.vocabulary import Vocabulary

_NEW = np.int8(2)
"""The bit that marks the labels of rows of the new log; the lowest bit tells events from negatives."""


@dataclass(frozen=True)
class AppendReport:
    """The prepared data with the new events, and the numbers of events that were read and that were new.

    `known` events were in the data already, or `duplicates` leaves them out; `dropped` says how many other
    rows were dropped, and why. `lost` of the dropped rows were meant as events: they are bad rows, or have no
    kind.
    """

    prepared: PrepareReport
    read: int
    new: int
    known: int
    dropped: str
    lost: int

    def sentence(self) -> str:
        """Describe the result, for people."""
        counts = self.prepared.manifest.counts
        return (
            f"{self.new:,} of {self.read:,} events are new"
            + (f" ({self.known:,} were there already, or duplicates leaves them out)" if self.known else "")
            + (f"; dropped: {self.dropped}" if self.dropped else "")
            + f"; {self.prepared.folder} has {counts.events:,} events of {counts.users:,} users and "
            f"{counts.items:,} items"
        )


class _DeclinedError(Exception):
    """The data with the new events is not wanted."""


Accept = Callable[[PreparedData], bool]


def append(
    source: Place | None,
    target: Path,
    options: Mapping[str, object] | None = None,
    accept: Accept | None = None,
) -> AppendReport:
    """Add the events of `source`, and of the `source_files` of `options`, to the prepared data in `target`.

    `target` is replaced when all is written; the files are sources of one log. The result is that of
    preparing both logs in one, with the settings of the first preparation; `options` are settings by their
    dotted names that differ for `source`, such as the names of columns. Events that the data has already
    (with equal user, item, kind and time) are left out. `accept` sees the data with the new events; where it
    returns false, `target` stays as it is.

    The call waits while another command writes `target`. Raises DataError for data whose filters or split
    depend on rows that it doesn't hold, for labels and negatives, and as `prepare` does.
    """
    with one_writer(target):
        return _append(PreparedData.open(target), source, target, options or {}, accept)


def _append(
    old: PreparedData,
    source: Place | None,
    target: Path,
    options: Mapping[str, object],
    accept: Accept | None,
) -> AppendReport:
    overrides = {name: value for name, value in options.items() if value is not None}
    config = appended_settings(old, source, overrides)
    with (
        suppress(_DeclinedError),
        new_prepared_folder(target, overwrite=True) as folder,
        query_results(config, target) as (files, results),
        local_copies(files.urls, target) if files.urls else nullcontext(dict[Place, Path]()) as copies,
        progress("Appending", 3) as advance,
    ):
        with tempfile.TemporaryDirectory(dir=folder) as work:  # removed with the folder
            opened = open_source(files, Path(work), copies)
            opened = appended_columns(opened, old.manifest, overrides, config)
            ingested = ingest_source(config, opened, Path(work), is_continued=True)
            advance(1)
            count = len(ingested.events)
            histories = _histories_of_both(old, ingested, config, folder, Path(work))
            ingested = replace(ingested, context_keys=_context_keys(old, ingested))
            advance(1)
        report = complete(
            folder, target, config, ingested, histories, copies | results, hash_all(ingested.source.files)
        )
        manifest = _manifest(old.manifest, report.manifest)
        manifest.save(folder)
        advance(1)
        if accept is not None and not accept(PreparedData.open(folder)):
            raise _DeclinedError
    new = _size(manifest) - _size(old.manifest)
    lost = sum(bad.count for bad in ingested.bad_events) + sum(record.events for record in ingested.removed)
    bad_rows, removed = ingested.bad_rows, ingested.removed
    dropped = describe_dropped(bad_rows, removed) if bad_rows or removed else ""
    unfiltered = [bad.count for bad in ingested.bad_events]
    unfiltered += [record.events for record in removed if record.filter == NO_KIND]
    return AppendReport(
        replace(report, manifest=manifest), count + lost, new, count - new, dropped, sum(unfiltered)
    )


def _histories_of_both(
    old: PreparedData, ingested: IngestedSource, config: PrepareConfig, folder: Path, work: Path
) -> Histories:
    """Write the histories of the rows of `old` and of another log, without events that `old` already has."""
    log, events, users, items, left_out = _join(old, ingested, work)
    count = len(events)

    def without_known(rows: Events) -> Events:
        # Logs with positions for times have no equal events.
        rows = rows if log.time.kind == "position" else rows.take(~_known(rows))
        assert rows.labels is not None
        return replace(rows, labels=rows.labels & 1 if log.has_labels else None)

    histories = build_histories(log, events, users, items, config.filters, folder, work, change=without_known)
    removed = [record for record in histories.removed if not record.filter.startswith("duplicates")]
    known = count - len(histories) - (histories.negatives or 0) - sum(record.events for record in removed)
    removed.append(Removed(filter=f"max_user_events = {config.filters.max_user_events}", events=left_out))
    removed.append(Removed(filter="events that the data had already", events=known))
    save_left_out(folder, [*left_out_of(old.folder), *left_out_of(folder)])
    return replace(histories, removed=tuple(record for record in removed if record.events))


def _size(manifest: DataManifest) -> int:
    return manifest.counts.events + (manifest.negatives or 0)


def _manifest(old: DataManifest, new: DataManifest) -> DataManifest:
    """Return the manifest of both logs together; columns and settings are those of the first log."""
    counts, removed, bad = Counter[str](), Counter[str](), dict[str, BadRows]()
    for rows in (*old.bad_rows, *new.bad_rows):
        counts[rows.kind] += rows.count
        bad.setdefault(rows.kind, rows)
    # Negatives are placed anew.
    before = [record for record in old.removed if not record.filter.startswith("negatives")]
    for record in (*before, *new.removed):
        removed[record.filter] += record.events
    changed = ("items", "users", "answers", "items_sql", "users_sql", "filters")
    settings = old.settings | {name: new.settings[name] for name in changed}
    return new.model_copy(
        update={
            "columns": old.columns,
            "settings": settings,
            "sources": old.sources | new.sources,
            "bad_rows": [rows.model_copy(update={"count": counts[kind]}) for kind, rows in bad.items()],
            "removed": [Removed(filter=name, events=count) for name, count in removed.items()],
        }
    )


def _join(
    old: PreparedData, ingested: IngestedSource, work: Path
) -> tuple[Log, EventFiles, pl.Series, pl.Series, int]:
    """Join the rows of `old` and of another log, whose labels get `_NEW`, in files in the folder `work`.

    Returns the joined log, its events, the ids of its users and of its items, and the number of rows of users
    whom `old` leaves out. Raises DataError where the two logs differ in the kind of their times, or in having
    weights.
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
    times = np.promote_types(old.times.dtype, np.dtype(log.columns["times"]))
    columns: dict[str, DTypeLike] = {**log.columns, "times": times, "labels": np.int8}
    columns.pop("sessions", None)
    columns |= {} if old.sessions is None else {"sessions": np.int64}
    contexts = _rows_in(_context_keys(old, ingested), ingested.context_keys)
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
            if added.contexts is not None:
                added = replace(added, contexts=contexts[added.contexts])
            labels = np.ones(len(added), dtype=np.int8) if added.labels is None else added.labels
            sessions = _sessions(added) if old.sessions is not None else None
            files.write(replace(added, times=added.times + later, labels=labels | _NEW, sessions=sessions))
            left_out += last - first - len(added)
    shutil.rmtree(events.folder)
    log = replace(log, numeric={"user": False, "item": False})
    return log, files, users, items, left_out


def _old_rows(old: PreparedData) -> Iterator[Events]:
    """Yield the rows of prepared data: each negative before its event, negatives without an event last."""
    pieces = (
        _old_events(old, slice(start, start + PIECE)) for start in range(0, len(old.event_items), PIECE)
    )
    negatives, folder = old.negatives, old.folder / LOOSE
    if negatives is None:
        yield from pieces
        return
    assert negatives.times is not None
    assert negatives.kinds is not None
    start = 0
    for events in pieces:
        offsets = negatives.offsets[start : start + len(events) + 1]
        owners, piece = np.repeat(np.arange(len(events)), np.diff(offsets)), slice(offsets[0], offsets[-1])
        weights = None if negatives.weights is None else negatives.weights[piece]
        attached = _negatives(
            events.users[owners],
            negatives.items[piece],
            negatives.times[piece],
            negatives.kinds[piece],
            weights,
        )
        if old.sessions is not None:
            attached = replace(attached, sessions=_sessions(attached))
        if old.places is not None:
            attached = _without_answers(attached)
        if old.contexts is not None:  # no negative is a target, so its context is never read
            attached = replace(attached, contexts=np.zeros(len(attached), dtype=np.int32))
        rows = {
            name: np.concatenate([getattr(attached, name), values])
            for name, values in vars(events).items()
            if values is not None
        }
        order = np.argsort(np.concatenate([2 * owners, 2 * np.arange(len(events)) + 1]), kind="stable")
        yield Events(**rows).take(order)
        start += len(events)
    loose = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    rest = _negatives(**loose)
    rest = rest if old.places is None else _without_answers(rest)
    rest = rest if old.sessions is None else replace(rest, sessions=_sessions(rest))
    yield rest if old.contexts is None else replace(rest, contexts=np.zeros(len(rest), dtype=np.int32))


def _negatives(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    times: NDArray[Any],
    kinds: NDArray[np.int8],
    weights: NDArray[np.float32] | None = None,
) -> Events:
    return Events(users, items, times, weights, labels=np.zeros(len(items), dtype=np.int8), kinds=kinds)


def _without_answers(events: Events) -> Events:
    """Return events that no answer led to, with the columns of those that name answers."""
    size = len(events)
    return replace(events, places=np.zeros(size, np.uint16), propensities=np.full(size, np.nan, np.float32))


def _sessions(events: Events) -> NDArray[np.int64]:
    """Return the sessions of events, [E], where all are rows of no session if the log names none."""
    none = np.full(len(events), NO_SESSION, dtype=np.int64)
    return none if events.sessions is None else events.sessions.astype(np.int64)


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
        sessions=None if old.sessions is None else np.asarray(old.sessions[piece]),
        places=None if old.places is None else np.asarray(old.places[piece]),
        propensities=None if old.propensities is None else np.asarray(old.propensities[piece]),
        contexts=None if old.contexts is None else np.asarray(old.contexts[piece]),
    )


def _united(before: Vocabulary, keys: pl.Series) -> tuple[pl.Series, NDArray[np.int32]]:
    """Return the ids of the data in the order of its rows, then new ids; and the positions of `keys`."""
    old = pl.Series("id", before.all_ids)
    if before.kind == "integer" and keys.dtype == pl.String:
        integers = as_keys(keys, pl.Int64())
        keys = integers if len(integers) == len(keys) else keys
    dtype = pl.Int64() if before.kind == "integer" and keys.dtype == pl.Int64 else pl.String()
    old, new = (series.cast(dtype).rename("id") for series in (old, keys))
    every = pl.concat([old, new]).unique(maintain_order=True)
    return every, _rows_in(every, new)


def _rows_in(every: pl.Series, keys: pl.Series) -> NDArray[np.int32]:
    """Return the positions of `keys` among the distinct keys `every`."""
    numbered = every.rename("id").to_frame().with_row_index("row")
    rows = keys.rename("id").to_frame().join(numbered, on="id", how="left", maintain_order="left")["row"]
    return rows.to_numpy().astype(np.int32)


def _context_keys(old: PreparedData, ingested: IngestedSource) -> pl.Series:
    """Return the contexts of the data in the order of its rows, then the new ones of the other log."""
    keys = ingested.context_keys
    return (
        keys if old.contexts is None else pl.concat([read_keys(old.folder), keys]).unique(maintain_order=True)
    )


def _known(events: Events) -> NDArray[np.bool_]:
    """Mask the events of the other log that the data has already, bool [E].

    Where n new events are equal, as many of them are known as the data has, up to n.
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
