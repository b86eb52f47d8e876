"""Prepare a log of events: the memory-mapped folder that training reads."""

import json
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from turret.data.databases.results import query_results
from turret.data.errors import (
    ColumnError,
    ConfigurationError,
    DataError,
    EmptyDataError,
    text_without_credentials,
)
from turret.data.events.dropped_rows import (
    UNKNOWN_ITEM,
    CheckedRows,
    OnBad,
    PrepareReport,
    bad_row_lines,
    describe_dropped,
    refuse_bad_rows,
)
from turret.data.events.event_arrays import EventFiles
from turret.data.events.events import read_events, validate
from turret.data.events.ids import as_keys
from turret.data.events.labels import check_labels
from turret.data.events.log import Log
from turret.data.files import locked, new_folder, tried_lock
from turret.data.histories.histories import Histories, build_histories
from turret.data.histories.partition import partition
from turret.data.manifest import (
    MANIFEST,
    BadRows,
    Columns,
    Counts,
    DataManifest,
    FileHash,
    Removed,
    Time,
    fingerprint,
    hash_all,
    hash_files,
)
from turret.data.object_stores import TABLE, Place, local_copies, with_urls
from turret.data.preparing.catalogs import EntityTable, read_entity_table, write_catalogs
from turret.data.preparing.contexts import add_contexts, with_context
from turret.data.preparing.examination import write_examination
from turret.data.preparing.log_sources import choose_sources, columns_of
from turret.data.preparing.prepare_warnings import count_repeats, doubtful_rows, prepare_warnings
from turret.data.progress import LOGGER, progress
from turret.data.reading.open_source import open_source
from turret.data.reading.schema import PrepareConfig
from turret.data.reading.tables import EXAMPLES, LogSource, Source
from turret.data.rows import LOCAL, Engine

if TYPE_CHECKING:
    from turret.data.spark.reading import SparkEvents


def prepare(
    config: PrepareConfig,
    target: Path,
    overwrite: bool = False,
    engine: str | None = None,
    on_log: Callable[[Log], object] | None = None,
) -> PrepareReport:
    """Validate, filter and split the events of `config`, and write them to the folder `target`.

    Parquet is scanned twice: its column of times for their unit, and all columns once, in pieces, for the
    events. A CSV is scanned once more for lines that are no rows, and a log with kinds for these. At last
    the bytes of the source are hashed. The events are sorted on disk: memory holds pieces, the ids of
    users and items and some numbers of each, and, for a split by fractions of time, the times. Files in
    object stores, and the results of queries, are copied to a hidden folder beside `target` first. With
    `engine`, the master of a
    Spark cluster or "local", Spark reads and sorts the log into the same output; its workers share the
    log and the parent folder of `target` with this process. The call waits while another command writes
    `target`. `on_log` receives the validated log while its files are there.

    Raises DataError: for columns that do not exist, for bad rows unless they are to be dropped, when nothing
    is left, when `target` exists and `overwrite` is false, and as `data.spark.session.spark_session` does.
    """
    target = Path(target)
    with (
        one_writer(target) if overwrite else nullcontext(),
        new_prepared_folder(target, overwrite) as folder,
        query_results(config, target) as (files, results),
        (
            local_copies(files.urls, target, has_tables=engine is not None)
            if files.urls
            else nullcontext(dict[Place, Path]())
        ) as copies,
        progress("Preparing", 3) as advance,
    ):
        # The work folder is removed with `folder`.
        with (
            tempfile.TemporaryDirectory(dir=folder) as work,
            nullcontext((LOCAL, read_events)) if engine is None else _spark(engine, config) as (reader, read),
        ):
            for url in copies:
                if reader.write_table is not None and str(url).startswith(TABLE):
                    reader.write_table(str(url).removeprefix(TABLE), copies[url])
            source = open_source(files, Path(work), copies, reader)
            ingested = ingest_source(config, source, Path(work), reader, read)
            if on_log is not None:
                on_log(ingested.log)
            forms = [config.format, *(settings.format for settings in config.sources)]
            nulls = dict.fromkeys(entry for form in forms for entry in form.nulls if "=" in entry)
            if nulls:
                _refuse_unknown_nulls([*nulls], source)
            advance(1)
            histories = build_histories(
                ingested.log,
                ingested.events,
                ingested.user_ids,
                ingested.item_ids,
                config.filters,
                folder,
                Path(work),
                keep_items=config.queries is not None,
            )
            sources = hash_all(ingested.source.files, reader.run)
            advance(1)
        config = config.model_copy(update={"kinds": ingested.log.kinds, "kinds_auto": False})
        report = complete(folder, target, config, ingested, histories, copies | results, sources)
        report.manifest.save(folder)
        advance(1)
    return report


