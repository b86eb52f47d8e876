"""Publish the model of a run as a bundle."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turret.data.kinds import read_kinds
from turret.data.prepared import ColdItems, PreparedData
from turret.data.progress import counted, progress
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.golden import GOLDEN_K, Golden, GoldenQuery, RecordedItem
from turret.tower.bundle.publish import BundleContents, new_target, publish
from turret.tower.format.listing import draft_folder
from turret.tower.format.manifest import ModelCard
from turret.tower.inference.feature_inputs import FeatureInputs
from turret.tower.repeats import RepeatTerm
from turret.tower.towers.model import TwoTowers
from turret.training.batches.event_times import request_times, seconds
from turret.training.checkpoint import save_tensors
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import user_scores, user_vectors
from turret.training.evaluation.repeats import usual_gaps, with_repeats
from turret.training.evaluation.seen import mask, seen_pairs
from turret.training.evaluation.top_rows import top_rows
from turret.training.export.item_map import project_items
from turret.training.export.onnx_form import ServedItemTower, item_tower_onnx, user_tower_onnx
from turret.training.randomness import stream
from turret.training.run import Run, refit_findings
from turret.training.verdict.verdict import best_baseline_finding

RECORDED_QUERIES, RECORDED_ITEMS = 64, 16
# The index gets so many user vectors: up to 1,000 measure its recall, the others train it.
QUERY_VECTORS, _USERS_A_BLOCK = 4000, 512
# So many items pass the tower at once, by their ids and by their features.
_BLOCK, _ENCODED = 65_536, 8192
# Golden queries are read and answered whenever the bundle is opened, so histories are short.
_RECORDED_HISTORY = 1000


def configuration_fingerprint(run: Run) -> str:
    """SHA-256 of the settings, the fingerprint of the data and the name of the parent bundle."""
    settings = json.dumps(run.experiment.model_dump(mode="json"), sort_keys=True)
    origin = f"\n{run.origin.name}" if run.origin else ""
    return hashlib.sha256(f"{settings}\n{run.fingerprint}{origin}".encode()).hexdigest()


def export(run: Run, data: PreparedData, bundles: Path, version: str | None = None) -> Path:
    """Publish the run's model as a bundle in `bundles`, and return the bundle's folder.

    The exported ONNX user tower answers golden queries; publishing fails if the answers differ from those of
    the model in torch.

    Raises:
        TrainingError: the run has no model, its loss does not rank by an inner product, or no user has a
            history.
        TowerError: the answers of the exported model differ, or the version exists or can't have this name.
    """
    loss = run.experiment.objective.loss
    if not loss.servable:
        raise TrainingError(
            f"{run.folder}: objective.loss = {loss.kind!r} does not rank items by an inner product, so no "
            "index of item vectors can serve it; it is for comparisons only. Train with 'full_softmax' or "
            "'sampled_softmax' to export."
        )
    if version is None:
        # Names sort by time.
        version = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{configuration_fingerprint(run)[:6]}"
    target = new_target(bundles, version)
    with progress("exporting"), draft_folder(target) as work:
        return publish(bundles, _contents(run, data, version, work))


def _contents(run: Run, data: PreparedData, version: str, work: Path) -> BundleContents:
    """The contents of the bundle, the largest of them in files of `work`."""
    model = run.open_model(data)
    users = _some_users(data, RECORDED_QUERIES, "recorded queries", _RECORDED_HISTORY)
    cold = data.cold_items()
    encoded = cold_vectors(model, cold)
    if encoded is None:
        cold = ColdItems()
    vectors = mapped_vectors(model, work / "item_vectors.npy", encoded)
    items, vocabulary = torch.from_numpy(vectors), data.item_ids
    if cold.ids:  # cold items come last: no row of the data changes
        ids = [*vocabulary.ids(range(len(vocabulary))), *cold.ids]
        vocabulary = Vocabulary(ids)  # type: ignore[arg-type]
    popularity = np.concatenate([data.item_counts("train"), np.zeros(len(cold.ids), dtype=np.int64)])
    weights = np.concatenate([run.item_weights(data), np.zeros(len(cold.ids))])
    # Warm starts validate on the validation part again, so this is the model that was not trained on it.
    save_tensors(work / "model.safetensors", run.open_model(data, "validation").state_dict())
    term = run.repeats()
    queries = [
        _recorded(data, model, user, vocabulary.ids(rows), scores)
        for user, (rows, scores) in zip(
            users.tolist(), _expected(data, model, items, users, term), strict=True
        )
    ]
    return BundleContents(
        card=_card(run, data, model, version),
        user_tower=user_tower_onnx(model),
        item_vectors=vectors,
        vocabulary=vocabulary,
        user_features=model.request_features,
        fields={name: [*values, *cold.fields.get(name, [])] for name, values in data.fields.items()},
        popularity=popularity,
        item_weights=None if np.array_equal(weights, popularity) else weights,
        usual_gaps=np.concatenate([usual_gaps(data), np.zeros(len(cold.ids), dtype=np.float32)]),
        model=np.memmap(work / "model.safetensors", np.uint8, "r").data,
        golden=Golden(queries=tuple(queries), items=_recorded_items(data, model)),
        item_features=model.item.rows.layers.features if model.item.rows else (),
        item_tower=item_tower_onnx(model),
        experiment=run.experiment.model_dump(mode="json"),
        query_vectors=_query_vectors(data, model, items),
        item_map=project_items(vectors, popularity, run.experiment.tower.scoring),
        display=data.display,
    )


def _card(run: Run, data: PreparedData, model: TwoTowers, version: str) -> ModelCard:
    user, settings = run.experiment.tower.user, data.manifest.settings
    filters = settings["filters"]
    return ModelCard(
        version=version,
        catalog_time=data.manifest.catalog_time,
        data_until=data.manifest.time.until,
        kinds=data.manifest.kinds,
        default_kind=data.manifest.default_kind,
        duplicates=filters["duplicates"],
        session_gap=filters["session_gap"],
        reads_kinds=model.kinds is not None,
        context=model.context_names,
        scoring=model.scoring,
        history_length=user.history_length,
        reads_times=user.reads_times,
        reads_queries=data.has_queries,
        reads_sets=model.reads_sets,
        interests=user.interests,
        exclude_seen=run.experiment.evaluation.exclude_seen,
        repeats=run.repeats(),
        keeps_html=settings["format"].get("keep_html", True),  # older data was read as it was
        metrics=run.metrics(),
        fingerprints={
            "data": data.fingerprint,
            "configuration": configuration_fingerprint(run),
            **({"origin": run.origin.name} if run.origin else {}),
        },
    )


def _some_users(data: PreparedData, most: int, purpose: str, longest: int | None = None) -> NDArray[np.int64]:
    """Draw users with a history, preferably of at most `longest` events, deterministically for the data."""
    sizes = np.diff(data.offsets)
    users = np.flatnonzero(sizes > 0)
    if not len(users):
        raise TrainingError(
            f"{data.folder}: no user has a history, so golden queries can't be recorded; "
            "prepare data with longer histories."
        )
    if longest is not None and (sizes[users] <= longest).any():
        users = users[sizes[users] <= longest]
    return np.sort(stream(0, purpose, 0).choice(users, min(most, len(users)), replace=False))


def _query_vectors(data: PreparedData, model: TwoTowers, items: torch.Tensor) -> NDArray[np.float32]:
    """The vectors [Q, D] of some users at the end of their histories: each interest is a search."""
    users = _some_users(data, QUERY_VECTORS // model.config.user.interests, "query vectors")
    blocks = np.array_split(users, range(_USERS_A_BLOCK, len(users), _USERS_A_BLOCK))
    with torch.no_grad():
        vectors = torch.cat([user_vectors(model, items, data, block, "end") for block in blocks])
    return vectors.flatten(0, -2).cpu().numpy()


def _recorded(
    data: PreparedData,
    model: TwoTowers,
    user: int,
    items: Sequence[int | str],
    scores: NDArray[np.float32],
) -> GoldenQuery:
    """The user's history, features and context as a request, and the best items with their scores.

    The kinds and times are those of the data, whether or not this model reads them: the gate replays the
    query on later versions, which may. With times, the request is at the moment that evaluation assumes.
    """
    first, end = data.offsets[user : user + 2].tolist()
    raw, context = data.user_values(user), data.context_values(user, end)
    features = model.user.rows.layers.features if model.user.rows else ()
    recorded: dict[str, Any] = {
        "history": data.item_ids.ids(data.history(user, "end")),
        "features": {feature.name: raw[feature.name] for feature in features if feature.name in raw},
        "context": {name: context[name] for name in model.context_names if name in context},
        "items": items,
        "scores": scores.tolist(),
    }
    if data.kinds is not None:
        names = read_kinds(data.manifest.kinds)
        recorded["history_kinds"] = [names[code] for code in data.kinds[first:end]]
    if data.manifest.time.kind == "timestamp":
        (requested,) = request_times(data, np.array([user]), np.array([end]))
        recorded["history_times"] = seconds(data, np.arange(first, end)).tolist()
        recorded["at"] = float(requested)
    return GoldenQuery.model_validate(recorded)


def _expected(
    data: PreparedData,
    model: TwoTowers,
    items: torch.Tensor,
    users: NDArray[np.int64],
    term: RepeatTerm | None,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The answers of the torch model to the golden queries: the best rows and their scores.

    Items of the history are left out, or ranked by a repeat term if there is one.
    """
    if term is None:
        scores = user_scores(model, items, data, users, "end")
        mask(scores, seen_pairs(data, users, "end"))
    else:
        scores_of = partial(user_scores, model, items, data, until="end")
        scores = with_repeats(scores_of, term, data, "end")(users)
    rows = top_rows(scores, GOLDEN_K)
    best = scores.gather(1, rows.clamp(min=0))
    valid = (rows >= 0).numpy()
    return [(rows[i].numpy()[valid[i]], best[i].numpy()[valid[i]]) for i in range(len(users))]


