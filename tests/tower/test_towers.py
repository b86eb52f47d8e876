"""Both towers: items and users meet in one score, in whole batches and in parts."""

from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.tower.small_towers import ITEMS, USERS, config, item_features, no_features, packed
from turret.data.features.columns import Features
from turret.tower.config import ScoringConfig
from turret.tower.errors import TowerError
from turret.tower.times import Times, time_inputs
from turret.tower.towers.config import ItemTowerConfig, TowerConfig
from turret.tower.towers.model import (
    ItemTower,
    TwoTowers,
    cross_scores,
    fitting_vectors,
    paired_scores,
    scored_items,
    scored_users,
)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"user": {"layers": [4]}}, "layers"),
        ({"user": {"kind": "forest"}}, "forest"),
        ({"dimension": 1, "scoring": {"item_bias": True}}, r"dimension = 1 has no column left .* at least 2"),
        ({"scoring": {"absolute": True, "item_bias": True}}, "drops the sign of the bias"),
        # Both would tell of what is to be predicted.
        ({"user": {"ordered": False, "last_item": True}}, "user.last_item = true"),
        ({"user": {"ordered": False, "last_item": False, "example_age": True}}, "user.example_age = true"),
        ({"item": {"id_dropout": 0.1}}, r"item\.id_dropout = 0\.1"),
        ({"dimension": 6, "user": {"kind": "transformer", "heads": 4}}, "use a multiple of 4"),
        ({"user": {"kind": "gru", "interests": 2}}, "set user.kind = 'pooled' or 'transformer', or"),
        ({"user": {"interests": 2, "pooling": "root"}}, "set user.pooling = 'mean', or user.interests = 1"),
    ],
)
def test_settings_that_make_no_tower_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TowerConfig.model_validate(settings)


def test_a_clock_goes_round_once_a_week() -> None:
    """The same weekday and hour is the same, before 1970 as well; a day later is a day more."""
    moments = -13_578_180.0 + 7 * 86_400 * np.array([0, 1, 500])
    clocks, later = (time_inputs(moments, moments + wait)[1].tolist() for wait in (0, 86_400))
    assert set(clocks) == {(-13_578_180.0) % (7 * 86_400)}
    assert set(later) == {(clocks[0] + 86_400) % (7 * 86_400)}


def test_each_item_is_followed_by_the_next_and_the_newest_by_the_question() -> None:
    """Clocks of two machines may disagree: no gap is negative."""
    times = Times(np.array([1000.0, 1010.0, 1510.0]), 1600.0)
    for given, gaps, clocks in (
        (times, [10.0, 500.0, 90.0], [1010.0, 1510.0, 1600.0]),
        (times.newest(2), [500.0, 90.0], [1510.0, 1600.0]),
        (Times(np.array([5e9, 100.5]), 3800.5), [0.0, 3700.0], [100.5, 3800.5]),
    ):
        found = given.inputs()
        assert [one.tolist() for one in found] == [gaps, clocks]
        assert {one.dtype for one in found} == {np.dtype(np.float32)}


@pytest.mark.parametrize(("kind", "product"), [("cosine", 0.96), ("dot", 24.0)])
def test_a_bias_is_added_to_each_score_of_its_item(kind: Literal["cosine", "dot"], product: float) -> None:
    """[3, 4] and [4, 3] have the cosine .96; the last number of an item is its bias, of a user nothing."""
    scoring = ScoringConfig(kind=kind, temperature=0.5, item_bias=True)
    items = scored_items(torch.tensor([[4.0, 3.0, 0.7], [4.0, 3.0, -2.0]]), scoring)
    users = scored_users(torch.tensor([[3.0, 4.0, 9.0]]), scoring)
    expected = torch.tensor([[product / 0.5 + 0.7, product / 0.5 - 2.0]])
    torch.testing.assert_close(cross_scores(users, items, scoring), expected)


@pytest.mark.parametrize("absolute", [False, True])
def test_scores_are_inner_products_over_the_temperature(absolute: bool) -> None:
    """Paired, shared and per-example candidates are scored alike; an absolute score has no sign."""
    users = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    items = torch.tensor([[3.0, 1.0], [1.0, 4.0]])
    scoring = ScoringConfig(kind="dot", temperature=0.5, absolute=absolute)
    sign = 1.0 if absolute else -1.0
    assert paired_scores(users, items, scoring).tolist() == [10.0, sign * 8.0]
    shared = cross_scores(users, items, scoring)
    assert shared.tolist() == [[10.0, 18.0], [sign * 2.0, sign * 8.0]]
    assert torch.equal(cross_scores(users, items.expand(2, 2, 2), scoring), shared)


@pytest.mark.parametrize("absolute", [False, True])
def test_the_interest_that_fits_the_target_is_trained_alone(absolute: bool) -> None:
    """By the highest score of the target; an absolute score has no sign. The others get no gradient."""
    interests = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [-3.0, 0.0]]], requires_grad=True)
    targets = torch.tensor([[0.5, 1.0], [1.0, 0.0]])
    scoring = ScoringConfig(kind="dot", temperature=0.5, absolute=absolute)
    fitting = fitting_vectors(interests, targets, scoring)
    assert fitting.tolist() == [[0.0, 2.0], [-3.0, 0.0] if absolute else [1.0, 1.0]]
    (slopes,) = torch.autograd.grad(fitting.sum(), interests)
    trained = [[False, True], [not absolute, absolute]]
    assert slopes.bool().any(dim=2).tolist() == trained


