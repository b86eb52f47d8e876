"""Publication of a bundle, and of it with another index: written beside its target, replayed, renamed."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.features import Feature
from turret.data.files import open_array, save_array
from turret.data.kinds import KindTable, Seen
from turret.data.manifest import hash_file
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import (
    GOLDEN_K,
    RecordedItem,
    RecordedQuery,
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
    INDEX,
    ITEM_FEATURES,
    ITEM_TOWER,
    Manifest,
    MeasuredRecall,
    write_manifest,
)
from turret.tower.index.planner import Planner
from turret.tower.inference.feature_inputs import FEATURES
from turret.tower.repeats import RepeatTerm
from turret.tower.retrieval import Ranking
from turret.tower.tuning.choice import Chosen, IndexRequest, choose
from turret.tower.tuning.recall import EXACT_QUERIES, check_recall, measure_recall

QUERY_VECTORS, GOLDEN = "query_vectors.npy", "golden.json"


def query_vectors(bundle: Bundle) -> NDArray[np.float32]:
    """The user vectors [Q, D] that came with the bundle, or those of its recorded queries.

    Raises BundleError when they can't be read, are not finite, or have another width than the items.
    """
    path = bundle.folder / QUERY_VECTORS
    if not path.exists():
        queries = load_golden(bundle.folder / GOLDEN).queries
        histories = [bundle.vocabulary.known_rows(query.history)[0] for query in queries]
        features, times = [query.features for query in queries], [query.times for query in queries]
        kinds = [query.kinds(bundle.manifest) for query in queries]
        return bundle.encoder.encode(histories, features, times, kinds=kinds)
    try:
        vectors: NDArray[np.float32] = open_array(path, "float32")
    except DataError as error:
        raise BundleError(str(error)) from None
    check_queries(vectors, bundle.manifest.dimension)
    return vectors


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
    `reads_times`, `reads_queries`, `reads_kinds`, `catalog_time`, `data_until`, `kinds`, `default_kind`,
    `exclude_seen` and `repeats` are as in the manifest.
    `experiment` holds the settings of the training, which a warm start needs. `recorded` holds
    queries as `tower.bundle.golden.RecordedQuery` has them, at least one; `expected` one (rows, scores) for
    each: training's own best 20, the items of the history left out unless there is a repeat term, scored as
    `scoring` says. `query_vectors`
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
    reads_queries: bool = False
    catalog_time: str | None = None
    data_until: str | None = None
    kinds: KindTable = field(default_factory=dict)
    default_kind: str | None = None
    reads_kinds: bool = False
    exclude_seen: Seen = True
    repeats: RepeatTerm | None = None
    item_features: tuple[Feature, ...] = ()
    item_tower: bytes | None = None
    recorded_items: tuple[RecordedItem, ...] = ()
    experiment: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    query_vectors: NDArray[np.float32] | None = None
    item_map: ItemMap | None = None


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
    (folder / "user_features.json").write_bytes(FEATURES.dump_json(contents.user_features))
    (folder / "user_tower.onnx").write_bytes(contents.user_tower)
    (folder / "model.safetensors").write_bytes(contents.model)
    if contents.experiment:
        (folder / EXPERIMENT).write_text(json.dumps(contents.experiment, indent=2), encoding="utf-8")
    if contents.experiment or contents.item_tower:
        (folder / ITEM_FEATURES).write_bytes(FEATURES.dump_json(contents.item_features))
    if contents.item_tower:
        (folder / ITEM_TOWER).write_bytes(contents.item_tower)
        record_items(folder, contents.recorded_items, contents.vocabulary)
    if contents.query_vectors is not None:
        check_queries(contents.query_vectors, vectors.shape[1])
        save_array(folder / QUERY_VECTORS, np.ascontiguousarray(contents.query_vectors, dtype=np.float32))
    if contents.item_map is not None:
        save_array(folder / MAP_FILE, contents.item_map)
    recall = _compare_answers(folder, contents)
    _seal(folder, _manifest(contents).model_copy(update={"recall": recall}))


def _compare_answers(folder: Path, contents: BundleContents) -> tuple[MeasuredRecall, ...]:
    """Record the answers to the recorded queries, compare them with those of training, and measure recall."""
    queries = recorded_queries(contents.recorded)
    if not queries or len(queries) != len(contents.expected):
        raise BundleError(
            f"{len(queries)} recorded queries and {len(contents.expected)} expected answers: give one "
            "answer for each query, and at least one query"
        )
    bundle = Bundle(folder, _manifest(contents))
    answers = _record_answers(bundle, queries, GOLDEN_K)
    for i, (expected, served) in enumerate(zip(contents.expected, answers, strict=True)):
        rows, scores = expected
        fault = difference(Ranking(np.asarray(rows, np.int64), np.asarray(scores, np.float32)), served)
        if fault:
            raise BundleError(
                f"recorded query {i} is answered differently by the exported bundle than by training: "
                f"{fault}; bundle {contents.version} was not published"
            )
    sample = query_vectors(bundle)[:EXACT_QUERIES]
    planner = Planner(bundle.index, contents.scoring)
    return measure_recall(planner, bundle.vectors, sample, absolute=contents.scoring.absolute)


def _record_answers(bundle: Bundle, queries: Sequence[RecordedQuery], k: int) -> list[Ranking]:
    """Answer the recorded queries from the written files, and write `golden.json`."""
    answers = replay(bundle, queries, k)
    save_golden(bundle.folder / GOLDEN, record(bundle, queries, answers, k))
    return answers


def _seal(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, with the checksums of all other files."""
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    write_manifest(folder, manifest.model_copy(update={"files": files}))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _manifest(contents: BundleContents) -> Manifest:
    item_count, dimension = contents.item_vectors.shape
    # The fields that both have mean the same.
    shared = {name: getattr(contents, name) for name in Manifest.model_fields if hasattr(contents, name)}
    return Manifest(**shared, created=_now(), dimension=dimension, item_count=item_count, files={})


