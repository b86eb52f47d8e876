"""Publication of a bundle: written beside its target, replayed, and renamed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from turret.data.errors import DataError
from turret.data.features import Feature
from turret.data.files import open_array, save_array
from turret.data.manifest import hash_file
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import (
    GOLDEN_K,
    RecordedItem,
    check_golden,
    difference,
    load_golden,
    record,
    record_items,
    recorded_queries,
    replay,
    save_golden,
)
from turret.tower.catalog.catalog import Catalog
from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.item_map import MAP_FILE, ItemMap
from turret.tower.format.listing import atomic_folder, check_version, current, point
from turret.tower.format.manifest import (
    EXPERIMENT,
    ITEM_FEATURES,
    ITEM_TOWER,
    Manifest,
    MeasuredRecall,
    write_manifest,
)
from turret.tower.index.planner import Planner
from turret.tower.retrieval import Ranking
from turret.tower.tuning.recall import EXACT_QUERIES, measure_recall

if TYPE_CHECKING:
    from turret.tower.bundle.bundle import Bundle


QUERY_VECTORS = "query_vectors.npy"


def query_vectors(bundle: "Bundle") -> NDArray[np.float32]:
    """The user vectors [Q, D] that came with the bundle, or those of its recorded queries.

    Raises BundleError when they can't be read, are not finite, or have another width than the items.
    """
    path = bundle.folder / QUERY_VECTORS
    if not path.exists():
        return recorded_vectors(bundle)
    try:
        vectors: NDArray[np.float32] = open_array(path, "float32")
    except DataError as error:
        raise BundleError(str(error)) from None
    check_queries(vectors, bundle.manifest.dimension)
    return vectors


def recorded_vectors(bundle: "Bundle") -> NDArray[np.float32]:
    """The user vectors [Q, D] of the bundle's recorded queries, encoded by its user tower."""
    queries = load_golden(bundle.folder / "golden.json").queries
    histories = [bundle.vocabulary.known_rows(query.history)[0] for query in queries]
    features, times = [query.features for query in queries], [query.times for query in queries]
    return bundle.encoder.encode(histories, features, times)


def save_queries(folder: Path, vectors: NDArray[np.float32], dimension: int) -> None:
    """Write user vectors [Q, D] into a bundle's folder. Raises BundleError as `check_queries`."""
    check_queries(vectors, dimension)
    save_array(folder / QUERY_VECTORS, np.ascontiguousarray(vectors, dtype=np.float32))


def check_queries(vectors: NDArray[np.float32], dimension: int) -> None:
    """Raise BundleError unless these are finite vectors [Q, D] of width `dimension`, at least one."""
    if vectors.ndim != 2 or not len(vectors) or vectors.shape[1] != dimension:
        raise BundleError(
            f"{QUERY_VECTORS} has shape {vectors.shape} where user vectors of width {dimension} are "
            "expected; export the bundle again"
        )
    if not np.isfinite(vectors).all():
        raise BundleError(f"{QUERY_VECTORS} is not finite; the training went wrong, train again")


@dataclass(frozen=True)
class BundleContents:
    """The contents that training publishes.

    `item_vectors` is float32 [N, D] (of length 1 for cosine), `popularity` int64 [N], `fields` has one
    value a row, `model` is a safetensors file, and `item_features` gives the meaning of its codes.
    `reads_times` says whether the user tower reads times, `data_until`, `kinds`, `default_kind` and
    `exclude_seen` are as in the manifest.
    `experiment` holds the settings of the training, which a warm start needs. `recorded` holds
    queries as `tower.bundle.golden.RecordedQuery` has them, at least one; `expected` one (rows, scores) for
    each: training's own best 20, the items of the history left out, scored as `scoring` says. `query_vectors`
    are float32 [Q, D] of real users, which recall is measured with; without them, those of the recorded
    queries. An `item_tower` comes with `recorded_items`, at least one, and training's own vectors of them.
    `item_map` is for people who look at the catalog.
    """

    version: str
    user_tower: bytes
    item_vectors: NDArray[np.float32]
    vocabulary: Vocabulary
    user_features: tuple[Feature, ...]
    fields: dict[str, list[Any]]
    popularity: NDArray[np.int64]
    scoring: ScoringConfig
    history_length: int
    model: bytes | memoryview
    recorded: Sequence[Mapping[str, Any]]
    expected: Sequence[tuple[NDArray[np.integer[Any]], NDArray[np.floating[Any]]]]
    reads_times: bool = False
    data_until: str | None = None
    kinds: tuple[str, ...] = ()
    default_kind: str | None = None
    exclude_seen: bool = True
    item_features: tuple[Feature, ...] = ()
    item_tower: bytes | None = None
    recorded_items: tuple[RecordedItem, ...] = ()
    experiment: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    query_vectors: NDArray[np.float32] | None = None
    item_map: ItemMap | None = None


