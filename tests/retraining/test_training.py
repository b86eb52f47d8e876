"""The run of a retraining: its experiment, its start and the index of its bundle."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from turret.data.prepared import PreparedData
from turret.retraining import training as module
from turret.retraining.events import size_of
from turret.retraining.retrain import retrain
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import RunState, iso
from turret.retraining.training import publish_run, train_run
from turret.tower.bundle.reindex import reindex
from turret.tower.errors import BundleError
from turret.tower.format.manifest import read_manifest
from turret.tower.format.pointer import point
from turret.tower.tuning.choice import IndexRequest
from turret.training.run import CHECKPOINT, Run
from turret.training.warm_start.parent_bundle import ParentBundle

pytestmark = pytest.mark.nightly


def state(shop: RetrainSettings, **fields: object) -> RunState:
    size = size_of(PreparedData.open(shop.data))
    plain = {"run": "r1", "started": iso(0), "until": 0, "before": size, "after": size}
    return RunState.model_validate(
        {**plain, "data_changed": False, "step": "train", "live": "first", **fields}
    )


def trained(shop: RetrainSettings, **fields: object) -> Run:
    train_run(shop, state(shop, **fields))
    return Run.read(shop.runs / "r1")


def test_a_warm_start_predicts_the_events_that_are_new_to_the_live_version(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Run] = []

    def begin(run: Run, data: PreparedData, **options: object) -> None:
        begun.append(run)

    monkeypatch.setattr(module, "train", begin)
    train_run(shop, state(shop, mode="warm", origin="first"))
    manifest = read_manifest(shop.bundles / "first")
    assert begun[0].experiment.training.since == manifest.data_until
    assert begun[0].origin == (shop.bundles / "first").resolve()
    since = replace(shop, overrides=("training.since=2020-01-01",))
    train_run(since, state(shop, mode="warm", origin="first"))
    assert begun[1].experiment.training.since == "2020-01-01"


def test_a_training_anew_has_the_settings_of_the_live_version_or_of_an_experiment(
    shop: RetrainSettings,
) -> None:
    run = trained(shop, mode="anew")
    assert (run.origin, run.experiment.tower.dimension, run.experiment.training.since) == (None, 8, None)
    (run.folder / CHECKPOINT).unlink()
    named = replace(shop, experiment="demo", overrides=(*shop.overrides, "tower.dimension=4"))
    assert trained(named, mode="anew").experiment.tower.dimension == 4


def test_an_experiment_chosen_by_the_data_replaces_an_interrupted_choice(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Sequence[str], bool]] = []

    def choose(
        folder: Path,
        data: PreparedData,
        overrides: Sequence[str],
        overwrite: bool,
        report: Callable[[str], None],
    ) -> Run:
        asked.append((overrides, overwrite))
        live = ParentBundle.open(shop.bundles / "first")
        return Run(folder, live.experiment(overrides), data.folder, data.fingerprint)

    monkeypatch.setattr(module, "chosen_run", choose)
    trained(replace(shop, experiment="auto"), mode="anew")
    assert asked == [(shop.overrides, True)]


def test_the_successor_of_an_approximate_index_has_one_too(shop: RetrainSettings) -> None:
    reindex(shop.bundles / "first", IndexRequest("hnsw", 0.97), "fast")
    point(shop.bundles, "fast")
    record = retrain(shop)
    assert (record.decision, record.live, record.version) == ("activated", "fast", f"{record.run}-hnsw")
    manifest = read_manifest(shop.bundles / str(record.version))
    assert manifest.index.kind == "hnsw"
    assert manifest.index_choice is not None
    assert manifest.index_choice.recall == 0.97


def test_an_index_that_misses_its_recall_leaves_exact_search(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(shop, mode="anew")
    monkeypatch.setattr(module, "_index_request", lambda settings, live: IndexRequest("rabitq", 1.0))

    def miss(*words: object) -> Path:
        raise BundleError("the recall of rabitq is 0.9")

    monkeypatch.setattr(module, "reindex", miss)
    assert publish_run(shop, state(shop)) == "r1"
    assert publish_run(shop, state(shop)) == "r1"
