"""From a log of events to the memory-mapped folder that training reads."""

import tempfile
from pathlib import Path

from data.catalogue import Entries, fields
from data.encoding import encode, usual_features
from data.features import Features
from data.folder import prepared_folder, write_arrays, write_catalogues
from data.gathering import Gathered, Names, gather
from data.intake import Intake, take_in
from data.manifest import Counts, FeatureSummary, Manifest, Time, fingerprint, hash_file, hash_files
from data.notes import notes
from data.partition import Partition, partition
from data.progress import progress
from data.report import PrepareReport
from data.schema import FeatureColumns, PrepareConfig


def prepare(config: PrepareConfig, target: Path, overwrite: bool = False) -> PrepareReport:
    """Validate and filter the events that `config` names, split them, and write them to the folder `target`.

    The log is scanned lazily, several times; what is held for all events at once are the rows of their user
    and item, their time, and their weight and part if there are any. Raises DataError: for columns that do
    not exist, for bad rows unless they are to be dropped, when nothing is left, and when `target` exists
    and `overwrite` is false.
    """
    target = Path(target)
    with prepared_folder(target, overwrite) as folder, progress("Preparing", 3) as advance:
        with tempfile.TemporaryDirectory(dir=folder) as work:  # whatever happens, it goes with the folder
            intake = take_in(config, Path(work))
            advance(1)
            gathered = gather(intake.log, config.filters)
            advance(1)
        parts = partition(gathered.events, gathered.offsets, config.split, intake.log.time)
        write_arrays(folder, gathered.events, gathered.offsets, parts.splits)
        user_features, item_features = _write_catalogues(folder, config, intake, gathered)
        manifest = _manifest(folder, config, intake, gathered, parts, user_features, item_features)
        manifest.save(folder)
        told = tuple(notes(intake, gathered, parts.splits))
        advance(1)
    return PrepareReport(target, manifest, told)


def _write_catalogues(
    folder: Path, config: PrepareConfig, intake: Intake, gathered: Gathered
) -> tuple[Features, Features]:
    """Encode and write what is known of users and items; return their features."""
    separator = config.format.list_separator
    user_columns = config.user_features or intake.source.user_features
    item_columns = config.item_features or intake.source.item_features
    users, _ = _known(intake.users, gathered.users, user_columns, separator, ())
    items, answers = _known(intake.items, gathered.items, item_columns, separator, config.fields)
    write_catalogues(folder, gathered.users.vocabulary, gathered.items.vocabulary, users, items, answers)
    return users, items


def _known(
    entries: Entries | None,
    names: Names,
    chosen: FeatureColumns | None,
    list_separator: str,
    kept: tuple[str, ...] | None,
) -> tuple[Features, dict[str, list[object]]]:
    if entries is None:
        return Features(len(names.texts), (), {}), {}
    frame = entries.aligned(names.texts)
    chosen = usual_features(frame.schema) if chosen is None else chosen
    features = encode(frame, chosen, entries.path, list_separator)
    return features, fields(frame, kept, chosen, entries, list_separator)


def _manifest(
    folder: Path,
    config: PrepareConfig,
    intake: Intake,
    gathered: Gathered,
    parts: Partition,
    user_features: Features,
    item_features: Features,
) -> Manifest:
    times, kind = gathered.events.times, intake.log.time.kind
    files = hash_files(folder)
    return Manifest(
        counts=Counts(
            events=len(gathered.events), users=len(gathered.users.texts), items=len(gathered.items.texts)
        ),
        columns=intake.columns,
        sources={path.as_posix(): hash_file(path) for path in intake.source.files},
        filters=config.filters.model_dump(mode="json"),
        bad_rows=intake.bad_rows,
        removed=[*intake.removed, *gathered.removed],
        time=Time(
            kind=kind,
            unit="milliseconds" if kind == "timestamp" else None,
            first=times.min().item(),
            last=times.max().item(),
        ),
        split=parts.summary,
        has_weights=gathered.events.weights is not None,
        user_features=_summaries(user_features),
        item_features=_summaries(item_features),
        files=files,
        fingerprint=fingerprint(files, kind),
    )


def _summaries(features: Features) -> list[FeatureSummary]:
    return [FeatureSummary(name=f.name, kind=f.kind, size=f.size) for f in features.features]