def item_tower(**item: object) -> ItemTower:
    torch.manual_seed(0)
    config = TowerConfig.model_validate({"dimension": 6, "item": item})
    return ItemTower(config, ITEMS, item_features())


def test_ids_alone_are_rows_of_the_table() -> None:
    ours = item_tower()
    assert ours.table is not None
    assert torch.equal(ours(torch.tensor([4, 4, 0])), ours.table.weight[[4, 4, 0]])
    assert [name for name, _ in ours.named_parameters()] == ["table.weight"]


@pytest.mark.parametrize("prepared", [no_features(ITEMS), item_features()], ids=["none", "some"])
def test_a_tower_without_inputs_is_refused(prepared: Features) -> None:
    features: object = () if prepared.features else "all"
    config = TowerConfig.model_validate({"item": {"id": False, "features": features}})
    with pytest.raises(TowerError, match=r"tower\.item\.id.*tower\.item\.features"):
        ItemTower(config, ITEMS, prepared)


def test_beside_features_an_item_that_was_never_trained_has_no_id() -> None:
    """Its vector is that of its features: whatever the id's weights, items 4 and 8 of one brand are alike."""
    ours = item_tower(features=["brand"], hidden=[5])
    vectors = ours(torch.tensor([4, 8, 1]))
    torch.testing.assert_close(vectors[0], vectors[1])
    assert not torch.allclose(vectors[0], vectors[2])
    assert ours.table is not None
    torch.nn.init.normal_(ours.table.weight[4:5].detach())
    vectors = ours(torch.tensor([4, 8]))
    assert not torch.allclose(vectors[0], vectors[1])


def test_dropped_ids_leave_the_features_in_training_alone() -> None:
    """Of 2,000 looks at one item about the asked share shows it without its id."""
    ours = item_tower(features=["brand"], id_dropout=0.3)
    assert ours.table is not None
    unknown = ours.eval()(torch.tensor([4])).detach()
    with torch.no_grad():
        ours.table.weight.fill_(1.0)
    known = ours(torch.tensor([4])).detach()
    torch.manual_seed(1)
    seen = ours.train()(torch.full((2000,), 4)).detach()
    without = torch.isclose(seen, unknown).all(dim=1)
    assert (without | torch.isclose(seen, known).all(dim=1)).all()
    assert abs(float(without.float().mean()) - 0.3) < 5 * (0.21 / 2000) ** 0.5


def towers(chunk_size: int, user: dict[str, object], dropout: float = 0.0) -> TwoTowers:
    torch.manual_seed(0)
    item = ItemTowerConfig(features="all", hidden=(7,))
    asked = config(**{**user, "dropout": dropout}).model_copy(update={"item": item})
    made = TwoTowers(asked, ITEMS, item_features(), no_features(USERS))
    made.chunk_size = chunk_size
    return made


def loss_of(model: TwoTowers) -> Tensor:
    """A loss in which every user meets every item of the catalog."""
    histories = packed()
    users = model.user_vectors(histories, model.item_vectors(histories.rows))
    return (users @ model.catalog_vectors().T).logsumexp(dim=1).square().sum()


def gradients(model: TwoTowers) -> dict[str, Tensor]:
    torch.autograd.backward(loss_of(model))
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


USER_TOWERS: list[dict[str, object]] = [
    {"hidden": [7]},
    {"kind": "transformer", "heads": 3, "feed_forward": 8, "times": True},
    {"kind": "gru", "state": 5},
    {"kind": "attentive", "hidden": [7]},
]


@pytest.mark.parametrize("user", USER_TOWERS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_gradients_are_those_of_the_whole_batch(user: dict[str, object], size: int) -> None:
    # In evaluation mode, as training hides the times of histories at random.
    whole, parts = gradients(towers(0, user).eval()), gradients(towers(size, user).eval())
    assert whole.keys() == parts.keys()
    for name, expected in whole.items():
        torch.testing.assert_close(parts[name], expected, rtol=1e-4, atol=1e-5)


def test_dropout_drops_the_same_the_second_time() -> None:
    """Else the gradient would be that of another network than the loss was computed with."""
    model = towers(2, {"hidden": [7]}, dropout=0.5)
    torch.manual_seed(1)
    found = gradients(model)["user.mlp.3.bias"]
    for place in range(2):
        values = []
        for step in (1e-3, -1e-3):
            with torch.no_grad():
                model.user.get_parameter("mlp.3.bias")[place] += step
                torch.manual_seed(1)
                values.append(float(loss_of(model)))
                model.user.get_parameter("mlp.3.bias")[place] -= step
        assert (values[0] - values[1]) / 2e-3 == pytest.approx(float(found[place]), rel=0.02, abs=1e-3)


def test_less_is_held_for_the_backward_pass() -> None:
    def held(size: int) -> int:
        kept: list[Tensor] = []

        def keep(saved: Tensor) -> Tensor:
            kept.append(saved)
            return saved

        model = towers(size, {"kind": "transformer", "heads": 3, "feed_forward": 64})
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
            model.user_vectors(packed(), torch.randn(8, 6))
        return sum(saved.numel() for saved in kept)

    assert held(1) < held(0) / 4
