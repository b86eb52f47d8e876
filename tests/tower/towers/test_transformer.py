from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from tests.contracts.user_towers import UserTowerContract, from_the_start, vectors
from tests.oracles import transformer as oracle
from tests.tower.small_towers import USERS, config, no_features, times
from turret.tower.config import ScoringConfig
from turret.tower.layers.attention import CausalAttention
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.model import TwoTowers
from turret.tower.towers.transformer import TransformerUserConfig, TransformerUserTower

SETTINGS: dict[str, object] = {
    "kind": "transformer",
    "heads": 3,
    "feed_forward": 8,
    "dropout": 0.0,
    "history_length": 40,
}


class TestLearnedPositions(UserTowerContract):
    settings = SETTINGS


class TestRotaryPositions(UserTowerContract):
    settings: ClassVar[dict[str, object]] = {**SETTINGS, "positions": "rotary"}


class TestRotaryPositionsBesideItemBiases(UserTowerContract):
    settings: ClassVar[dict[str, object]] = {**SETTINGS, "positions": "rotary"}
    scoring = ScoringConfig(item_bias=True)


class TestNoPositionsInOneBlock(UserTowerContract):
    settings: ClassVar[dict[str, object]] = {**SETTINGS, "positions": "none", "blocks": 1}


class TestTimes(UserTowerContract):
    settings: ClassVar[dict[str, object]] = {**SETTINGS, "times": True}

    def stir(self, made: TwoTowers) -> None:
        """The addend of times begins at zero."""
        torch.nn.init.normal_(made.user.get_parameter("times.weight"), std=0.5)

    def test_a_moment_changes_nothing_before_it(self) -> None:
        """Another gap or another clock moves the examples that read that step, and no other."""
        made, histories = self.model().user, from_the_start()
        before = made(histories, vectors())
        for name, other in (("gaps", 500.0), ("clocks", 300_000.0)):
            for place in (0, 3, 4, 5, 7):
                changed = times()
                changed[name][place] = other
                after = made(replace(histories, **changed), vectors())
                reads = (histories.starts <= place) & (place < histories.ends)
                torch.testing.assert_close(before[~reads], after[~reads], rtol=0, atol=1e-6)
                assert not torch.isclose(before[reads], after[reads]).all(dim=1).any()


class TestTimesBesideRotaryPositions(TestTimes):
    settings: ClassVar[dict[str, object]] = {**SETTINGS, "times": True, "positions": "rotary"}


def tower(**settings: object) -> TransformerUserTower:
    torch.manual_seed(0)
    asked = config(**{**SETTINGS, **settings})
    assert isinstance(asked.user, TransformerUserConfig)
    return TransformerUserTower(asked.user, asked.dimension, no_features(USERS))


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
def test_agrees_with_loops_in_numpy(positions: str) -> None:
    """One history, step by step and head by head, in float64."""
    made = tower(positions=positions).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.manual_seed(parameter.numel())))
    weights = {name: value.double().numpy() for name, value in made.state_dict().items()}
    expected = oracle.states(weights, vectors()[:5].double().numpy(), heads=3, rotary=positions == "rotary")
    ours = made(from_the_start(), vectors())[:5].detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_without_positions_the_past_is_a_set() -> None:
    """The last state doesn't depend on the order of what came before in one block; with positions it does."""
    order = torch.tensor([2, 0, 3, 1, 4, 5, 6, 7])
    for positions, same in (("none", True), ("learned", False), ("rotary", False)):
        made = tower(positions=positions, blocks=1).eval()
        one, other = made(from_the_start(), vectors()), made(from_the_start(), vectors()[order])
        assert torch.allclose(one[4], other[4], atol=1e-6) == same


def test_rotary_positions_know_distances_alone() -> None:
    """A window that starts later in the same history reads as one that begins there."""
    made = CausalAttention(6, 3, rotary=True)
    heads = torch.randn(1, 3, 9, 2, generator=torch.manual_seed(4))
    same = heads[:, :, :1].expand(-1, -1, 9, -1)
    turned = made._rotated(same)
    products = (turned @ turned.transpose(2, 3))[0, 0]
    for distance in range(9):
        torch.testing.assert_close(products.diagonal(distance), products[0, distance].expand(9 - distance))


