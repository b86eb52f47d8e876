import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.bundle_damage import change_manifest, rewrite
from tests.training.conftest import Grown
from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.tower.errors import BundleError
from turret.tower.format.listing import bundle_folder
from turret.tower.format.manifest import EXPERIMENT, ITEM_FEATURES, MANIFEST
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.export.export import export
from turret.training.run import Run
from turret.training.trainer import train
from turret.training.warm_start.parent_bundle import ParentBundle

SETTINGS: dict[str, dict[str, Any]] = {
    "tower": {
        "dimension": 8,
        "item": {"features": ["title", "price"], "hidden": [4]},
        "user": {"features": "all"},
    },
    "objective": {"loss": "full_softmax"},
    "training": {"epochs": 1, "batch_size": 512, "device": "cpu"},
}


@pytest.fixture(scope="module")
def published(grown: Grown, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the bundles `one`, which is current, and `two`. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("origin")
    data = grown.before
    run = Run(folder / "run", ExperimentConfig.model_validate(SETTINGS), data.folder, data.fingerprint)
    train(run, data, report=lambda _: None)
    for version in ("one", "two"):
        export(run, data, folder / "bundles", version)
    return folder / "bundles"


@pytest.fixture
def bundle(published: Path, tmp_path: Path) -> Path:
    """A bundle that may be written to."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    for path in (published / "one").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def replace(bundle: Path, name: str, content: bytes | None) -> None:
    """Put another file into a bundle, or none, so that the checksums agree."""
    if content is not None:
        rewrite(bundle, name, content)
        return
    (bundle / name).unlink()
    files = json.loads((bundle / MANIFEST).read_text())["files"]
    change_manifest(bundle, files={kept: found for kept, found in files.items() if kept != name})


def test_a_bundle_says_how_it_was_trained_and_what_its_rows_are(published: Path, grown: Grown) -> None:
    origin = ParentBundle.open(published / "one")
    items = {feature.name: feature for feature in grown.before.item_features.features}
    users = grown.before.user_features.features
    assert origin.experiment() == ExperimentConfig.model_validate(SETTINGS)
    assert origin.items.fingerprint == grown.before.item_ids.fingerprint
    assert origin.item_features == (items["title"], items["price"])
    assert [feature.name for feature in origin.item_features] == ["title", "price"]
    assert origin.user_features == users
    assert origin.parameters()["item.table.weight"].shape == (len(grown.before.item_ids), 8)


def test_a_folder_of_bundles_stands_for_the_current_one(published: Path, tmp_path: Path) -> None:
    assert bundle_folder(published) == bundle_folder(published / "one") == published / "one"
    assert bundle_folder(published / "two") == published / "two"
    for nothing in (tmp_path, tmp_path / "nothing", published / "one" / MANIFEST):
        with pytest.raises(BundleError, match=r"there is no bundle, and no folder of bundles"):
            bundle_folder(nothing)


def test_settings_are_overridden_one_by_one(published: Path) -> None:
    experiment = ParentBundle.open(published / "one").experiment(
        ["training.epochs=7", "tower.user.dropout=0.3"]
    )
    expected = {**SETTINGS, "training": {**SETTINGS["training"], "epochs": 7}}
    expected["tower"] = {**SETTINGS["tower"], "user": {"features": "all", "dropout": 0.3}}
    assert experiment == ExperimentConfig.model_validate(expected)
    with pytest.raises(
        ConfigurationError, match=r"experiment\.json with training\.epoch overridden: .* no setting"
    ):
        ParentBundle.open(published / "one").experiment(["training.epoch=7"])


def test_what_was_new_then_is_not_what_is_new_now(bundle: Path) -> None:
    """The bundle's own `training.since` is left behind; one that is asked for counts."""
    stored = json.loads((bundle / EXPERIMENT).read_text())
    stored["training"]["since"] = "2022-01-01"
    replace(bundle, EXPERIMENT, json.dumps(stored).encode())
    origin = ParentBundle.open(bundle)
    assert origin.experiment().training.since is None
    assert origin.experiment(["training.since=2023-01-01"]).training.since == "2023-01-01"


@pytest.mark.parametrize("name", [EXPERIMENT, ITEM_FEATURES])
def test_a_bundle_without_its_training_settings_is_refused(bundle: Path, name: str) -> None:
    replace(bundle, name, None)
    with pytest.raises(TrainingError, match=r"does not say how it was trained.* export its run again"):
        ParentBundle.open(bundle)


@pytest.mark.parametrize(
    ("name", "content"),
    [(EXPERIMENT, b"{"), (EXPERIMENT, b"\xff"), (ITEM_FEATURES, b"[{}]"), ("user_features.json", b"7")],
)
def test_what_can_not_be_read_is_said(bundle: Path, name: str, content: bytes) -> None:
    replace(bundle, name, content)
    with pytest.raises(TrainingError, match="can't be read"):
        ParentBundle.open(bundle)


def test_a_damaged_model_is_not_gone_on_from(bundle: Path) -> None:
    """Whether its checksum tells, or what is in it."""
    model = bundle / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\x00")
    with pytest.raises(BundleError, match="not the file that was published"):
        ParentBundle.open(bundle).parameters()
    replace(bundle, model.name, b"safetensors")
    with pytest.raises(TrainingError, match="its model can't be read"):
        ParentBundle.open(bundle).parameters()


def test_an_experiment_of_another_age_is_refused_by_its_setting(bundle: Path) -> None:
    replace(bundle, EXPERIMENT, b'{"training": {"momentum": 0.9}}')
    with pytest.raises(
        ConfigurationError, match=r"experiment\.json: there is no setting 'training\.momentum'"
    ):
        ParentBundle.open(bundle).experiment()


def test_features_of_another_kind_or_order_are_refused(published: Path, grown: Grown) -> None:
    origin = ParentBundle.open(published / "one")
    items = {feature.name: feature for feature in grown.before.item_features.features}
    title, genres, price = items["title"], items["genres"], items["price"]
    user, towers = grown.before.user_features.features, origin.experiment().tower
    origin.check(towers, (title, price), user)
    for item in ((price, title), (title, price, genres), (title, price.model_copy(update={"kind": "multi"}))):
        with pytest.raises(
            TrainingError, match=r"reads title \(text\), price \(number\), .*=\[\"title\", \"price\"\]'"
        ):
            origin.check(towers, item, user)
    with pytest.raises(TrainingError, match=r"tower\.user\.features: .* experiment none"):
        origin.check(towers, (title, price), ())


def test_a_foreign_folder_is_no_bundle(handmade: PreparedData) -> None:
    with pytest.raises(BundleError):
        ParentBundle.open(handmade.folder)
