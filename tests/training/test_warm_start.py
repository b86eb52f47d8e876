import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from data.prepare import prepare
from data.schema import PrepareConfig
from data.sequences import PreparedData
from tests.training.conftest import Grown
from tower.model import TwoTowers
from tower.packed import PackedHistories
from training.config import ExperimentConfig
from training.errors import TrainingError
from training.export import export
from training.origin import Origin
from training.run import Run, build_model
from training.trainer import train
from training.warm_start import Carried, carry_over, new_rows

ALL: dict[str, Any] = {
    "user": {"features": "all"},
    "item": {"features": "all", "feature_width": 4, "hidden": [16]},
}
Export = Callable[[dict[str, Any]], Path]


def experiment(tower: dict[str, Any]) -> ExperimentConfig:
    training = {"epochs": 1, "batch_size": 256, "device": "cpu", "learning_rate": 0.01}
    return ExperimentConfig.model_validate({"tower": {"dimension": 8, **tower}, "training": training})


def published(data: PreparedData, tower: dict[str, Any], folder: Path) -> Path:
    """A bundle of an epoch on `data`."""
    run = Run(folder / "run", experiment(tower), data.folder, data.fingerprint)
    train(run, data, report=lambda _: None)
    return export(run, data, folder / "bundles", "old")


