"""Append new events to prepared data: both are prepared as one log, of which the old part is arrays."""

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from turret.data.configuration import override
from turret.data.errors import ConfigurationError
from turret.data.events.dropped_rows import PrepareReport, describe_dropped
from turret.data.histories.accounts import left_out_of, save_left_out
from turret.data.histories.histories import build_histories
from turret.data.manifest import BadRows, Manifest, Removed
from turret.data.prepared import PreparedData
from turret.data.preparing.joining import join, without_known
from turret.data.preparing.prepare import (
    complete,
    ingest_source,
    new_prepared_folder,
    one_writer,
    shared_columns,
)
from turret.data.progress import progress
from turret.data.reading.open_source import entity_files
from turret.data.reading.schema import ColumnSettings, PrepareConfig
from turret.data.reading.tables import Source
from turret.data.stores import Place, local_copies


@dataclass(frozen=True)
class AppendReport:
    """The prepared data with the new events, and how many of the rows of events read were new.

    `known` events were in the data already, or `duplicates` leaves them out; `dropped` says how many other
    rows were dropped, and why.
    """

    prepared: PrepareReport
    read: int
    new: int
    known: int
    dropped: str

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


def append(source: Place, target: Path, options: Mapping[str, object] | None = None) -> AppendReport:
    """Add the events of `source` to the prepared data in `target`, which is replaced when all is written.

    The result is that of preparing both logs in one, with the settings of the first preparation; `options`
    are settings by their dotted names that differ for `source`, such as the names of columns. Events that the
    data has already (with equal user, item, kind and time) are left out.

    Another command that writes `target` is waited for. Raises DataError for data whose filters or split
    depend on rows that it doesn't hold, for labels and negatives, and as `prepare` does.
    """
    with one_writer(target):
        return _append(PreparedData.open(target), source, target, options or {})


def _append(old: PreparedData, source: Place, target: Path, options: Mapping[str, object]) -> AppendReport:
    with (
        local_copies(target) as copies,
        new_prepared_folder(target, overwrite=True) as folder,
        progress("Appending", 3) as advance,
    ):
        given = {name: value for name, value in options.items() if value is not None}
        config = _configuration(old, source, given)
        with tempfile.TemporaryDirectory(dir=folder) as work:  # removed with the folder
            ingested = ingest_source(
                config, Path(work), copies, continued=partial(_columns, old.manifest, given, config)
            )
            advance(1)
            count = len(ingested.events)
            joined, left_out = join(old, ingested, Path(work))
            rows = len(joined[1])
            # Logs with positions for times have no equal events.
            is_timed, has_labels = ingested.log.time.kind != "position", ingested.log.has_labels
            change = partial(without_known, is_timed=is_timed, has_labels=has_labels)
            histories = build_histories(*joined, config.filters, folder, Path(work), change=change)
            removed = [one for one in histories.removed if not one.filter.startswith("duplicates")]
            known = rows - len(histories) - (histories.negatives or 0) - sum(one.events for one in removed)
            most = f"max_user_events = {config.filters.max_user_events}"
            removed.append(Removed(filter=most, events=left_out))
            removed.append(Removed(filter="events that the data had already", events=known))
            histories = replace(histories, removed=tuple(one for one in removed if one.events))
            save_left_out(folder, [*left_out_of(old.folder), *left_out_of(folder)])
            advance(1)
        report = complete(folder, target, config, ingested, histories, copies)
        manifest = _manifest(old.manifest, report.manifest)
        manifest.save(folder)
        advance(1)
    new = _size(manifest) - _size(old.manifest)
    lost = sum(bad.count for bad in ingested.bad_events) + sum(one.events for one in ingested.removed)
    bad_rows, removed = ingested.bad_rows, ingested.removed
    dropped = describe_dropped(bad_rows, removed) if bad_rows or removed else ""
    return AppendReport(replace(report, manifest=manifest), count + lost, new, count - new, dropped)


def _size(manifest: Manifest) -> int:
    return manifest.counts.events + (manifest.negatives or 0)