def reindex(
    folder: Path,
    request: IndexRequest,
    version: str | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Path:
    """Publish the bundle in `folder` once more, beside it, with the index that `request` describes.

    Unchanged files are copied, not linked: damage to one version must not reach the other. The
    recorded queries are answered anew by the new index. `version` is by default the old one
    with the kind behind it. Nothing moves the `current` pointer.

    Raises BundleError when the bundle fails a check, the version exists, or the index misses the recall.
    """
    old = Bundle.open(folder)
    check_golden(old)
    if version is not None:
        new_target(folder.parent, version)
    scoring = old.manifest.scoring
    chosen = choose(old.vectors, query_vectors(old), scoring, request, report)
    kind = chosen.made.settings.kind
    check_recall(chosen.recall, request.recall, kind)
    target = new_target(folder.parent, version or derived_version(old.manifest.version, kind))
    publish_chosen(old, chosen, target)
    return target


def publish_chosen(old: Bundle, chosen: Chosen, target: Path) -> None:
    """Publish a bundle once more, as `target`, with a chosen index. Raises BundleError as `reindex`."""
    with atomic_folder(target) as written:
        _write_derived(written, old, chosen, target.name)
        check_golden(Bundle.open(written))


def derived_version(version: str, kind: str) -> str:
    """The name of a version with another index where none was given."""
    return f"{version[: 63 - len(kind)]}-{kind}"


def new_target(root: Path, version: str) -> Path:
    """The folder of a new version in `root`. Raises BundleError where it exists or can't have this name."""
    check_version(version)
    target = root / version
    if target.exists():
        raise BundleError(f"{target} exists, and a published bundle is never changed; name another --version")
    return target


def _write_derived(folder: Path, old: Bundle, chosen: Chosen, version: str) -> None:
    for name in set(old.manifest.files) - {INDEX, GOLDEN}:
        shutil.copyfile(old.folder / name, folder / name)
    chosen.made.save(folder / INDEX)
    changes = {
        "version": version,
        "created": _now(),
        "exported": old.manifest.exported or old.manifest.created,
        "index": chosen.made.settings,
        "index_choice": chosen.choice,
        "recall": chosen.recall,
        "fingerprints": {**old.manifest.fingerprints, "reindexed": old.manifest.version},
        "files": {},
    }
    manifest = old.manifest.model_copy(update=changes)
    golden = load_golden(old.folder / GOLDEN)
    _record_answers(Bundle(folder, manifest), golden.queries, golden.k)
    _seal(folder, manifest)