_FEATURES = TypeAdapter(tuple[Feature, ...])


def publish(root: Path, contents: BundleContents) -> Path:
    """Write a bundle to `<root>/<version>` and return that folder; the first also becomes current.

    The bundle is written beside its target, replayed through the serving code, and renamed when its answers
    are those of `contents.expected`. Raises BundleError otherwise, or if the version exists.
    """
    check_version(contents.version)
    target = root / contents.version
    with atomic_folder(target) as folder:
        _write(folder, contents)
        check_golden(Bundle.open(folder))
    if current(root) is None:
        point(root, contents.version)
    return target


def _write(folder: Path, contents: BundleContents) -> None:
    vectors = np.ascontiguousarray(contents.item_vectors, dtype=np.float32)
    save_array(folder / "item_vectors.npy", vectors)
    save_array(folder / "popularity.npy", np.asarray(contents.popularity, dtype=np.int64))
    contents.vocabulary.save(folder / "vocabulary.json")
    ids = contents.vocabulary.ids(range(len(contents.vocabulary)))
    named = hash_file(folder / "vocabulary.json").sha256
    Catalog.build(ids, contents.fields, named).save(folder)
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
    if contents.query_vectors is not None:
        save_queries(folder, contents.query_vectors, vectors.shape[1])
    if contents.item_map is not None:
        save_array(folder / MAP_FILE, contents.item_map)
    recall = _record_answers(folder, contents)
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    manifest = _manifest(contents).model_copy(update={"files": files, "recall": recall})
    write_manifest(folder, manifest)


def _record_answers(folder: Path, contents: BundleContents) -> tuple[MeasuredRecall, ...]:
    """Answer the recorded queries from the written files, compare, and write `golden.json`."""
    queries = recorded_queries(contents.recorded)
    if not queries or len(queries) != len(contents.expected):
        raise BundleError(
            f"{len(queries)} recorded queries and {len(contents.expected)} expected answers: give one "
            f"answer for each "
            "query, and at least one query"
        )
    bundle = Bundle(folder, _manifest(contents))
    answers = replay(bundle, queries, GOLDEN_K)
    for i, (expected, served) in enumerate(zip(contents.expected, answers, strict=True)):
        rows, scores = expected
        fault = difference(Ranking(np.asarray(rows, np.int64), np.asarray(scores, np.float32)), served)
        if fault:
            raise BundleError(
                f"recorded query {i} is answered differently by the exported bundle than by training: "
                f"{fault}; "
                f"bundle {contents.version} was not published"
            )
    save_golden(folder / "golden.json", record(bundle, queries, answers, GOLDEN_K))
    sample = query_vectors(bundle)[:EXACT_QUERIES]
    planner = Planner(bundle.index, contents.scoring)
    return measure_recall(planner, bundle.vectors, sample, absolute=contents.scoring.absolute)


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
        data_until=contents.data_until,
        kinds=contents.kinds,
        default_kind=contents.default_kind,
        exclude_seen=contents.exclude_seen,
        metrics=contents.metrics,
        fingerprints=contents.fingerprints,
        files={},
    )
