"""Warm starts: what a bundle says of its training, and what of it goes on in a grown catalog."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from tests.support.bundle_damage import rewrite
from tests.training.conftest import Grown, check_resumed, prepared, train_and_keep, trained
from turret.data.prepared import PreparedData
from turret.tower.errors import BundleError
from turret.tower.format.manifest import EXPERIMENT, ITEM_FEATURES
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.model import TwoTowers
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.export.export import export
from turret.training.loop.train import train
from turret.training.run import MODEL, Run, build_model
from turret.training.warm_start import ParentBundle, warm_start_weights

ALL: dict[str, Any] = {
    "user": {"features": "all"},
    "item": {"features": "all", "feature_width": 4, "hidden": [16]},
}
Export = Callable[[dict[str, Any]], Path]


def experiment(tower: dict[str, Any], **training: object) -> ExperimentConfig:
    settings = {"epochs": 1, "batch_size": 256, "device": "cpu", "learning_rate": 0.01, **training}
    return ExperimentConfig.model_validate({"tower": {"dimension": 8, **tower}, "training": settings})


def published(data: PreparedData, tower: dict[str, Any], folder: Path) -> Path:
    """A bundle of an epoch on `data`."""
    run, _ = trained(folder / "run", data, experiment(tower))
    return export(run, data, folder / "bundles", "old")


@pytest.fixture(scope="module")
def exported(grown: Grown, tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Bundles of the shop as it was before, by their towers, made when asked for."""
    made: dict[str, Path] = {}

    def of(tower: dict[str, Any]) -> Path:
        if str(tower) not in made:
            made[str(tower)] = published(grown.before, tower, tmp_path_factory.mktemp("exported"))
        return made[str(tower)]

    return of


def warm(grown: Grown, bundle: Path, tower: dict[str, Any]) -> tuple[TwoTowers, str]:
    """Fresh towers for the shop as it is after, with what the bundle has learnt."""
    model = build_model(experiment(tower), grown.after)
    carried = warm_start_weights(model, grown.after, ParentBundle.open(bundle))
    return model.eval(), carried