def _configuration(old: PreparedData, source: Place, given: Mapping[str, object]) -> PrepareConfig:
    """Return the settings of the first preparation for the new source, without names of columns.

    Raises ConfigurationError where features need a file of items or users that is not there, and for data to
    which no events can be appended without reading its log.
    """
    settings = old.manifest.settings
    before = PrepareConfig.model_validate(settings)
    _refuse(old, before, given)
    moved = {**settings, "source": source, "columns": before.columns.model_dump()}
    items = ("items", bool(old.fields or old.manifest.item_features))
    for (name, are_read), first in zip(
        (items, ("users", bool(old.manifest.user_features))), entity_files(before), strict=True
    ):
        if name not in given and isinstance(first, Path) and not first.exists():
            raise ConfigurationError(
                f"the {name} of {old.folder} were read from {first}, which is gone; "
                f"name their file with --{name}"
            )
        moved[name] = given.get(name, first)
        if are_read and moved[name] is None:
            raise ConfigurationError(
                f"the {name} of {old.folder} have features or fields; name their file with --{name}"
            )
    for role in ("user", "item", "time", "weight", "quantity", "kind"):  # `_columns` finds all by name
        moved["columns"][role] = None
    return override(
        PrepareConfig, moved, {name: given[name] for name in given if name not in ("items", "users")}
    )


def _refuse(old: PreparedData, before: PrepareConfig, given: Mapping[str, object]) -> None:
    has_negatives = any(
        getattr(old.manifest.columns, name) or f"columns.{name}" in given for name in ("label", "negatives")
    )
    for holds, reason in (
        (
            old.has_queries,
            "holds queries, and `turret data append` merges events alone; prepare all pairs again",
        ),
        (
            old.negatives is not None and old.manifest.time.kind == "position",
            "has negatives and no times, so new events have no place among them; prepare the whole log again",
        ),
        (
            max(before.filters.min_user_events, before.filters.min_item_events) > 1,
            "lacks the events of users or items with too few of them (min_user_events, min_item_events), "
            "which new events could bring back; prepare the whole log again",
        ),
        (
            before.split.kind == "files",
            "is split by files, and new events belong to none of them; prepare it again with another "
            "--split, or with all files",
        ),
        (
            has_negatives,
            "or the new log has labels or negatives (--label, --negatives), and `turret data append` merges "
            "events alone; prepare the whole log again",
        ),
    ):
        if holds:
            raise ConfigurationError(f"{old.folder} {reason}")


def _columns(
    manifest: Manifest, given: Mapping[str, object], config: PrepareConfig, source: Source
) -> ColumnSettings:
    """Return column settings: as given, else the names of the first log where the new one has them.

    A file that `turret history dump` wrote has its own names: usual ones, "kind" for kinds and "session_id".
    """
    existing, schema = shared_columns(source), source.parts[0][1].frame.collect_schema()
    names = manifest.columns.model_dump()
    for role, dumped in (("kind", "kind"), ("session", "session_id")):
        if names[role] is not None and names[role] not in existing and dumped in existing:
            names[role] = dumped
    if names["user"] == names["session"]:  # the first log has no users; the new one may have some
        names["user"] = None
    needed = {"weight"} | ({"kind"} if config.kinds else set())
    changed: dict[str, Any] = {
        role: name
        for role, name in names.items()
        if f"columns.{role}" not in given and name is not None and (name in existing or role in needed)
    }
    if "columns.session" not in given:
        changed.setdefault("session", None)
    for role, table in (("item", source.items), ("user", source.users)):
        # The id in the items file is called as in the first log.
        if table and getattr(config.columns, f"{role}_id") is None and names[role] in table.columns():
            changed[f"{role}_id"] = names[role]
    # A column of dates, or another column, has no unit or format of the first log.
    if "time" not in changed or schema[changed["time"]].is_temporal():
        defaults = {"time_unit": "auto", "time_format": None}
        changed |= {name: value for name, value in defaults.items() if f"columns.{name}" not in given}
    return config.columns.model_copy(update=changed)


def _manifest(old: Manifest, new: Manifest) -> Manifest:
    """Return the manifest of both logs together; columns and settings are those of the first one."""
    counts, removed, bad = Counter[str](), Counter[str](), dict[str, BadRows]()
    for one in (*old.bad_rows, *new.bad_rows):
        counts[one.kind] += one.count
        bad.setdefault(one.kind, one)
    before = [one for one in old.removed if not one.filter.startswith("negatives")]  # which are placed anew
    for record in (*before, *new.removed):
        removed[record.filter] += record.events
    settings = old.settings | {name: new.settings[name] for name in ("items", "users", "filters")}
    return new.model_copy(
        update={
            "columns": old.columns,
            "settings": settings,
            "sources": old.sources | new.sources,
            "bad_rows": [one.model_copy(update={"count": counts[kind]}) for kind, one in bad.items()],
            "removed": [Removed(filter=name, events=count) for name, count in removed.items()],
        }
    )