@pytest.fixture(scope="module")
def exported(grown: Grown, tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Bundles of the shop as it was before, by their towers. Nobody may write to them."""
    made: dict[str, Path] = {}

    def of(tower: dict[str, Any]) -> Path:
        if str(tower) not in made:
            made[str(tower)] = published(grown.before, tower, tmp_path_factory.mktemp("exported"))
        return made[str(tower)]

    return of


def warm(grown: Grown, bundle: Path, tower: dict[str, Any]) -> tuple[TwoTowers, Carried]:
    """Fresh towers for the shop as it is after, with what the bundle has learnt."""
    model = build_model(experiment(tower), grown.after)
    carried = carry_over(model, grown.after, Origin.open(bundle))
    return model.eval(), carried


def vectors(model: TwoTowers, rows: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model.item_vectors(torch.tensor(rows))


def test_items_are_counted_by_what_becomes_of_them(grown: Grown, exported: Export) -> None:
    _, carried = warm(grown, exported({}), {})
    before, after = len(grown.before.catalogue), len(grown.after.catalogue)
    kept = len(grown.rows()[0])
    assert (carried.kept, carried.new, carried.gone) == (kept, after - kept, before - kept)
    assert min(carried.kept, carried.new, carried.gone) > 10
    assert str(carried) == (
        f"{kept} items keep their vectors, {after - kept} are new (they start from the mean), "
        f"{before - kept} are gone."
    )


def test_known_items_keep_their_vectors_bit_for_bit(grown: Grown, exported: Export) -> None:
    """Though they stand in other rows: what was served is what training goes on from."""
    bundle = exported({})
    model, _ = warm(grown, bundle, {})
    before, after = grown.rows()
    assert before != after
    served = np.load(bundle / "item_vectors.npy")[before]
    np.testing.assert_array_equal(vectors(model, after).numpy(), served)


def test_known_items_of_features_keep_their_vectors(grown: Grown, exported: Export) -> None:
    """Though other texts have other trigrams, and the prices another mean, by which they are standardised."""
    bundle = exported(ALL)
    model, carried = warm(grown, bundle, ALL)
    assert carried.new_from == "their features"
    before, after = grown.rows()
    assert grown.before.item_features.features[2].mean != grown.after.item_features.features[2].mean
    served = np.load(bundle / "item_vectors.npy")[before]
    # The factor of a changed mean is rounded once more, in float32.
    np.testing.assert_allclose(vectors(model, after).numpy(), served, rtol=0, atol=1e-5)


def test_values_of_features_keep_their_rows_and_new_ones_begin_at_zero(
    grown: Grown, exported: Export
) -> None:
    """Looked up by the text of each trigram, of which both catalogues have some of their own."""
    bundle = exported(ALL)
    model, _ = warm(grown, bundle, ALL)
    learnt = load_file(bundle / "model.safetensors")["item.rows.layers.tables.0.weight"]
    assert model.item.rows is not None
    table = model.item.rows.layers.tables["0"].get_parameter("weight")
    old, new = (data.item_features.features[0].values for data in (grown.before, grown.after))
    for code, value in enumerate(new, start=1):
        expected = learnt[1 + old.index(value)] if value in old else torch.zeros(4)
        assert torch.equal(table[code], expected), value
    assert len(set(new) - set(old)) > 10 < len(set(old) - set(new))
    assert not table[0].any()


def test_a_new_item_begins_from_its_features(grown: Grown, exported: Export) -> None:
    """As an item of these features, and of an id that is the mean of all ids, would be; each its own way."""
    bundle = exported(ALL)
    model, _ = warm(grown, bundle, ALL)
    ids = load_file(bundle / "model.safetensors")["item.table.weight"]
    new = sorted(set(range(len(grown.after.catalogue))) - set(grown.rows()[1]))
    assert model.item.rows is not None
    assert model.item.table is not None
    with torch.no_grad():
        features = model.item.rows(torch.tensor(new))
        raw = model.item.mlp(torch.cat([ids.mean(dim=0).expand(len(new), -1), features], dim=1))
        expected = raw / raw.norm(dim=1, keepdim=True)
    torch.testing.assert_close(vectors(model, new), expected)
    assert len(vectors(model, new).round(decimals=4).unique(dim=0)) == len(new)


def test_towers_without_ids_go_on_too(grown: Grown, exported: Export) -> None:
    tower = {"item": {"id": False, "features": ["title", "genres"]}}
    bundle = exported(tower)
    model, carried = warm(grown, bundle, tower)
    before, after = grown.rows()
    served = np.load(bundle / "item_vectors.npy")[before]
    np.testing.assert_allclose(vectors(model, after).numpy(), served, rtol=0, atol=1e-6)
    assert carried.new_from == "their features"


USERS = [
    {"kind": "pooled", "example_age": True},
    {"kind": "pooled", "hidden": []},
    {"kind": "attentive"},
    {"kind": "recurrent"},
    {"kind": "transformer", "history_length": 20},
]


@pytest.mark.parametrize("user", USERS, ids=lambda user: " ".join(map(str, user.values())))
def test_a_user_of_known_items_keeps_the_vector(
    grown: Grown, tmp_path: Path, user: dict[str, Any]
) -> None:
    """By every user tower, with a country and an age whose mean is another by then."""
    tower = {"user": {**user, "features": "all", "dropout": 0.0}}
    bundle = published(grown.before, tower, tmp_path)
    now, _ = warm(grown, bundle, tower)
    then = Run.read(tmp_path / "run").open_model(grown.before)
    before, after = grown.rows()
    found = []
    for model, data, rows in ((then, grown.before, before), (now, grown.after, after)):
        names = sorted(set(map(str, grown.before.users._ids)) & set(map(str, grown.after.users._ids)))[:40]
        users, _ = data.users.known_rows(names)
        starts = torch.arange(40)
        histories = PackedHistories(
            rows=torch.tensor(rows[:50]),
            starts=starts,
            ends=starts + 5,
            users=torch.from_numpy(users.astype(np.int64)),
            ages=torch.zeros(40),
        )
        with torch.no_grad():
            found.append(model.user_vectors(histories, model.item_vectors(histories.rows)))
    assert grown.before.user_features.features[1].mean != grown.after.user_features.features[1].mean
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)


OTHER = [
    ({"dimension": 16}, {}, r"tower\.dimension = 16, but the bundle .* has 8"),
    ({"scoring": {"temperature": 0.1}}, {}, r"tower\.scoring\.temperature = 0\.1, but .* has 0\.07"),
    ({"user": {"kind": "attentive"}}, {}, r"tower\.user\.kind = 'attentive', but .* has 'pooled'"),
    ({"user": {"hidden": [9]}}, {}, r"tower\.user\.hidden = \(9,\), but .* has \(128,\)"),
    ({"item": {"features": ["genres"]}}, {}, r"tower\.item\.features: the bundle .* reads none, .* genres \(multi\)"),
    ({}, ALL, r"tower\.item\.feature_width = 32, but .* has 4"),
]


@pytest.mark.parametrize(("asked", "had", "words"), OTHER, ids=lambda value: str(value)[:24])
def test_other_towers_are_refused_by_the_name_of_the_setting(
    grown: Grown, exported: Export, asked: dict[str, Any], had: dict[str, Any], words: str
) -> None:
    """And nothing is begun."""
    with pytest.raises(TrainingError, match=words):
        warm(grown, exported(had), {"dimension": 8, **asked})


def test_another_dropout_is_none_of_the_towers_business(grown: Grown, exported: Export) -> None:
    model, _ = warm(grown, exported({}), {"user": {"dropout": 0.5}})
    assert model.config.user.dropout == 0.5


def test_a_catalogue_without_a_known_item_is_refused(
    exported: Export, handmade: PreparedData
) -> None:
    """With an id of each, so that one sees what they are."""
    model = build_model(experiment({}), handmade)
    with pytest.raises(TrainingError, match=r"none of its items, such as 'p', is in .* which has 'i0000'"):
        carry_over(model, handmade, Origin.open(exported({})))