Reader = Callable[
    [Log, Path],
    tuple["EventFiles | SparkEvents", pl.Series, pl.Series, pl.Series, Counter[str], Counter[int]],
]
_MASTERS = "local, local[THREADS], spark://HOST:PORT, sc://HOST:PORT (Spark Connect), yarn or k8s://URL"
_MASTER = re.compile(r"local(\[(\d+|\*)\]|-cluster\[\d+,\d+,\d+\])?|yarn|(spark|sc|k8s)://.+")


@contextmanager
def _spark(engine: str, config: PrepareConfig) -> Iterator[tuple[Engine, Reader]]:
    """Yield the executors of the Spark master `engine`, and the function that reads a log by them."""
    if config.context:
        raise ConfigurationError(
            f"--context {config.context[0]} is not read by Spark; leave out --engine, or the context"
        )
    if not _MASTER.fullmatch(engine):  # this error needs no PySpark
        raise ConfigurationError(f"--engine {engine!r} is no Spark master; give {_MASTERS}")
    from turret.data.spark.engine import SparkEngine
    from turret.data.spark.reading import read_by_spark
    from turret.data.spark.session import spark_session

    with spark_session(engine) as session:
        yield SparkEngine(session), read_by_spark


@dataclass(frozen=True)
class IngestedSource:
    """A source with the columns of each log, its validated rows, and its events in the order of the source.

    Users and items of `events` are positions in `user_ids` and `item_ids`, the distinct ids (Int64 or
    String), and contexts are positions in `context_keys`. `bad_events` are the bad rows of the events, and
    `doubts` the sentences of the log and of `doubtful_rows`.
    """

    source: Source
    logs: list[LogSource]
    log: Log
    events: "EventFiles | SparkEvents"
    user_ids: pl.Series
    item_ids: pl.Series
    context_keys: pl.Series
    items: EntityTable | None
    users: EntityTable | None
    bad_events: list[BadRows]
    removed: list[Removed]
    doubts: tuple[str, ...]

    @property
    def columns(self) -> Columns:
        """The columns by role: those of the source, of several the ones that a dump of the service has."""
        is_only = not self.logs[0].settings.name
        return self.logs[0].columns if is_only else columns_of(self.logs, bool(self.log.kinds))

    @property
    def entities(self) -> list[EntityTable]:
        """The existing files of items and of users."""
        return [entries for entries in (self.items, self.users) if entries is not None]

    @property
    def bad_rows(self) -> list[BadRows]:
        """The bad rows of all files."""
        return [*self.bad_events, *(bad for entries in self.entities for bad in entries.bad_rows)]