def _recorded_items(data: PreparedData, model: TwoTowers) -> tuple[RecordedItem, ...]:
    """Draw items deterministically for the data and encode them by their features, for the golden file.

    The features are the vectors and the stored fields of the catalog; others can't be recorded, as the codes
    of a text can't be decoded.
    """
    if model.item.rows is None:
        return ()
    count = len(data.item_ids)
    drawn = stream(0, "recorded items", 0).choice(count, min(RECORDED_ITEMS, count), replace=False)
    rows = np.sort(drawn).tolist()
    fields = [
        {**{name: values[row] for name, values in data.fields.items()}, **data.item_features.vectors(row)}
        for row in rows
    ]
    read, vectors = encoded_by_features(model, fields)
    return tuple(
        RecordedItem(id=item_id, features=features, vector=tuple(vector))
        for item_id, features, vector in zip(data.item_ids.ids(rows), read, vectors.tolist(), strict=True)
    )


def export_warnings(run: Run, data: PreparedData) -> Iterator[str]:
    """Yield a sentence for each: the model was not evaluated, a baseline is better, a warm start is no gain.

    Another sentence says whether items without an event are in the bundle. The figures are those of the test
    part if it was evaluated, else of the validation part.
    """
    reports = run.metrics()
    report = reports.get("test") or reports.get("validation")
    if report is None:
        yield f"This model was never evaluated; `turret evaluate {run.folder}` compares it with baselines."
    elif (best := best_baseline_finding(report)) and best["figures"]["result"] == "worse":
        yield f"On the {report['part']} part a baseline beats this model. {best['sentence']}"
    for finding in (report or {}).get("verdict", ()):
        if finding["kind"] == "slot" and finding["figures"]["result"] == "worse":
            yield f"A baseline beats this model in one half of the answers. {finding['sentence']}"
    yield from (finding["sentence"] for finding in refit_findings(run))
    progress = run.progress()
    if run.origin and progress and progress.best is not None and progress.best_epoch == 0:
        yield (
            f"This warm start improved nothing: no epoch was better on the validation part than the bundle "
            f"{run.origin.name}, whose weights these are."
        )
    if count := len(data.cold_items().ids):
        reads = run.open_model(data).item.rows is not None
        there = "in the bundle, ranked by their features"
        there = there if reads else "not in the bundle, as the item tower reads no features"
        yield f"{counted(count, 'item')} without an event are {there}."


