"""Bundles from runs: what they hold, that they answer as the evaluator does, and what is said."""

import json
import logging
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from tests.support.trained import trained_shop
from tests.tower.small_towers import ITEMS, item_features, no_features
from tests.training.conftest import prepared, trained
from turret.data.features.columns import Bag
from turret.data.prepared import ColdItems, PreparedData
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import difference, load_golden, replay
from turret.tower.config import ScoringConfig
from turret.tower.errors import TowerError
from turret.tower.retrieval import Retriever
from turret.tower.times import Times
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.model import TwoTowers
from turret.training.checkpoint import Progress
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.export import export as export_module
from turret.training.export import item_map
from turret.training.export.export import export, export_warnings
from turret.training.export.item_map import layout, principal_components, project_items, quantised
from turret.training.export.onnx_form import item_tower_onnx, user_tower_onnx
from turret.training.run import Run
from turret.training.verdict.verdict import baseline_findings

# Trained and exported here, each for seconds: scores of either sign, times, biases, and several interests.
OTHERS: dict[str, dict[str, Any]] = {
    "absolute": {"scoring": {"kind": "dot", "temperature": 1.0, "absolute": True}},
    "times": {"user": {"kind": "transformer", "times": True, "history_length": 10, "blocks": 1}},
    "filtered": {"user": {"kind": "transformer", "filter_share": 0.7, "history_length": 3}},
    "item_bias": {"scoring": {"item_bias": True}},
    "interests": {"user": {"kind": "transformer", "interests": 3, "history_length": 10, "blocks": 1}},
}


@dataclass(frozen=True)
class Exported:
    """A run, its data and its bundle. Nobody may write to them."""

    run: Run
    data: PreparedData
    folder: Path

    @cached_property
    def bundle(self) -> Bundle:
        return Bundle.open(self.folder)


