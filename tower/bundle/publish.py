"""Publication of a bundle, also with another index: it is written beside its target, replayed, renamed."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.configuration import NO_DISPLAY, DisplaySettings
from turret.data.errors import DataError
from turret.data.features.feature import Feature
from turret.data.files import open_array
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import Golden, check_golden, load_golden, replay
from turret.tower.catalog.catalog import Catalog
from turret.tower.errors import BundleError
from turret.tower.format.listing import atomic_folder, check_version, current, point
from turret.tower.format.manifest import (
    EXPERIMENT,
    GOLDEN,
    INDEX,
    ITEM_FEATURES,
    ITEM_MAP,
    ITEM_TOWER,
    ITEM_WEIGHTS,
    QUERY_VECTORS,
    Manifest,
    ModelCard,
    write_manifest,
)
from turret.tower.index.index import ExactIndex
from turret.tower.index.planner import Planner
from turret.tower.inference.feature_inputs import FEATURES
from turret.tower.tuning.choice import Chosen, IndexRequest, choose
from turret.tower.tuning.recall import EXACT_QUERIES, check_recall, measure_recall


@dataclass(frozen=True)
class BundleContents:
    """The contents that training publishes.

    `item_vectors` is float32 [N, D] (of length 1 for cosine), `popularity` int64 [N],
    `usual_gaps` float32 [N] (None: all unknown). Each of `fields` has one value a row. `model` is a
    safetensors file, and `item_features` gives the meaning of its codes. `experiment` holds the settings of
    the training, which a warm start needs. `golden` holds queries with training's own best items, scored as
    `card.scoring` says and without the items of the history unless there is a repeat term; it also holds
    items where there is an `item_tower`. `query_vectors` float32 [Q, D] are the user vectors by which recall
    is measured. `item_map` and `display` are for people who look at the catalog.
    """

    card: ModelCard
    user_tower: bytes
    item_vectors: NDArray[np.float32]
    vocabulary: Vocabulary
    user_features: tuple[Feature, ...]
    fields: dict[str, list[Any]]
    popularity: NDArray[np.int64]
    model: bytes | memoryview
    golden: Golden
    query_vectors: NDArray[np.float32]
    item_features: tuple[Feature, ...] = ()
    usual_gaps: NDArray[np.float32] | None = None
    item_tower: bytes | None = None
    experiment: dict[str, Any] = field(default_factory=dict)
    item_map: NDArray[np.uint16] | None = None
    item_weights: NDArray[np.float64] | None = None
    display: DisplaySettings = NO_DISPLAY


def publish(root: Path, contents: BundleContents) -> Path:
    """Write a bundle to `<root>/<version>` and return that folder; the first bundle also becomes current.

    The bundle is written beside its target, replayed through the serving code, and renamed when its answers
    are those of `contents.golden`. Raises BundleError otherwise, or if the version exists.
    """
    target = new_target(root, contents.card.version)
    with atomic_folder(target) as folder:
        _write(folder, contents)
        check_golden(Bundle.open(folder))
    if current(root) is None:
        point(root, target.name)
    return target


def _write(folder: Path, contents: BundleContents) -> None:
    vectors = np.ascontiguousarray(contents.item_vectors, dtype=np.float32)
    queries = np.ascontiguousarray(contents.query_vectors, dtype=np.float32)
    _check_queries(queries, vectors.shape[1])
    np.save(folder / "item_vectors.npy", vectors, allow_pickle=False)
    np.save(folder / QUERY_VECTORS, queries, allow_pickle=False)
    np.save(folder / "popularity.npy", np.asarray(contents.popularity, dtype=np.int64), allow_pickle=False)
    if contents.item_weights is not None:
        np.save(folder / ITEM_WEIGHTS, np.asarray(contents.item_weights, np.float64), allow_pickle=False)
    gaps = np.zeros(len(vectors)) if contents.usual_gaps is None else contents.usual_gaps
    np.save(folder / "usual_gaps.npy", np.asarray(gaps, dtype=np.float32), allow_pickle=False)
    contents.vocabulary.save(folder / "vocabulary.json")
    ids = contents.vocabulary.ids(range(len(contents.vocabulary)))
    Catalog.build(ids, contents.fields, contents.display).save(folder)
    (folder / "user_features.json").write_bytes(FEATURES.dump_json(contents.user_features))
    (folder / "user_tower.onnx").write_bytes(contents.user_tower)
    (folder / "model.safetensors").write_bytes(contents.model)
    _write_golden(folder, contents.golden)
    (folder / EXPERIMENT).write_text(json.dumps(contents.experiment, indent=2), encoding="utf-8")
    (folder / ITEM_FEATURES).write_bytes(FEATURES.dump_json(contents.item_features))
    if contents.item_tower:
        (folder / ITEM_TOWER).write_bytes(contents.item_tower)
    if contents.item_map is not None:
        np.save(folder / ITEM_MAP, contents.item_map, allow_pickle=False)
    count, dimension = vectors.shape
    scoring = contents.card.scoring
    planner = Planner(ExactIndex(vectors), scoring)
    recall = measure_recall(planner, queries[:EXACT_QUERIES])
    card = contents.card.model_dump()
    details = {"created": _now(), "dimension": dimension, "item_count": count, "recall": recall, "files": {}}
    write_manifest(folder, Manifest.model_validate(card | details))


def _write_golden(folder: Path, golden: Golden) -> None:
    (folder / GOLDEN).write_text(golden.model_dump_json(), encoding="utf-8")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def query_vectors(bundle: Bundle) -> NDArray[np.float32]:
    """The user vectors [Q, D] that came with the bundle.

    Raises BundleError when they can't be read, are not finite, or have another width than the items.
    """
    try:
        vectors: NDArray[np.float32] = open_array(bundle.folder / QUERY_VECTORS, "float32")
    except DataError as error:
        raise BundleError(str(error)) from None
    _check_queries(vectors, bundle.manifest.dimension)
    return vectors


def _check_queries(vectors: NDArray[np.float32], dimension: int) -> None:
    if vectors.ndim != 2 or not len(vectors) or vectors.shape[1] != dimension:
        raise BundleError(
            f"{QUERY_VECTORS} has shape {vectors.shape} where user vectors of width {dimension} are "
            "expected; export the bundle again"
        )
    if not np.isfinite(vectors).all():
        raise BundleError(f"{QUERY_VECTORS} is not finite; the training went wrong, train again")


def reindex(
    folder: Path,
    request: IndexRequest,
    version: str | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Path:
    """Publish the bundle in `folder` once more, beside it, with the index that `request` describes.

    `version` is by default the old version with the kind behind it. Nothing moves the `current` pointer.

    Raises BundleError when the bundle fails a check, the version exists, or the index misses the recall.
    """
    old = Bundle.open(folder)
    check_golden(old)
    if version is not None:
        new_target(folder.parent, version)
    scoring = old.manifest.scoring
    chosen = choose(old.vectors, query_vectors(old), scoring, request, report)
    kind = chosen.built_index.settings.kind
    check_recall(chosen.recall, request.recall, kind)
    target = new_target(folder.parent, version or derived_version(old.manifest.version, kind))
    publish_chosen(old, chosen, target)
    return target


def publish_chosen(old: Bundle, chosen: Chosen, target: Path) -> None:
    """Publish a bundle once more, as `target`, with a chosen index. Raises BundleError as `reindex`.

    Unchanged files are copied, not linked: damage to one version must not reach the other. The recorded
    queries are answered anew by the new index.
    """
    changes = {
        "version": target.name,
        "created": _now(),
        "exported": old.manifest.exported or old.manifest.created,
        "index": chosen.built_index.settings,
        "index_choice": chosen.choice,
        "recall": chosen.recall,
        "fingerprints": {**old.manifest.fingerprints, "reindexed": old.manifest.version},
    }
    manifest = old.manifest.model_copy(update=changes)
    with atomic_folder(target) as folder:
        for name in set(old.manifest.files) - {INDEX, GOLDEN}:
            shutil.copyfile(old.folder / name, folder / name)
        chosen.built_index.save(folder / INDEX)
        golden = load_golden(old.folder)
        answers = replay(Bundle(folder, manifest), golden)
        queries = tuple(
            query.model_copy(
                update={
                    "items": tuple(old.vocabulary.ids(answer.rows)),
                    "scores": tuple(answer.scores.tolist()),
                }
            )
            for query, answer in zip(golden.queries, answers, strict=True)
        )
        _write_golden(folder, golden.model_copy(update={"queries": queries}))
        write_manifest(folder, manifest)
        check_golden(Bundle.open(folder))


def derived_version(version: str, kind: str) -> str:
    """The default name of a version with another index: the old name with the kind behind it."""
    return f"{version[: 63 - len(kind)]}-{kind}"


def new_target(root: Path, version: str) -> Path:
    """The folder of a new version in `root`. Raises BundleError where it exists or can't have this name."""
    check_version(version)
    target = root / version
    if target.exists():
        raise BundleError(f"{target} exists, and a published bundle is never changed; name another --version")
    return target