def vectors(model: TwoTowers, rows: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model.item_vectors(torch.tensor(rows))


def test_known_items_keep_their_vectors_bit_for_bit(grown: Grown, exported: Export) -> None:
    """Though they stand in other rows: training starts from the served ones. All items are counted."""
    bundle = exported({})
    model, carried = warm(grown, bundle, {})
    before, after = grown.rows()
    assert before != after
    served = np.load(bundle / "item_vectors.npy")[before]
    np.testing.assert_array_equal(vectors(model, after).numpy(), served)
    kept, old, new = len(before), len(grown.before.item_ids), len(grown.after.item_ids)
    assert min(kept, new - kept, old - kept) > 10
    assert carried.startswith(
        f"{kept} items keep their vectors, {new - kept} are new (they start from the mean)"
    )
    assert f"{old - kept} are gone" in carried


def test_known_items_of_features_keep_their_vectors(grown: Grown, exported: Export) -> None:
    """Though other texts have other trigrams, and the prices another mean, by which they are standardised."""
    bundle = exported(ALL)
    model, carried = warm(grown, bundle, ALL)
    assert "they start from their features" in carried
    assert carried.startswith(f"{len(grown.rows()[0])} items keep"), "of items with an event alone"
    assert len(np.load(bundle / "item_vectors.npy")) > len(grown.before.item_ids)
    before, after = grown.rows()
    old, new = (
        next(feature.mean for feature in data.item_features.features if feature.name == "price")
        for data in (grown.before, grown.after)
    )
    assert old != new
    served = np.load(bundle / "item_vectors.npy")[before]
    # The factor of a changed mean is rounded once more, in float32.
    np.testing.assert_allclose(vectors(model, after).numpy(), served, rtol=0, atol=1e-5)


def test_a_new_item_begins_from_its_features(grown: Grown, exported: Export) -> None:
    """As an item of these features, and of an id that is the mean of all ids, would be; each its own way."""
    bundle = exported(ALL)
    model, _ = warm(grown, bundle, ALL)
    ids = load_file(bundle / "model.safetensors")["item.table.weight"]
    new = sorted(set(range(len(grown.after.item_ids))) - set(grown.rows()[1]))
    assert model.item.rows is not None
    assert model.item.table is not None
    with torch.no_grad():
        features = model.item.rows(torch.tensor(new))
        raw = model.item.mlp(torch.cat([ids.mean(dim=0).expand(len(new), -1), features], dim=1))
        expected = raw / raw.norm(dim=1, keepdim=True)
    torch.testing.assert_close(vectors(model, new), expected)
    assert len(np.unique(vectors(model, new).numpy().round(4), axis=0)) == len(new)


def looks(folder: Path, items: int, scale: float) -> PreparedData:
    """A log of items with ready vectors, of which the newest are `scale` times as long."""
    folder.mkdir()
    random = np.random.default_rng(4).normal(size=(items, 3))
    vectors = (random * np.where(np.arange(items) < 6, 1.0, scale)[:, None]).tolist()
    catalog = {"item": [f"i{item}" for item in range(items)], "look": vectors}
    pl.DataFrame(catalog).write_parquet(folder / "items.parquet")
    log = [
        {"user": user, "item": f"i{(user + place) % items}", "time": place}
        for user in range(12)
        for place in range(5)
    ]
    return prepared(folder, log, items=folder / "items.parquet")


def test_known_items_keep_their_vectors_though_ready_ones_vary_more_by_now(tmp_path: Path) -> None:
    """Ready vectors are read over their deviation in the whole catalog, which new items change."""
    tower = {"item": {"features": "all", "feature_width": 4, "id_dropout": 0.0}}
    before, after = looks(tmp_path / "before", 6, 1.0), looks(tmp_path / "after", 9, 30.0)
    old, new = (data.item_features.features[0].deviation for data in (before, after))
    assert new > 5 * old
    bundle = published(before, tower, tmp_path)
    model = build_model(experiment(tower), after)
    warm_start_weights(model, after, ParentBundle.open(bundle))
    served = np.load(bundle / "item_vectors.npy")
    np.testing.assert_allclose(vectors(model.eval(), [*range(6)]).numpy(), served, rtol=0, atol=1e-5)


USERS = [
    {"kind": "pooled", "example_age": True},
    {"kind": "pooled", "hidden": []},
    {"kind": "attentive"},
    {"kind": "gru"},
    {"kind": "transformer", "history_length": 20},
    {"kind": "transformer", "history_length": 20, "times": True},
]


@pytest.mark.nightly
@pytest.mark.parametrize("user", USERS, ids=lambda user: " ".join(map(str, user.values())))
def test_a_user_of_known_items_keeps_the_vector(grown: Grown, tmp_path: Path, user: dict[str, Any]) -> None:
    """By every user tower, with a country and an age whose mean is another by then; dropout may change."""
    tower = {"user": {**user, "features": "all"}}
    bundle = published(grown.before, tower, tmp_path)
    now, _ = warm(grown, bundle, {"user": {**tower["user"], "dropout": 0.5}})
    then = Run.read(tmp_path / "run").open_model(grown.before)
    before, after = grown.rows()
    found = []
    for model, data, rows in ((then, grown.before, before), (now, grown.after, after)):
        names = grown.before.users.ids(range(len(grown.before.users)))
        known, _ = data.users.known_rows(
            [name for name in names if grown.after.users.row(name) is not None][:40]
        )
        users, starts = torch.from_numpy(known.astype(np.int64)), torch.arange(40)
        histories = PackedHistories(torch.tensor(rows[:50]), starts, starts + 5, users, torch.zeros(40))
        with torch.no_grad():
            found.append(model.user_vectors(histories, model.item_vectors(histories.rows)))
    assert grown.before.user_features.features[1].mean != grown.after.user_features.features[1].mean
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)


OTHER = [
    ({"scoring": {"temperature": 0.1}}, {}, r"tower\.scoring\.temperature = 0\.1, but .* has 0\.07"),
    ({"user": {"kind": "attentive"}}, {}, r"tower\.user\.kind = 'attentive', but .* has 'pooled'"),
    (
        {"item": {"features": ["genres"]}},
        {},
        r"tower\.item\.features: the bundle .* reads none, .* genres \(multi\)",
    ),
    ({}, ALL, r"tower\.item\.feature_width = 32, but .* has 4"),
]


@pytest.mark.parametrize(("asked", "had", "words"), OTHER, ids=lambda value: str(value)[:24])
def test_other_towers_are_refused_by_the_name_of_the_setting(
    grown: Grown, exported: Export, asked: dict[str, Any], had: dict[str, Any], words: str
) -> None:
    with pytest.raises(TrainingError, match=words):
        warm(grown, exported(had), {"dimension": 8, **asked})


