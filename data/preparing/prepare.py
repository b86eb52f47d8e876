"""Prepare a log of events: the memory-mapped folder that training reads."""

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError, text_without_credentials
from turret.data.events.dropped_rows import PrepareReport
from turret.data.features import Features, VectorRows, text_of
from turret.data.files import new_folder, save_array, try_lock
from turret.data.histories.build_histories import BuiltHistories, build_histories
from turret.data.histories.partition import Partition, partition
from turret.data.manifest import (
    MANIFEST,
    Counts,
    FeatureSummary,
    FileHash,
    Manifest,
    Time,
    fingerprint,
    hash_all,
    hash_files,
)
from turret.data.prepared import ColdItems
from turret.data.preparing.encoding import encode, raw_features
from turret.data.preparing.feature_readings import read_features
from turret.data.preparing.ingest import IngestedSource, ingest_source, refuse_unknown_nulls
from turret.data.preparing.item_catalog import EntityTable, fields, refuse_own_id
from turret.data.preparing.prepare_warnings import count_repeats, prepare_warnings
from turret.data.preparing.query_features import share_grams
from turret.data.preparing.vectors import column_vectors, file_vectors, missing_note, vector_feature
from turret.data.progress import LOGGER, counted, progress
from turret.data.reading.columns import Role
from turret.data.reading.schema import FeatureColumns, FormatSettings, PrepareConfig
from turret.data.reading.tables import EXAMPLES
from turret.data.stores import LocalCopies, local_copies
from turret.data.vocabulary import Id, Vocabulary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prepare(
    config: PrepareConfig, target: Path, overwrite: bool = False, engine: str | None = None
) -> PrepareReport:
    """Validate, filter and split the events of `config`, and write them to the folder `target`.

    The log is read once, in pieces, and sorted on disk: memory holds pieces, the ids of users and items and
    some numbers of each, and, for a split by fractions of time, the times. Files in object stores are copied
    to a hidden folder beside `target` first. With `engine`, the master of a Spark cluster or "local", Spark
    reads and sorts the log into the same output; its workers share the files of the source and the parent
    folder of `target` with this process. A `target` that another command writes is waited for.

    Raises DataError: for columns that do not exist, for bad rows unless they are to be dropped, when nothing
    is left, when `target` exists and `overwrite` is false, and as `data.spark.session.spark_session` does.
    """
    target = Path(target)
    with (
        one_writer(target) if overwrite else nullcontext(),
        local_copies(target) as copies,
        new_prepared_folder(target, overwrite) as folder,
        progress("Preparing", 3) as advance,
    ):
        # The work folder is removed with the other one.
        with tempfile.TemporaryDirectory(dir=folder) as work, _session(engine) as session:
            ingested = ingest_source(config, Path(work), copies, session)
            refuse_unknown_nulls(config.format.nulls, ingested.source)
            advance(1)
            keep_items = config.queries is not None
            built = build_histories(
                ingested.events, ingested.log, config.filters, folder, Path(work), keep_items
            )
            advance(1)
        report = complete(folder, target, config, ingested, built, copies)
        report.manifest.save(folder)
        advance(1)
    return report


def _session(engine: str | None) -> "AbstractContextManager[SparkSession | None]":
    if engine is None:
        return nullcontext()
    from turret.data.spark.session import spark_session

    return spark_session(engine)


def complete(
    folder: Path,
    target: Path,
    config: PrepareConfig,
    ingested: IngestedSource,
    built: BuiltHistories,
    copies: LocalCopies,
) -> PrepareReport:
    """Split the histories in `folder`, and write everything beside them but the manifest."""
    parts = partition(built.histories, config.split, ingested.log.time)
    save_array(folder / "offsets.npy", built.histories.offsets)
    save_array(folder / "splits.npy", parts.splits)
    user_features, item_features, notes = _write_catalogs(folder, config, ingested, built, parts.splits)
    has_times, has_kinds = ingested.log.time.kind == "timestamp", ingested.columns.kind is not None
    repeats = count_repeats(built, parts.splits, has_times, has_kinds)
    sources = {
        copies.named(path.as_posix()): hashed for path, hashed in hash_all(ingested.source.files).items()
    }
    manifest = _manifest(folder, config, ingested, built, parts, user_features, item_features, sources)
    shares = {"repeat_share": repeats.share, "visit_repeat_share": repeats.in_visit}
    manifest = manifest.model_copy(update=shares)
    warnings = tuple(map(copies.named, (*notes, *prepare_warnings(ingested, built, repeats))))
    return PrepareReport(target, manifest, warnings)


def _write_catalogs(
    folder: Path,
    config: PrepareConfig,
    ingested: IngestedSource,
    built: BuiltHistories,
    splits: NDArray[np.int64],
) -> tuple[Features, Features, list[str]]:
    """Encode and write vocabularies, features and fields.

    Returns the features of users and items, and a sentence on each choice.
    """
    source, none = ingested.source, FeatureColumns()
    user_columns = (config.user_features or none).over(source.user_features or none)
    item_columns = (config.item_features or none).over(source.item_features or none)
    notes: list[str] = []
    words = config.queries is not None and config.queries.words
    read = partial(_entity_columns, settings=config.format, notes=notes, words=words)
    users, _, _ = read(ingested.users, built.users, user_columns, "user", field_names=())
    items, answers, cold = read(ingested.items, built.items, item_columns, "item", field_names=config.fields)
    if config.queries is not None:
        is_train = splits[:, 0] > built.histories.offsets[:-1]
        texts = [*map(text_of, built.users.ids(range(len(built.users))))]
        users, items = share_grams(users, items, texts, is_train, words)
    cold.save(folder)
    built.users.save(folder / "users.json")
    built.items.save(folder / "items.json")
    users.save(folder / "user_features")
    items.save(folder / "item_features")
    text = json.dumps({"fields": answers}, ensure_ascii=False, allow_nan=False)
    (folder / "catalogue.json").write_text(text, encoding="utf-8")
    return users, items, notes


