"""Bundles: published as a whole, opened as a whole, refused as a whole."""

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from data.arrays import open_array, save_array
from data.errors import DataError
from data.features import Feature
from data.manifest import hash_file
from data.vocabulary import Vocabulary
from tower.absolute_index import scored_index
from tower.catalog import Catalog
from tower.encoder import Encoder
from tower.errors import BundleError
from tower.golden import GOLDEN_K, RecordedQuery, check_golden, difference, record, replay, save_golden
from tower.index import ExactIndex
from tower.item_encoder import ItemEncoder, open_item_encoder
from tower.item_golden import RecordedItem, check_golden_items, record_items
from tower.manifest import (
    EXPERIMENT,
    ITEM_FEATURES,
    ITEM_TOWER,
    MANIFEST,
    Manifest,
    MeasuredRecall,
    Scoring,
    check_files,
    read_manifest,
)
from tower.pointer import check_version, current, is_version, point, sync
from tower.recall import measure_recall
from tower.retriever import Ranking
from tower.soundness import check_parts

_FEATURES = TypeAdapter(tuple[Feature, ...])


class Bundle:
    """An opened bundle: the user tower, the item vectors, the index and the names, all of one model.

    `vectors` is float32 [N, D], memory-mapped; `popularity` int64 [N], the training events of each item.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.vectors: NDArray[np.float32] = open_array(folder / "item_vectors.npy", "float32")
        self.popularity: NDArray[np.int64] = open_array(folder / "popularity.npy", "int64")
        self.vocabulary = Vocabulary.load(folder / "vocabulary.json")
        self.catalog = Catalog.load(folder / "catalogue.json", manifest.item_count)
        self.index = ExactIndex.load(folder / "index.faiss")
        self.user_features = _FEATURES.validate_json((folder / "user_features.json").read_bytes())
        check_parts(manifest, self.vectors, self.popularity, len(self.vocabulary), self.index)
        model = (folder / "user_tower.onnx").read_bytes()
        self.encoder = Encoder(
            model, self.vectors, manifest.history_length, self.user_features, manifest.reads_times
        )
        self.item_encoder: ItemEncoder | None = open_item_encoder(folder, manifest)

    @property
    def fields(self) -> dict[str, list[Any]]:
        """The catalogue's fields: name -> one value a row."""
        return self.catalog.fields

    @classmethod
    def open(cls, folder: Path, verify: bool = True) -> "Bundle":
        """Open the bundle in `folder`; `verify` compares every file with its checksum first.

        Raises BundleError when anything is missing, damaged, not finite or of another model. Whether it also
        answers its recorded queries, `tower.golden.check_golden` tells.
        """
        manifest = read_manifest(folder)
        if verify:
            check_files(folder, manifest)
        try:
            return cls(folder, manifest)
        except OSError as error:
            raise BundleError(f"{error.filename} can't be read: {error.strerror}; copy it again") from None
        except (DataError, ValidationError, MemoryError, RecursionError) as error:
            raise BundleError(f"the bundle {folder} can't be opened: {error}") from None


@dataclass(frozen=True)
class BundleContents:
    """What training hands over to be published.

    `item_vectors` is float32 [N, D] (of length 1 for cosine), `popularity` int64 [N], `fields` has one
    value a row, `model` is a safetensors file, and `item_features` says what the codes in it stand for.
    `reads_times` says whether the user tower reads times.
    `experiment` is how the model was trained; training can't go on from a bundle without it. `recorded` holds
    queries as `tower.golden.RecordedQuery` has them, at least one; `expected` one (rows, scores) for each:
    training's own best 20, the items of the history left out, scored as `scoring` says. An `item_tower` comes
    with `recorded_items`, at least one, and training's own vectors of them.
    """

    version: str
    user_tower: bytes
    item_vectors: NDArray[np.float32]
    vocabulary: Vocabulary
    user_features: tuple[Feature, ...]
    fields: dict[str, list[Any]]
    popularity: NDArray[np.int64]
    scoring: Scoring
    history_length: int
    model: bytes
    recorded: Sequence[Mapping[str, Any]]
    expected: Sequence[tuple[NDArray[np.integer[Any]], NDArray[np.floating[Any]]]]
    reads_times: bool = False
    item_features: tuple[Feature, ...] = ()
    item_tower: bytes | None = None
    recorded_items: tuple[RecordedItem, ...] = ()
    experiment: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)


class VersionSummary(BaseModel):
    """One bundle in a folder of bundles; `error` says why its manifest can't be read, if it can't."""

    model_config = ConfigDict(frozen=True)

    version: str
    is_current: bool
    created: str | None = None
    item_count: int | None = None
    dimension: int | None = None
    metrics: dict[str, Any] = {}
    recall: tuple[MeasuredRecall, ...] = ()
    error: str | None = None