@pytest.fixture(
    scope="module",
    params=["ids", "features", *(pytest.param(one, marks=pytest.mark.nightly) for one in OTHERS)],
)
def exported(
    request: pytest.FixtureRequest, shop: PreparedData, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    """On ids alone, with features, and the others."""
    if request.param not in OTHERS:
        kept = trained_shop()
        return Exported(kept.run(request.param), kept.data, kept.bundles / request.param)
    settings = {"tower": OTHERS[request.param], "training": {"epochs": 1, "batch_size": 512, "device": "cpu"}}
    config, folder = ExperimentConfig.model_validate(settings), tmp_path_factory.mktemp("exported")
    run, _ = trained(folder / "run", shop, config)
    return Exported(run, shop, export(run, shop, folder / "bundles", request.param))


def test_the_bundle_answers_what_the_evaluator_ranks(exported: Exported) -> None:
    """For 200 users the retriever over the bundle and the evaluation in torch give the same ten items."""
    data = exported.data
    model = exported.run.open_model(data)
    users = np.flatnonzero(np.diff(data.offsets) > 1)[:200]
    scores_of = tower_scores(model, data, "test", data.item_counts("train"))
    (block,) = rank(scores_of, data, users, "test", 10, True)
    histories = [data.history(user, "test") for user in users.tolist()]
    features = [
        export_module._recorded(data, model, user, [], np.zeros(0, np.float32)).features
        for user in users.tolist()
    ]
    times = []
    for user in users:
        first, end = int(data.offsets[user]), int(data.splits[user, 1])
        times.append(Times(data.times[first:end] / 1e3, float(data.times[end]) / 1e3))
    cold = np.arange(len(data.item_ids), len(exported.bundle.vectors), dtype=np.int32)  # in no evaluation
    excluded = [np.concatenate([history, cold]) for history in histories]
    answers = Retriever(exported.bundle).recommend(histories, features, 10, excluded, times)
    assert [answer.rows.tolist() for answer in answers] == block["all"].tolist()


def test_a_bundle_says_whether_it_reads_times(exported: Exported) -> None:
    """If it does, its recorded queries hold them: other moments would have other answers."""
    bundle = exported.bundle
    reads = exported.run.experiment.tower.user.reads_times
    assert bundle.manifest.reads_times == reads
    golden = load_golden(bundle.folder)
    assert all((one.at is not None) == (one.history_times is not None) for one in golden.queries)
    assert not reads or all(one.at is not None for one in golden.queries)
    if reads:
        late = [one.model_copy(update={"at": (one.at or 0.0) + 40_000_000.0}) for one in golden.queries]
        later = golden.model_copy(update={"queries": tuple(late)})
        apart = zip(replay(bundle, golden), replay(bundle, later), strict=True)
        assert any(difference(one, other) for one, other in apart)


def test_strangers_get_what_is_used_of_late_if_events_weigh_less_with_their_age(tmp_path: Path) -> None:
    """The service and the evaluation agree; items without a half-life are ranked by all events."""
    day, rows = 86_400, []
    for user in range(60):  # item 0 is used by the oldest, item 1 by the newest third, and others by some
        items = [2 + user % 7, int(user >= 40), 2 + (user + 3) % 7]
        begun = 1_500_000_000 + user * 10 * day
        rows += [{"user": f"u{user}", "item": item, "time": begun + at} for at, item in enumerate(items)]
    rows += [{"user": f"v{at}", "item": 1, "time": 1_500_000_000 + (600 + at) * day} for at in range(12)]
    data = prepared(tmp_path / "data", rows, split__kind="time")
    favourites = []
    for half_life, refit in ((0.0, False), (30.0, False), (0.0, True), (30.0, True)):
        training = {"epochs": 1, "half_life": half_life, "refit": refit, "device": "cpu"}
        settings, folder = {"training": training}, tmp_path / f"run{half_life:g}{refit}"
        run, _ = trained(folder / "run", data, ExperimentConfig.model_validate(settings))
        bundle = Bundle.open(export(run, data, folder / "bundles", "v1"))
        answer = Retriever(bundle).popular(5)
        assert answer.scores.tolist() == sorted(answer.scores.tolist(), reverse=True)
        strangers = np.flatnonzero(data.history_ends("test") == np.asarray(data.offsets[:-1]))
        assert len(strangers)
        scores = run.open_ranker(data, "test")(strangers)
        assert (scores.argsort(dim=1, descending=True)[:, :5].numpy() == answer.rows).all()
        favourites.append(data.item_ids.ids(answer.rows[:1].tolist()))
        assert Retriever(bundle).popularity_rank(int(answer.rows[0])) == 1
    assert favourites == [[0], [1]] * 2


def fields_of(bundle: Bundle, rows: range) -> dict[str, list[Any]]:
    items = [bundle.catalog.of(row) for row in rows]
    return {name: [item[name] for item in items] for name in bundle.catalog.kinds}


def test_the_bundle_holds_the_vectors_and_names_of_the_run(exported: Exported) -> None:
    """Vectors, vocabulary, popularity, fields and fingerprints are those of the run and its data."""
    bundle, data = exported.bundle, exported.data
    with torch.no_grad():
        expected = exported.run.open_model(data).catalog_vectors().numpy()
    count = len(data.item_ids)
    np.testing.assert_array_equal(bundle.vectors[:count], expected)
    assert bundle.manifest.version == exported.folder.name
    assert bundle.vocabulary.ids(range(count)) == data.item_ids.ids(range(count))
    assert bundle.popularity[:count].tolist() == data.item_counts("train").tolist()
    assert fields_of(bundle, range(count)) == data.fields
    assert bundle.manifest.fingerprints["data"] == data.fingerprint


def without_tracing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exports take the towers of a bundle: tracing them again takes seconds."""
    for name in ("user_tower", "item_tower"):
        path = folder / f"{name}.onnx"
        exported = path.read_bytes() if path.exists() else None
        monkeypatch.setattr(export_module, f"{name}_onnx", lambda _, exported=exported: exported)


def test_a_tower_that_answers_otherwise_is_not_published(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the ONNX form is of another model, the recorded queries differ and nothing is left behind."""
    without_tracing(exported.folder, monkeypatch)
    wrong = onnx.load(exported.folder / "user_tower.onnx")
    for tensor in wrong.graph.initializer:
        if len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT:
            others = np.random.default_rng(0).standard_normal(tuple(tensor.dims)).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(others, tensor.name))
    monkeypatch.setattr(export_module, "user_tower_onnx", lambda _: wrong.SerializeToString())
    with pytest.raises(TowerError, match="quer"):
        export(exported.run, exported.data, tmp_path / "bundles")
    assert list((tmp_path / "bundles").iterdir()) == []