def ingest_source(
    config: PrepareConfig,
    source: Source,
    work: Path,
    engine: Engine = LOCAL,
    read: Reader = read_events,
    is_continued: bool = False,
) -> IngestedSource:
    """Validate a source on `engine`, and read it by `read`, its function, into the folder `work`.

    A log that is continued (`is_continued`) need not have events of every kind. Raises BadRowsError for bad
    rows unless they are to be dropped, EmptyDataError when no row is an event, and the errors of
    `choose_columns`, `refuse_absent_kinds`, `validate` and `check_labels`.
    """
    logs, kinds, note = choose_sources(config, source, is_continued, engine)
    columns, settings, form = logs[0].columns, source.columns or config.columns, config.format
    items = users = None
    if source.items is not None:
        items = read_entity_table(source.items, settings.item_id, columns.item, "item", form)
    if source.users is not None:
        users = read_entity_table(source.users, settings.user_id, columns.user, "user", form)
    catalog = None if items is None else items.ids
    if config.context:
        logs = with_context(logs, config.context, is_continued)
    forms, are_final = list[tuple[str, ...]](), False
    while not are_final:
        log = validate(logs, kinds, config.filters, catalog, forms, engine)
        events, user_ids, item_ids, context_keys, verdicts, labels = read(log, work)
        # Rows of other systems, and of rare kinds, may have times in another format.
        forms = log.further_forms(verdicts) if verdicts else []
        are_final = not forms
    log = replace(log, notes=(*log.notes, note)) if note else log
    if config.queries is not None and catalog is not None:
        # Every answer is ranked, also one that no query has.
        item_ids = pl.concat([item_ids, as_keys(catalog, item_ids.dtype)]).unique(maintain_order=True)
    bad_rows, removed = log.dropped_rows(verdicts) if verdicts else ([], [])
    by_kind = log.verdicts_by_kind() if log.kinds and bad_rows else {}
    if by_kind and (counts := _bad_by_kind(by_kind)):
        log = replace(log, notes=(*log.notes, f"bad rows by kind: {counts}"))
    bad_rows = [*log.malformed, *bad_rows]
    of_rows = [
        rows.prefix + doubt
        for of_log, rows in zip(logs, log.sources, strict=True)
        for doubt in doubtful_rows(of_log, rows.time, engine)
    ]
    doubts = (*log.doubts, *of_rows)
    ingested = IngestedSource(
        source,
        logs,
        log,
        events,
        user_ids,
        item_ids,
        context_keys,
        items,
        users,
        bad_rows,
        removed,
        doubts,
    )
    if ingested.bad_rows or not len(events):
        _refuse_bad_rows(ingested, config.on_bad, by_kind)
    if columns.label or columns.negatives:
        check_labels(labels, columns)
    return ingested


def _bad_by_kind(by_kind: Mapping[str, Counter[str | None]]) -> str:
    totals = {name: (rows.total() - rows[None], rows.total()) for name, rows in by_kind.items()}
    return ", ".join(f"{bad:,} of {rows:,} {name}" for name, (bad, rows) in totals.items() if bad)


def _refuse_bad_rows(
    ingested: IngestedSource, on_bad: OnBad, by_kind: Mapping[str, Counter[str | None]]
) -> None:
    """Raise BadRowsError for bad rows that are not to be dropped, and EmptyDataError without an event.

    At most half of the rows of each target kind are dropped, as of the whole log. `by_kind` has the numbers
    of rows by kind and verdict.
    """
    items, bad_rows, count = ingested.items, ingested.bad_rows, len(ingested.events)
    files = list(dict.fromkeys(table.path for _, table in ingested.source.parts))
    checked = ingested.log.checked(count, ingested.bad_events)
    bad_count = sum(rows.bad for rows in checked)
    checked += [entries.checked for entries in ingested.entities]
    if on_bad == "drop" and bad_count <= count:  # else the whole log is refused
        checked += [
            CheckedRows(files, verdicts[None], ingested.log.bad_rows_of_kind(name, verdicts))
            for name, verdicts in by_kind.items()
            if ingested.log.kinds[name].role == "target" and 2 * verdicts[None] < verdicts.total()
        ]
    known = ""
    if items is not None and any(bad.kind == UNKNOWN_ITEM for bad in bad_rows):
        ids = ", ".join(map(repr, items.ids.head(EXAMPLES)))
        known = f"the ids of {items.path} are such as {ids}" if ids else f"no row of {items.path} has an id"
    if count or on_bad == "error":
        refuse_bad_rows(checked, on_bad, known)
    if not count:
        reasons = describe_dropped(bad_rows, ingested.removed)
        lines = [f"no row of {ingested.log.path} is an event: {reasons}", *bad_row_lines(bad_rows), known]
        raise EmptyDataError("\n".join(filter(None, lines)))


def _refuse_unknown_nulls(nulls: Sequence[str], source: Source) -> None:
    """Raise ColumnError for an entry COLUMN=TEXT of a column that no file of the source has."""
    existing = dict.fromkeys(name for table in source.tables for name in table.columns)
    for entry in nulls:
        name, is_named, _ = entry.partition("=")
        if is_named and name not in existing:
            raise ColumnError(
                f"--null {entry!r}: no file has a column {name!r}; the columns are {', '.join(existing)}"
            )


