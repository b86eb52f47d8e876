import pytest
import torch

from data.features import Features
from tests.tower.towers import ITEMS, item_features, no_features
from tower.config import TowerConfig
from tower.errors import TowerError
from tower.item import ItemTower


def tower(**item: object) -> ItemTower:
    torch.manual_seed(0)
    config = TowerConfig.model_validate({"dimension": 6, "item": item})
    return ItemTower(config, ITEMS, item_features())


def test_ids_alone_are_rows_of_the_table() -> None:
    """Without features and hidden layers nothing but the table speaks."""
    ours = tower()
    assert ours.table is not None
    assert torch.equal(ours(torch.tensor([4, 4, 0])), ours.table.weight[[4, 4, 0]])
    assert [name for name, _ in ours.named_parameters()] == ["table.weight"]


def test_features_alone_give_items_with_the_same_features_the_same_vector() -> None:
    """Items 4 and 8 differ in their list and price only; without those they are one."""
    ours = tower(id=False, features=["brand"], hidden=[5])
    vectors = ours(torch.tensor([4, 8, 1]))
    torch.testing.assert_close(vectors[0], vectors[1])
    assert not torch.allclose(vectors[0], vectors[2])


def test_every_feature_reaches_the_vector() -> None:
    """Each feature by itself changes the vectors of some items."""
    for name in ("title", "brand", "genres", "price"):
        vectors = tower(id=False, features=[name])(torch.arange(ITEMS))
        assert not torch.allclose(vectors, vectors[:1].expand_as(vectors)), name


def test_checkpoints_do_not_hold_the_prepared_data() -> None:
    """Feature columns belong to the data folder, not to the parameters."""
    names = tower(features="all", hidden=[4]).state_dict()
    assert not any("column" in name or "values" in name or "offsets" in name for name in names)


@pytest.mark.parametrize("prepared", [no_features(ITEMS), item_features()], ids=["none", "some"])
def test_a_tower_without_inputs_is_refused(prepared: Features) -> None:
    """Neither ids nor features: the sentence names both settings."""
    features: object = () if prepared.features else "all"
    config = TowerConfig.model_validate({"item": {"id": False, "features": features}})
    with pytest.raises(TowerError, match=r"tower\.item\.id.*tower\.item\.features"):
        ItemTower(config, ITEMS, prepared)


def test_no_prepared_features_and_all_asked_for_is_the_table_alone() -> None:
    """`features = "all"` on data without any is the same tower as ids alone."""
    config = TowerConfig.model_validate({"dimension": 6, "item": {"features": "all"}})
    assert isinstance(ItemTower(config, ITEMS, no_features(ITEMS)).mlp, torch.nn.Identity)