@pytest.mark.parametrize(("version", "reason"), [("../x", "can't name a version"), ("taken", "exists")])
def test_a_version_is_refused_before_anything_is_computed_or_written(
    version: str, reason: str, shop: PreparedData, evaluated: Run, tmp_path: Path
) -> None:
    """A run without its model could not be exported: nobody asks for it."""
    (tmp_path / "bundles" / "taken").mkdir(parents=True)
    with pytest.raises(TowerError, match=reason):
        export(replace(evaluated, folder=tmp_path / "none"), shop, tmp_path / "bundles", version)
    assert [path.name for path in tmp_path.rglob("*")] == ["bundles", "taken"]


def test_the_bundle_says_how_it_was_trained_and_from_what(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experiment, what the item features are that the towers read, and the bundle gone on from."""
    run, folder = exported.run, exported.folder
    assert json.loads((folder / "experiment.json").read_text()) == run.experiment.model_dump(mode="json")
    stored = json.loads((folder / "item_features.json").read_text())
    rows = run.open_model(exported.data).item.rows
    assert (
        [one["name"] for one in stored] == [one.name for one in rows.layers.features] if rows else not stored
    )
    without_tracing(folder, monkeypatch)
    again = export(replace(run, origin=folder), exported.data, tmp_path / "bundles", "second")
    second, before = Bundle.open(again).manifest.fingerprints, exported.bundle.manifest.fingerprints
    assert second["origin"] == folder.name
    assert "origin" not in before
    assert second["configuration"] != before["configuration"]


def test_items_without_an_event_are_in_the_bundle_by_their_features(exported: Exported) -> None:
    """Behind the rows of the data, encoded as new items are; a tower on ids leaves them out."""
    data, bundle, cold = exported.data, exported.bundle, exported.data.cold_items()
    count, encoder = len(data.item_ids), bundle.item_encoder
    (said,) = (one for one in export_warnings(exported.run, data) if "without an event" in one)
    if encoder is None:
        assert len(bundle.vectors) == count
        assert (
            f"{len(cold.ids)} items without an event are not in the bundle, as the item tower reads" in said
        )
        return
    assert said == f"{len(cold.ids)} items without an event are in the bundle, ranked by their features."
    assert bundle.vocabulary.ids(range(count, len(bundle.vectors))) == cold.ids
    rows = [{name: values[row] for name, values in cold.features.items()} for row in range(len(cold.ids))]
    np.testing.assert_allclose(bundle.vectors[count:], encoder.encode(rows), atol=1e-5)
    assert set(bundle.popularity[count:].tolist()) == {0}
    assert fields_of(bundle, range(count, len(bundle.vectors))) == cold.fields


COSINE = ScoringConfig(kind="cosine", temperature=1.0)


@pytest.mark.parametrize("block", [64, 16_384])
def test_the_plane_is_that_of_the_largest_variance(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the singular value decomposition of the centred vectors."""
    monkeypatch.setattr(item_map, "_BLOCK", block)
    vectors = np.random.default_rng(0).standard_normal((200, 6)) * [1, 5, 1, 3, 1, 1]
    points = principal_components(vectors)
    left, sizes, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    expected = left[:, :2] * sizes[:2]
    signs = np.sign((expected * points).sum(axis=0))
    np.testing.assert_allclose(points, expected * signs, atol=1e-9)


def test_a_map_spans_a_square_around_the_middle_of_its_range() -> None:
    points = quantised(np.array([[-1.0, 2.0], [3.0, 2.0], [1.0, 3.0]]))
    assert points.tolist() == [[0, 24576], [65535, 24576], [32768, 40959]]


def test_the_map_is_the_same_each_time_and_leaves_out_a_bias() -> None:
    vectors = np.random.default_rng(1).standard_normal((80, 5)).astype(np.float32)
    with_bias = np.hstack([vectors, np.full((80, 1), 100.0, np.float32) * np.arange(80)[:, None]])
    scoring = COSINE.model_copy(update={"item_bias": True})
    plain = project_items(vectors, np.arange(len(vectors)), COSINE)
    assert (project_items(with_bias.astype(np.float32), np.arange(len(vectors)), scoring) == plain).all()


@pytest.mark.parametrize("landmarks", [1_000, 60])
def test_items_of_a_group_lie_together_on_the_map(landmarks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups around the corners of a simplex, of which the plane of the largest variance shows two."""
    monkeypatch.setattr(item_map, "LANDMARKS", landmarks)
    groups = np.repeat(np.arange(8), 25)
    noise = 0.2 * np.random.default_rng(2).standard_normal((200, 8))
    vectors = (np.eye(8)[groups] + noise).astype(np.float32)

    def neighbours_of_the_group(points: Any) -> float:
        distances = np.square(points[:, None] - points).sum(axis=2) + np.diag([np.inf] * 200)
        return float((groups[distances.argsort(axis=1)[:, :5]] == groups[:, None]).mean())

    assert neighbours_of_the_group(principal_components(vectors)) < 0.8
    points = project_items(vectors, np.random.default_rng(4).permutation(200), COSINE)
    assert neighbours_of_the_group(points.astype(float)) > 0.95


def test_the_layout_lowers_the_divergence_of_neighbourhoods() -> None:
    """The cost of t-SNE (equation 2), with probabilities by the definitions, below that of the start."""
    vectors = np.random.default_rng(3).standard_normal((60, 6)).astype(np.float32)
    distances = np.square(vectors[:, None] - vectors).sum(axis=2)
    chances = np.zeros((60, 60))
    for row in range(60):
        others = np.arange(60) != row
        low, high = 1e-6, 1e3
        while high / low > 1 + 1e-9:
            precision = np.sqrt(low * high)
            own = np.exp(-precision * (distances[row, others] - distances[row, others].min()))
            own /= own.sum()
            low, high = (precision, high) if -(own * np.log(own)).sum() > np.log(59 / 3) else (low, precision)
        chances[row, others] = own
    joint = (chances + chances.T) / 120

    def divergence(points: Any) -> float:
        kernel = 1 / (1 + np.square(points[:, None] - points).sum(axis=2)) - np.eye(60)
        other = np.maximum(kernel / kernel.sum(), 1e-300)
        return float((joint[joint > 0] * np.log(joint[joint > 0] / other[joint > 0])).sum())

    start = principal_components(vectors)
    least = min(divergence(scale * start) for scale in np.geomspace(1e-2, 1e2, 30))
    assert divergence(layout(vectors)) < 0.8 * least


@pytest.mark.parametrize("vectors", [np.ones((10, 4)), np.ones((1, 4)), np.eye(2), np.eye(5)[:, :1]], ids=len)
def test_few_or_equal_items_have_places_on_the_map(vectors: Any) -> None:
    points = project_items(vectors.astype(np.float32), np.arange(len(vectors)), COSINE)
    assert points.shape == (len(vectors), 2)


def report(low: float, high: float, part: str = "test") -> dict[str, Any]:
    means = {"towers": {"ndcg@10": {"mean": 0.02}}}
    differences = {}
    for name, mean in (("popularity", 0.01), ("last_used", 0.03)):
        means[name] = {"ndcg@10": {"mean": mean}}
        differences[name] = {"ndcg@10": {"mean": 0.02 - mean, "low": low, "high": high}}
    found = list(baseline_findings({**means, "differences": differences}, "ndcg@10"))
    return {part: {"part": part, "verdict": found}}


EVEN, LOST = report(-0.001, 0.002), report(-0.02, -0.001)
WARM = Path("var/bundles/spring")
UNIMPROVED = Progress(epoch=3, best=0.1, best_epoch=0)


@pytest.mark.parametrize(
    ("reports", "origin", "progress", "sentence"),
    [
        (EVEN, None, None, None),
        ({}, None, None, "This model was never evaluated; `turret evaluate var/run`"),
        (
            {**report(0.001, 0.002, "validation"), **LOST},
            None,
            None,
            "On the test part a baseline beats this model. Worse than last used items: ndcg@10 is 0.0200",
        ),
        (report(-0.2, -0.1, "validation"), None, None, "On the validation part a baseline beats this model."),
        (EVEN, WARM, UNIMPROVED, "no epoch was better on the validation part than the bundle spring"),
        (EVEN, WARM, Progress(epoch=3, best=0.1, best_epoch=1), None),
        (EVEN, None, UNIMPROVED, None),
    ],
)
def test_what_an_export_warns_of(
    reports: dict[str, Any],
    origin: Path | None,
    progress: Progress | None,
    sentence: str | None,
    handmade: PreparedData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each sentence in a case with it and in one without it."""
    monkeypatch.setattr(Run, "metrics", lambda _: reports)
    monkeypatch.setattr(Run, "progress", lambda _: progress)
    monkeypatch.setattr(PreparedData, "cold_items", lambda _: ColdItems())
    run = Run(Path("var/run"), load_experiment("demo"), Path("data"), "f", origin)
    said = list(export_warnings(run, handmade))
    assert len(said) == (sentence is not None)
    assert sentence is None or sentence in said[0]


def model(**changes: object) -> TwoTowers:
    """Towers over nine items, none of whose parameters is as it began."""
    item = {"features": "all", "feature_width": 4, "hidden": [7], **changes}
    scoring = item.pop("scoring", {})
    config = TowerConfig.model_validate(
        {"dimension": 6, "item": item, "scoring": scoring, "user": {"hidden": [7], "dropout": 0.0}}
    )
    made = TwoTowers(config, ITEMS, item_features(), no_features(4)).eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in made.item.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
        for name, parameter in made.item.rows.named_parameters() if made.item.rows else ():
            assert name.endswith("weight")
            parameter[0] = 0.0  # code 0 stands for nothing
    return made


def inputs() -> dict[str, NDArray[Any]]:
    """The nine items' features as the exported tower reads them, written out from the prepared columns."""
    prepared = item_features().columns
    found: dict[str, NDArray[Any]] = {
        "feature_brand": np.asarray(prepared["brand"], dtype=np.int64),
        "feature_price": np.asarray(prepared["price"], dtype=np.float32),
    }
    for name in ("title", "genres"):
        bag = prepared[name]
        assert isinstance(bag, Bag)
        codes = np.zeros((ITEMS, 5), dtype=np.int64)
        for row in range(ITEMS):
            codes[row, : len(bag.row(row))] = bag.row(row)
        found[f"feature_{name}"] = codes
    return found


CASES: dict[str, dict[str, Any]] = {
    "dropped ids": {"id_dropout": 0.3},
    "kept ids": {},
    "no id": {"id": False},
    "bias": {"scoring": {"item_bias": True}},
    "pairs": {"scoring": {"pairs": 3}},
}


@pytest.mark.parametrize(
    "case", [*list(CASES)[:2], *(pytest.param(one, marks=pytest.mark.nightly) for one in list(CASES)[2:])]
)
def test_onnx_gives_what_torch_gives_items_that_were_never_trained_on(case: str) -> None:
    """Features as they are; for the id zeros where ids were dropped in training, and the mean elsewhere."""
    made = model(**CASES[case])
    if count := made.config.scoring.pairs:
        made.pairs = torch.zeros(ITEMS, count)  # an item that is new has no pairs
    exported = item_tower_onnx(made)
    assert exported is not None
    (ours,) = onnxruntime.InferenceSession(exported).run(["item_vector"], inputs())
    with torch.no_grad():
        if made.item.table is not None:
            mean = made.item.table.weight.mean(dim=0)
            made.item.table.weight[:] = torch.zeros(6) if case == "dropped ids" else mean
        expected = made.catalog_vectors()
    np.testing.assert_allclose(ours, expected.numpy(), atol=1e-6)


def test_a_failed_export_leaves_the_log_level_of_the_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    monkeypatch.setattr(log, "level", logging.INFO)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(torch.onnx, "export", fail)
    run = trained_shop().run()
    with pytest.raises(RuntimeError, match="no such operator"):
        user_tower_onnx(run.open_model(trained_shop().data))
    assert log.level == logging.INFO