def publish(root: Path, contents: BundleContents) -> Path:
    """Write a bundle to `<root>/<version>` and return that folder; the first also becomes current.

    The bundle is written beside its place, replayed through the code that serves it, and renamed into place
    when its answers are those of `contents.expected`. Raises BundleError otherwise, or if the version
    exists.
    """
    check_version(contents.version)
    target = root / contents.version
    if target.exists():
        raise BundleError(f"{target} exists, and a published bundle is never changed; choose another version")
    temporary = root / f".publishing-{contents.version}-{uuid.uuid4().hex}"
    try:
        temporary.mkdir(parents=True)
        _write(temporary, contents)
        check_answers(Bundle.open(temporary))
        for path in (*temporary.iterdir(), temporary, root):
            sync(path)
        temporary.rename(target)
        sync(root)
    except OSError as error:
        raise BundleError(f"the bundle {target} can't be written: {error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if current(root) is None:
        point(root, contents.version)
    return target


def versions(root: Path) -> list[VersionSummary]:
    """List the bundles under `root`, oldest first. Raises BundleError when `root` is not a folder."""
    try:
        names = sorted(path.name for path in root.iterdir() if path.is_dir() and is_version(path.name))
    except OSError as error:
        raise BundleError(f"{root} can't be listed: {error.strerror}; name a folder of bundles") from None
    live = current(root)
    return sorted((_summary(root, name, name == live) for name in names), key=lambda one: one.created or "")


def load(root: Path, version: str) -> Bundle:
    """Open `<root>/<version>` with everything that can be checked: checksums, shapes, recorded queries.

    Raises BundleError with the reason when it can't be served.
    """
    check_version(version)
    if not (root / version).is_dir():
        known = ", ".join(one.version for one in versions(root)[-10:]) or "none"
        raise BundleError(f"there is no version {version!r} in {root}; there are: {known}")
    bundle = Bundle.open(root / version)
    if bundle.manifest.version != version:
        raise BundleError(f"{root / version} holds version {bundle.manifest.version!r}; rename it to that")
    check_answers(bundle)
    return bundle


def check_answers(bundle: Bundle) -> None:
    """Replay the recorded queries and the recorded items. Raises BundleError naming the first that differs."""
    check_golden(bundle)
    check_golden_items(bundle)


def activate(root: Path, version: str) -> None:
    """Make `version` the one that is served, after it has passed every check of `load`."""
    load(root, version)
    point(root, version)


def _write(folder: Path, contents: BundleContents) -> None:
    vectors = np.ascontiguousarray(contents.item_vectors, dtype=np.float32)
    save_array(folder / "item_vectors.npy", vectors)
    save_array(folder / "popularity.npy", np.asarray(contents.popularity, dtype=np.int64))
    ExactIndex.build(vectors).save(folder / "index.faiss")
    contents.vocabulary.save(folder / "vocabulary.json")
    Catalog(contents.fields).save(folder / "catalogue.json")
    (folder / "user_features.json").write_bytes(_FEATURES.dump_json(contents.user_features))
    (folder / "user_tower.onnx").write_bytes(contents.user_tower)
    (folder / "model.safetensors").write_bytes(contents.model)
    if contents.experiment:
        (folder / EXPERIMENT).write_text(json.dumps(contents.experiment, indent=2), encoding="utf-8")
    if contents.experiment or contents.item_tower:
        (folder / ITEM_FEATURES).write_bytes(_FEATURES.dump_json(contents.item_features))
    if contents.item_tower:
        (folder / ITEM_TOWER).write_bytes(contents.item_tower)
        record_items(folder, contents.recorded_items, contents.vocabulary, vectors)
    recall = _record_answers(folder, contents)
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    manifest = _manifest(contents).model_copy(update={"files": files, "recall": recall})
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
    for path in folder.iterdir():
        os.chmod(path, 0o444)


def _record_answers(folder: Path, contents: BundleContents) -> tuple[MeasuredRecall, ...]:
    """Answer the recorded queries with the files as they are served, compare, and write `golden.json`."""
    queries = TypeAdapter(list[RecordedQuery]).validate_python(contents.recorded)
    if not queries or len(queries) != len(contents.expected):
        raise BundleError(
            f"{len(queries)} recorded queries and {len(contents.expected)} expected answers: give one "
            f"answer for each "
            "query, and at least one query"
        )
    bundle = Bundle(folder, _manifest(contents))
    answers = replay(bundle, queries, GOLDEN_K)
    for place, (expected, served) in enumerate(zip(contents.expected, answers, strict=True)):
        rows, scores = expected
        fault = difference(Ranking(np.asarray(rows, np.int64), np.asarray(scores, np.float32)), served)
        if fault:
            raise BundleError(
                f"recorded query {place} is answered differently by the exported bundle than by training: "
                f"{fault}; "
                f"bundle {contents.version} was not published"
            )
    save_golden(folder / "golden.json", record(bundle, queries, answers, GOLDEN_K))
    histories = [bundle.vocabulary.known_rows(query.history)[0] for query in queries]
    features, times = [query.features for query in queries], [query.times for query in queries]
    vectors = bundle.encoder.encode(histories, features, times)
    scoring = contents.scoring
    index = scored_index(bundle.index, scoring)
    return measure_recall(index, bundle.vectors, vectors, absolute=scoring.absolute)


def _manifest(contents: BundleContents) -> Manifest:
    item_count, dimension = contents.item_vectors.shape
    return Manifest(
        version=contents.version,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        dimension=dimension,
        item_count=item_count,
        scoring=contents.scoring,
        history_length=contents.history_length,
        reads_times=contents.reads_times,
        metrics=contents.metrics,
        fingerprints=contents.fingerprints,
        files={},
    )


def _summary(root: Path, name: str, is_current: bool) -> VersionSummary:
    try:
        manifest = read_manifest(root / name)
    except BundleError as error:
        return VersionSummary(version=name, is_current=is_current, error=str(error))
    return VersionSummary(
        version=name,
        is_current=is_current,
        created=manifest.created,
        item_count=manifest.item_count,
        dimension=manifest.dimension,
        metrics=manifest.metrics,
        recall=manifest.recall,
    )