def complete(
    folder: Path,
    target: Path,
    config: PrepareConfig,
    ingested: IngestedSource,
    histories: Histories,
    copies: Mapping[Place, Path],
    sources: Mapping[Path, FileHash],
) -> PrepareReport:
    """Split the histories in `folder`, and write everything else except the manifest.

    `sources` are the digests of the files of the source.
    """
    time, columns = ingested.log.time, ingested.columns
    splits, split = partition(histories, config.split, time)
    np.save(folder / "offsets.npy", histories.offsets, allow_pickle=False)
    np.save(folder / "splits.npy", splits, allow_pickle=False)
    user_features, item_features, notes = write_catalogs(
        folder, config, ingested.source, ingested.items, ingested.users, histories, splits
    )
    is_timed, kinds, doubts = time.kind == "timestamp", ingested.log.kinds, ingested.doubts
    keys, path = ingested.context_keys, ingested.log.path
    context_features, leaks = (
        add_contexts(folder, config, keys, path, user_features, histories, splits)
        if config.context
        else ([], [])
    )
    repeats = count_repeats(histories, splits, is_timed, columns.kind is not None, kinds)
    if config.answers is not None:
        notes = [*notes, write_examination(folder, config.answers, histories)]
    warnings = prepare_warnings(
        ingested.source, ingested.log, ingested.logs[0].columns, histories, repeats, doubts
    )
    names, sentences = [path.as_posix() for path in sources], [*notes, *leaks, *warnings]
    if copies:
        names, sentences = ([with_urls(text, copies) for text in texts] for texts in (names, sentences))
    unit, first, last = "milliseconds" if is_timed else None, histories.first, histories.last
    period, files = Time(kind=time.kind, unit=unit, first=first, last=last), hash_files(folder)
    manifest = DataManifest(
        counts=Counts(events=len(histories), users=len(histories.users), items=len(histories.items)),
        columns=columns if config.queries is None else columns.model_copy(update={"time": None}),
        settings=json.loads(
            text_without_credentials(config.model_dump_json(exclude=None if config.context else {"context"}))
        ),
        sources=dict(zip(names, sources.values(), strict=True)),
        bad_rows=ingested.bad_rows,
        removed=[*ingested.removed, *histories.removed],
        time=period,
        split=split,
        has_weights=ingested.log.has_weights,
        negatives=histories.negatives,
        kinds=kinds,
        default_kind=config.filters.default_kind,
        repeat_share=repeats.share,
        visit_repeat_share=repeats.in_visit,
        user_features=user_features,
        item_features=item_features,
        context_features=context_features,
        catalog_time=None if ingested.items is None else _catalog_time(ingested.items.path),
        files=files,
        fingerprint=fingerprint(files, time.kind, kinds),
    )
    return PrepareReport(target, manifest, tuple(sentences), doubts)


def _catalog_time(path: Path) -> str | None:
    if not path.exists():  # the table is in memory
        return None
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="milliseconds")


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Wait until no other command writes prepared data, and keep other commands out during the block.

    A writer replaces the folder, so the new folder is locked after a wait. A missing folder is not locked,
    nor is a folder in a file system without locks.
    """
    folder = folder.resolve()
    while folder.is_dir():
        before = folder.stat()
        with tried_lock(folder) as is_locked:
            if is_locked is not False and os.path.samestat(before, folder.stat()):
                yield
                return
        if is_locked is False:
            logging.getLogger(LOGGER).info("another command writes %s; waiting until it has ended", folder)
            with locked(folder):
                pass
    yield


def new_prepared_folder(target: Path, overwrite: bool) -> AbstractContextManager[Path]:
    """Yield a folder that becomes `target` when the block ends (see `new_folder`).

    Raises DataError when `target` exists, unless it is empty, or is prepared data and `overwrite` is true:
    a mistyped path must not delete another folder.
    """
    is_empty = target.is_dir() and not any(target.iterdir())
    if overwrite and target.exists() and not is_empty and not (target / MANIFEST).is_file():
        raise DataError(f"{target} is not prepared data, so it is not overwritten; choose another folder")
    return new_folder(target, overwrite or is_empty)
