import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from turret.data.prepared import PreparedData
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import difference, load_golden, replay
from turret.tower.errors import TowerError
from turret.tower.retrieval.retriever import Retriever
from turret.tower.times import Times
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.export import export as export_module
from turret.training.export.export import export
from turret.training.run import Run
from turret.training.trainer import train

FEATURES = {"user": {"features": "all"}, "item": {"features": "all", "hidden": [32]}}
TIMES = {"user": {"kind": "transformer", "times": True, "history_length": 10, "blocks": 1}}
ABSOLUTE = {"scoring": {"kind": "dot", "temperature": 1.0, "absolute": True}}
BIASED = {"scoring": {"item_bias": True}}


@pytest.fixture(
    scope="module",
    params=[
        {},
        FEATURES,
        *(pytest.param(one, marks=pytest.mark.nightly) for one in (ABSOLUTE, TIMES, BIASED)),
    ],
    ids=["ids", "features", "absolute", "times", "item_bias"],
)
def run(request: pytest.FixtureRequest, shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short run on the shop: on ids alone, with features, with scores of either sign, times and biases."""
    settings = {"tower": request.param, "training": {"epochs": 1, "batch_size": 512, "device": "cpu"}}
    config = ExperimentConfig.model_validate(settings)
    made = Run(tmp_path_factory.mktemp("run"), config, shop.folder, shop.fingerprint)
    train(made, shop, resume=False, report=lambda _: None)
    return made


@pytest.fixture(scope="module")
def exported(run: Run, shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the run. Nobody may write to it."""
    return export(run, shop, tmp_path_factory.mktemp("bundles"), "spring")


def raw_features(data: PreparedData, model: object, user: int) -> dict[str, object]:
    return export_module._raw_user_features(data, model, user)  # type: ignore[arg-type]


def times_before_the_test(data: PreparedData, user: int) -> Times:
    """When the user did what is read to answer for the test part, whose first event is the question."""
    first, end = int(data.offsets[user]), int(data.splits[user, 1])
    return Times(data.times[first:end] / 1e3, float(data.times[end]) / 1e3)


@pytest.mark.nightly
def test_the_bundle_answers_what_the_evaluator_ranks(run: Run, shop: PreparedData, exported: Path) -> None:
    """For 200 users the retriever over the bundle and the evaluation in torch give the same ten items."""
    bundle = Bundle.open(exported)
    model = run.open_model(shop)
    users = np.flatnonzero(np.diff(shop.offsets) > 1)[:200]
    scores_of = tower_scores(model, shop, "test", shop.item_counts("train"))
    (block,) = rank(scores_of, shop, users, "test", 10, True)
    histories = [shop.history(user, "test") for user in users.tolist()]
    features = [raw_features(shop, model, user) for user in users.tolist()]
    times = [times_before_the_test(shop, user) for user in users.tolist()]
    answers = Retriever(bundle).recommend(histories, features, 10, histories, times)
    assert [answer.rows.tolist() for answer in answers] == block.rows.tolist()


def test_a_bundle_says_whether_it_reads_times(run: Run, exported: Path) -> None:
    """If it does, its recorded queries hold them: other moments would have other answers."""
    bundle = Bundle.open(exported)
    reads = run.experiment.tower.user.reads_times
    assert bundle.manifest.reads_times == reads
    queries = load_golden(bundle.folder / "golden.json").queries
    assert all((query.at is not None) == (query.history_times is not None) == reads for query in queries)
    if reads:
        late = [query.model_copy(update={"at": (query.at or 0.0) + 40_000_000.0}) for query in queries]
        apart = zip(replay(bundle, queries, 10), replay(bundle, late, 10), strict=True)
        assert any(difference(one, other) for one, other in apart)


def test_the_bundle_holds_the_vectors_and_names_of_the_run(
    run: Run, shop: PreparedData, exported: Path
) -> None:
    """Vectors, vocabulary, popularity, fields and fingerprints are those of the run and its data."""
    bundle = Bundle.open(exported)
    with torch.no_grad():
        expected = run.open_model(shop).catalog_vectors().numpy()
    np.testing.assert_array_equal(bundle.vectors, expected)
    assert bundle.manifest.version == "spring"
    assert bundle.vocabulary.fingerprint == shop.item_ids.fingerprint
    assert bundle.popularity.tolist() == shop.item_counts("train").tolist()
    assert bundle.fields == shop.fields
    assert bundle.manifest.fingerprints["data"] == shop.fingerprint


def test_a_tower_that_answers_otherwise_is_not_published(
    run: Run, shop: PreparedData, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the ONNX form is of another model, the recorded queries differ and nothing is left behind."""
    wrong = onnx.load(exported / "user_tower.onnx")
    for tensor in wrong.graph.initializer:
        if len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT:
            others = np.random.default_rng(0).standard_normal(tuple(tensor.dims)).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(others, tensor.name))
    monkeypatch.setattr(export_module, "user_tower_onnx", lambda _: wrong.SerializeToString())
    with pytest.raises(TowerError, match="quer"):
        export(run, shop, tmp_path / "bundles")
    assert list((tmp_path / "bundles").iterdir()) == []


@pytest.mark.parametrize(("version", "reason"), [("../x", "can't name a version"), ("taken", "exists")])
def test_a_version_is_refused_before_anything_is_computed_or_written(
    version: str, reason: str, run: Run, shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bundles" / "taken").mkdir(parents=True)
    monkeypatch.setattr(Run, "open_model", lambda *_: pytest.fail("the model was opened"))
    with pytest.raises(TowerError, match=reason):
        export(run, shop, tmp_path / "bundles", version)
    assert [path.name for path in tmp_path.rglob("*")] == ["bundles", "taken"]


def test_other_data_is_refused(run: Run, handmade: PreparedData) -> None:
    """A run is only exported with the data it was trained on."""
    with pytest.raises(TrainingError, match="not the data"):
        run.open_data(handmade.folder)


def test_the_bundle_says_how_it_was_trained_and_from_what(
    run: Run, shop: PreparedData, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experiment, what the item features are that the towers read, and the bundle gone on from."""
    assert json.loads((exported / "experiment.json").read_text()) == run.experiment.model_dump(mode="json")
    stored = json.loads((exported / "item_features.json").read_text())
    reads = run.experiment.tower.item.features == "all"
    names = ["title", "released_month", "genres", "price", "released_days"]
    assert [one["name"] for one in stored] == (names if reads else [])
    tower = (exported / "user_tower.onnx").read_bytes()
    monkeypatch.setattr(export_module, "user_tower_onnx", lambda _: tower)  # tracing it again takes seconds
    second = Bundle.open(export(replace(run, origin=exported), shop, tmp_path / "bundles", "second")).manifest
    assert second.fingerprints["origin"] == "spring"
    before = Bundle.open(exported).manifest.fingerprints
    assert "origin" not in before
    assert second.fingerprints["configuration"] != before["configuration"]