def test_dropout_acts_in_training_alone() -> None:
    made = tower(dropout=0.5)
    given = vectors()
    made.train()
    assert not torch.equal(made(from_the_start(), given), made(from_the_start(), given))
    made.eval()
    assert torch.equal(made(from_the_start(), given), made(from_the_start(), given))


def test_long_and_short_histories_share_a_batch() -> None:
    """Lengths that fall into several groups come back in their own order."""
    lengths = torch.tensor([1, 40, 3, 17, 39, 2, 1])
    ends = lengths.cumsum(0)
    given = torch.randn(int(ends[-1]), 6, generator=torch.manual_seed(2))
    histories = PackedHistories(
        rows=torch.zeros(len(given), dtype=torch.int64),
        starts=ends - lengths,
        ends=ends,
        users=torch.zeros(7, dtype=torch.int64),
        ages=torch.zeros(7),
    )
    made = tower().eval()
    together = made(histories, given)
    for b in range(7):
        alone = given[ends[b] - lengths[b] : ends[b]].unsqueeze(0)
        torch.testing.assert_close(made.served(alone, lengths[b : b + 1], {})[0], together[b])


@pytest.mark.parametrize(
    ("user", "dimension", "said"),
    [
        ({"heads": 4}, 6, "use a multiple of 4"),
        ({"heads": 2, "positions": "rotary"}, 6, "in pairs of coord"),
    ],
)
def test_heads_share_the_dimension(user: dict[str, object], dimension: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TowerConfig.model_validate({"dimension": dimension, "user": {"kind": "transformer", **user}})


def test_a_tower_of_times_begins_as_the_one_without() -> None:
    """Its other parameters are drawn alike, and what it adds for times is zero."""
    one, other = tower(times=True), tower()
    learnt = dict(one.named_parameters())
    assert not learnt.pop("times.weight").any()
    for name, parameter in other.named_parameters():
        assert torch.equal(learnt.pop(name), parameter)
    assert not learnt
    assert torch.equal(one.eval()(from_the_start(), vectors()), other.eval()(from_the_start(), vectors()))


def test_without_times_all_of_them_are_unknown() -> None:
    """A packed batch that has none is one of unknown gaps, whatever the clocks say; so is what is served."""
    made = tower(times=True).eval()
    torch.nn.init.normal_(made.get_parameter("times.weight"))
    histories = replace(from_the_start(), gaps=None, clocks=None)
    unknown = replace(from_the_start(), gaps=torch.full((8,), -1.0))
    expected = made(unknown, vectors())
    torch.testing.assert_close(made(histories, vectors()), expected)
    served = made.served(vectors()[:5].unsqueeze(0), torch.tensor([5]), {})
    torch.testing.assert_close(served[0], expected[4])
    assert not torch.isclose(made(from_the_start(), vectors()), expected).all(dim=1).any()


def test_training_hides_the_times_of_some_whole_histories() -> None:
    """About a tenth of 2,000 histories of three are read as if their times were unknown, and none by half."""
    made = tower(times=True, blocks=1).train()
    torch.nn.init.normal_(made.get_parameter("times.weight"))
    ends = torch.arange(1, 6001)
    histories = PackedHistories(
        rows=torch.zeros(6000, dtype=torch.int64),
        starts=(ends - 1) // 3 * 3,
        ends=ends,
        users=torch.zeros(6000, dtype=torch.int64),
        ages=torch.zeros(6000),
        gaps=torch.full((6000,), 100.0),
        clocks=torch.full((6000,), 5000.0),
    )
    given = vectors()[:3].repeat(2000, 1)
    torch.manual_seed(3)
    trained = made(histories, given)
    torch.manual_seed(3)
    assert torch.equal(made(histories, given), trained)
    unknown = made(replace(histories, gaps=None, clocks=None), given)
    hidden = torch.isclose(trained, unknown, atol=1e-5).all(dim=1).view(2000, 3)
    assert torch.equal(hidden.all(dim=1), hidden.any(dim=1))
    assert 140 < int(hidden.all(dim=1).sum()) < 260  # four deviations to either side of 200
    made.eval()
    assert not torch.isclose(made(histories, given), unknown).all(dim=1).any()