@torch.no_grad()
def mapped_vectors(
    model: TwoTowers, path: Path, cold: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Write the scored vectors of the catalog, and behind them `cold` [C, D], to the `.npy` file `path`.

    Returns the vectors of the file [N + C, D], mapped.
    """
    count = model.item.item_count + (0 if cold is None else len(cold))
    shape = (count, model.width)
    # `write` raises OSError on a full disk; a write to mapped memory would end the process by SIGBUS.
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for rows in torch.split(torch.arange(model.item.item_count), _BLOCK):
            file.write(np.ascontiguousarray(model.item_vectors(rows).numpy()).data)
        if cold is not None:
            file.write(np.ascontiguousarray(cold).data)
    # The mapping is writable, as torch warns of tensors that are not; nothing writes to it.
    vectors: NDArray[np.float32] = np.load(path, mmap_mode="r+")
    return vectors


@torch.no_grad()
def cold_vectors(model: TwoTowers, items: ColdItems) -> NDArray[np.float32] | None:
    """Encode items without an event as scored vectors [C, D], as the service encodes new items.

    The result is None if there are no items, or the tower reads no features.
    """
    if model.item.rows is None or not items.ids:
        return None
    parts = (slice(first, first + _ENCODED) for first in range(0, len(items.ids), _ENCODED))
    return np.concatenate([encoded_by_features(model, items.rows(part))[1] for part in parts])


@torch.no_grad()
def encoded_by_features(
    model: TwoTowers, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], NDArray[np.float32]]:
    """The features that the served item tower reads from these fields, and its scored vectors [R, D]."""
    served = ServedItemTower(model).eval().cpu()
    inputs = FeatureInputs(served.features, "item")
    read = [inputs.readable(row) for row in rows]
    blocks = [
        (positions, served(*map(torch.from_numpy, block.values())))
        for positions, block in inputs.blocks(read)
    ]
    order = np.concatenate([positions for positions, _ in blocks])
    return read, torch.cat([vectors for _, vectors in blocks]).numpy()[np.argsort(order)]