def test_a_catalog_without_a_known_item_is_refused(exported: Export, handmade: PreparedData) -> None:
    """With an id of each, so that one sees what they are."""
    model = build_model(experiment({}), handmade)
    with pytest.raises(TrainingError, match=r"none of its items, such as 'p', is in .* which has 'i0000'"):
        warm_start_weights(model, handmade, ParentBundle.open(exported({})))


def warm_run(folder: Path, grown: Grown, bundle: Path, **training: object) -> Run:
    data = grown.after
    return Run(folder, experiment({}, **training), data.folder, data.fingerprint, bundle)


def test_a_warm_start_is_measured_before_its_first_step(
    grown: Grown, exported: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes of the items is reported, and training that only does harm leaves the model as it was."""
    bundle = exported({})  # its own training measures too
    values = iter((0.5, 0.4, 0.3))
    monkeypatch.setattr("turret.training.loop.trainer.metric_of", lambda *_: next(values))
    lines: list[str] = []
    run = warm_run(tmp_path / "run", grown, bundle, epochs=9, patience=2, refit=True)
    progress = train(run, grown.after, report=lines.append)
    assert re.match(r"Warm start from .*old: \d+ items keep .* Validation ndcg@10 0\.5000$", lines[0])
    assert (progress.best, progress.best_epoch, progress.epoch) == (0.5, 0, 2)
    before, after = grown.rows()
    kept = load_file(run.folder / MODEL)["item.table.weight"][after]
    assert torch.equal(kept, load_file(bundle / "model.safetensors")["item.table.weight"][before])


def test_a_warm_start_that_was_interrupted_goes_on_as_if_it_was_not(
    grown: Grown, exported: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its checkpoint alone: the bundle may be gone by then."""
    moved = shutil.copytree(exported({}), tmp_path / "old")
    whole = warm_run(tmp_path / "whole", grown, moved, checkpoint_every=3)
    cut = train_and_keep(whole, grown.after, 3, monkeypatch)
    shutil.rmtree(moved)
    check_resumed(cut, whole, grown.after)


def test_a_warm_start_that_can_not_begin_leaves_the_run_that_is_there(
    grown: Grown, exported: Export, tmp_path: Path
) -> None:
    """Resumed before its first checkpoint, a run begins from its bundle again, if that is there."""
    run = warm_run(tmp_path / "run", grown, tmp_path / "nowhere")
    run.write()
    for resume in (True, False):
        with pytest.raises(BundleError, match="nowhere: there is no bundle"):
            train(run, grown.after, resume=resume, overwrite=not resume, report=lambda _: None)
    assert Run.read(run.folder) == run
    lines: list[str] = []
    begun = replace(run, origin=exported({}))
    train(begun, grown.after, resume=True, report=lines.append)
    assert "items keep their vectors" in lines[0]


@pytest.fixture
def bundle(exported: Export, tmp_path: Path) -> Path:
    """A bundle with features that may be written to."""
    return Path(shutil.copytree(exported(ALL), tmp_path / "bundle"))


def test_what_was_new_then_is_not_what_is_new_now(bundle: Path) -> None:
    """The bundle's own `training.since` is left behind; one that is asked for counts."""
    stored = json.loads((bundle / EXPERIMENT).read_text())
    stored["training"]["since"] = "2022-01-01"
    rewrite(bundle, EXPERIMENT, json.dumps(stored).encode())
    origin = ParentBundle.open(bundle)
    assert origin.experiment().training.since is None
    assert origin.experiment({"training.since": "2023-01-01"}).training.since == "2023-01-01"


@pytest.mark.parametrize(
    ("name", "content"),
    [(EXPERIMENT, b"\xff"), (ITEM_FEATURES, b"[{}]"), ("user_features.json", b"7")],
)
def test_a_bundle_that_does_not_say_how_it_was_trained_is_refused(
    bundle: Path, name: str, content: bytes
) -> None:
    rewrite(bundle, name, content)
    with pytest.raises(TrainingError, match="can't be read"):
        ParentBundle.open(bundle)
    (bundle / name).unlink()
    with pytest.raises(TrainingError, match="can't be read"):
        ParentBundle.open(bundle)