def _entity_columns(
    entries: EntityTable | None,
    vocabulary: Vocabulary,
    chosen: FeatureColumns,
    role: Role,
    settings: FormatSettings,
    field_names: tuple[str, ...] | None,
    notes: list[str],
    words: bool,
) -> tuple[Features, dict[str, list[object]], ColdItems]:
    """Read the features and fields of the rows of `vocabulary`, and those of the items without an event."""
    count = len(vocabulary)
    known = [*map(str, vocabulary.ids(range(count)))]
    cold: list[Id] = []
    vectors: dict[str, VectorRows] = {}
    if entries is None:
        features, answers, others = Features(count, (), {}), {}, ColdItems()
    else:
        refuse_own_id(chosen, entries, role)
        cold = entries.without_event(vocabulary) if role == "item" else []
        frame = entries.aligned([*known, *map(str, cold)])
        if absent := count - int(entries.ids.is_in(known).sum()):  # in a log, only users can be
            notes.append(
                f"{entries.path.name}: {absent:,} of {counted(count, role)} of the log are not in it, and "
                f"have no features; its ids are such as {', '.join(map(repr, entries.ids.head(EXAMPLES)))}"
            )
        read, chosen, note = read_features(frame, chosen, entries.path, role, settings)
        notes += [note] if note else []
        features = encode(read.head(count), chosen, words)
        columns = fields(frame, field_names, read, chosen, entries)
        answers = {name: values[:count] for name, values in columns.items()}
        later = {name: values[count:] for name, values in columns.items()}
        others = ColdItems(cold, raw_features(read.tail(len(cold)), chosen), later)
        for kind, name in chosen.by_kind():
            if kind == "vector":
                vectors[name] = column_vectors(frame[name], entries.path)
    for name, path in chosen.vector_files().items():
        vectors[name] = file_vectors(path, [*known, *map(str, cold)], role)
    for name, rows in vectors.items():
        own = rows.part(slice(count))
        features = features.with_vector(vector_feature(name, own), own)
        others.vectors[name] = rows.part(slice(count, None))
        notes.append(missing_note(name, own, role))
    if not cold or entries is None:
        return features, answers, ColdItems()
    note = f"{entries.path.name}: {len(cold):,} of {counted(count + len(cold), 'item')} have no event"
    if not features.features:
        notes.append(f"{note} and no features, so no model can rank them, and they are left out")
        return features, answers, ColdItems()
    notes.append(f"{note}; a model whose item tower reads features recommends them, others leave them out")
    return features, answers, others


def _manifest(
    folder: Path,
    config: PrepareConfig,
    ingested: IngestedSource,
    built: BuiltHistories,
    parts: Partition,
    user_features: Features,
    item_features: Features,
    sources: dict[str, FileHash],
) -> Manifest:
    histories, kind = built.histories, ingested.log.time.kind
    files = hash_files(folder)
    return Manifest(
        counts=Counts(events=len(histories), users=len(built.users), items=len(built.items)),
        columns=ingested.columns
        if config.queries is None
        else ingested.columns.model_copy(update={"time": None}),
        settings=json.loads(text_without_credentials(config.model_dump_json())),
        sources=sources,
        bad_rows=ingested.bad_rows,
        removed=[*ingested.events.removed, *built.removed],
        time=Time(
            kind=kind,
            unit="milliseconds" if kind == "timestamp" else None,
            first=histories.first,
            last=histories.last,
        ),
        split=parts.summary,
        has_weights=ingested.log.has_weights,
        negatives=built.negatives,
        user_features=_summaries(user_features),
        item_features=_summaries(item_features),
        files=files,
        fingerprint=fingerprint(files, kind),
    )


def _summaries(features: Features) -> list[FeatureSummary]:
    return [FeatureSummary(name=f.name, kind=f.kind, size=f.size) for f in features.features]


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Wait until no other command writes prepared data, and keep others out during the block.

    A writer replaces the folder, so the new one is locked after a wait. A missing folder is not locked, nor
    one in a file system without locks.
    """
    while folder.is_dir():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            _wait_for_lock(descriptor, folder)
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                yield
                return
        finally:
            os.close(descriptor)
    yield


def _wait_for_lock(descriptor: int, folder: Path) -> None:
    try:
        if not try_lock(descriptor):
            logging.getLogger(LOGGER).info("another command writes %s; waiting until it has ended", folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # the file system has no locks
        pass


def new_prepared_folder(target: Path, overwrite: bool) -> AbstractContextManager[Path]:
    """Yield a folder that becomes `target` when the block ends (see `new_folder`).

    Raises DataError when `target` exists, unless it is empty, or is prepared data and `overwrite` is true:
    a mistyped path must not delete another folder.
    """
    is_empty = target.is_dir() and not any(target.iterdir())
    if overwrite and target.exists() and not is_empty and not (target / MANIFEST).is_file():
        raise DataError(f"{target} is not prepared data, so it is not overwritten; choose another folder")
    return new_folder(target, overwrite or is_empty)
