"""User towers: each agrees with its formula, and a package can add one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.oracles import user_towers as oracle
from tests.support.plugin import install, run_with
from tests.tower.small_towers import USERS, config, from_the_start, no_features, packed, vectors
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.config import USER_TOWERS
from turret.tower.towers.model import KindLayer
from turret.tower.towers.transformer import MovingMean, TimeLayer

PACKAGE = """
from typing import Literal

from turret.tower.towers.pooled import PooledUserConfig, PooledUserTower


class LastSettings(PooledUserConfig):
    kind: Literal["last"]
    factor: float = 0.5


class LastTower(PooledUserTower):
    settings = LastSettings

    def forward(self, histories, vectors):
        return self.config.factor * super().forward(histories, vectors)

    def served(self, history, length, features, times=()):
        return self.config.factor * super().served(history, length, features, times)
"""


@pytest.mark.nightly
def test_a_package_adds_a_tower_by_an_entry_point(tmp_path: Path) -> None:
    install(tmp_path, "last_tower", PACKAGE, {"turret.user_towers": "last = last_tower:LastTower"})
    code = """
from tests.tower.small_towers import config, from_the_start, no_features, user_features, vectors
from turret.tower.towers.model import TwoTowers
towers = TwoTowers(config(kind="last", factor=0.25), 9, no_features(9), user_features())
assert towers.user(from_the_start(), vectors()).shape == (8, 6)
"""
    run = run_with(tmp_path, code)
    assert run.returncode == 0, run.stderr


def tower(**settings: object) -> Any:
    """A fresh tower without features."""
    torch.manual_seed(0)
    asked = config(dropout=0.0, **settings)
    return USER_TOWERS[asked.user.kind](asked.user, asked.dimension, no_features(USERS))


def test_a_pooled_tower_agrees_with_its_formula_in_numpy() -> None:
    """Mean and newest item side by side through the MLP, in float64 and without torch."""
    made = tower(hidden=[7])
    linear = [layer for layer in made.mlp.children() if isinstance(layer, nn.Linear)]
    layers = [(n.weight.detach().double().numpy(), n.bias.detach().double().numpy()) for n in linear]
    given = vectors().double().numpy()
    ours = made(packed(), vectors()).detach().numpy()
    for b, (start, end) in enumerate([(0, 1), (0, 3), (1, 5), (5, 6), (5, 8)]):
        inputs = np.concatenate([oracle.window_mean(given, start, end), given[end - 1]])
        np.testing.assert_allclose(ours[b], oracle.network(layers, inputs), rtol=1e-4, atol=1e-5)


def test_a_pooled_tower_leaves_items_out_of_means_while_training() -> None:
    """What is left is a mean of some of a window's items, or zero; served, nothing is left out."""
    made = tower(last_item=False, hidden=[], item_dropout=0.5)
    histories, given = packed(), torch.eye(6).repeat(2, 1)[:8]
    windows = [
        given[start:end].sum(dim=0) > 0 for start, end in zip(histories.starts, histories.ends, strict=True)
    ]
    torch.manual_seed(0)
    seen = set()
    for _ in range(200):
        for window, mean in zip(windows, made(histories, given), strict=True):
            kept = mean > 0
            assert not kept[~window].any()
            torch.testing.assert_close(mean, kept / max(1, int(kept.sum())))
            seen.add((*window.tolist(), *kept.tolist()))
    assert len(seen) > 2 * len(windows)
    expected = tower(last_item=False, hidden=[])
    torch.testing.assert_close(made.eval()(histories, given), expected(histories, given))


def test_pooling_over_roots_divides_the_sum_by_the_root_of_the_number() -> None:
    """The item that is left out does not count."""
    made, given = tower(last_item=False, ordered=False, hidden=[], pooling="root"), vectors()
    histories = replace(packed(), left_out=torch.tensor([-1, 1, 2, -1, 7]))
    ours, seen = made(histories, given).detach().numpy(), given.double().numpy()
    windows = [(0,), (0, 2), (1, 3, 4), (5,), (5, 6)]
    expected = [seen[list(window)].sum(axis=0) / np.sqrt(len(window)) for window in windows]
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_an_attentive_tower_agrees_with_its_formula_in_numpy() -> None:
    """Weights by exp of a score within e^8 of one, normalised over the window."""
    made, given = tower(kind="attentive", attention=5, hidden=[7]), vectors()
    seen: list[torch.Tensor] = []
    made.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    made(packed(), given)
    first, _, second = list(made.attention)
    scores = np.tanh(given.numpy() @ first.weight.detach().numpy().T + first.bias.detach().numpy())
    scores = 8 * np.tanh((scores @ second.weight.detach().numpy().T)[:, 0] / 8)
    for b, (start, end) in enumerate([(0, 1), (0, 3), (1, 5), (5, 6), (5, 8)]):
        weights = np.exp(scores[start:end])
        mean = weights @ given.numpy()[start:end] / weights.sum()
        np.testing.assert_allclose(seen[0][b], np.concatenate([mean, given[end - 1]]), rtol=1e-5, atol=1e-6)


def transformer(**settings: object) -> Any:
    return tower(kind="transformer", heads=3, feed_forward=8, history_length=40, **settings)


def test_a_transformer_agrees_with_loops_in_numpy() -> None:
    """One history, step by step and head by head, in float64."""
    made = transformer().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.manual_seed(parameter.numel())))
    weights = {name: value.double().numpy() for name, value in made.state_dict().items()}
    expected = oracle.states(weights, vectors()[:5].double().numpy(), heads=3)
    ours = made(from_the_start(), vectors())[:5].detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_a_transformer_without_times_reads_unknown_ones() -> None:
    """A packed batch that has none is one of unknown gaps, whatever the clocks say; so is what is served."""
    made = transformer(times=True).eval()
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
    made = transformer(times=True, blocks=1).train()
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


def test_the_item_vector_of_an_unknown_kind_is_unchanged() -> None:
    layer = KindLayer(2, 3)
    torch.nn.init.normal_(layer.factor, generator=torch.manual_seed(1))
    torch.nn.init.normal_(layer.added, generator=torch.manual_seed(2))
    given = torch.randn(3, 3, generator=torch.manual_seed(3))
    with torch.no_grad():
        changed = layer(given, torch.tensor([-1, 0, 1]))
        expected = given[1:] * (1.0 + layer.factor) + layer.added
    assert torch.equal(changed[0], given[0])
    torch.testing.assert_close(changed[1:], expected)


def time_layer() -> TimeLayer:
    made = TimeLayer(5)
    torch.nn.init.normal_(made.weight, generator=torch.manual_seed(1))
    return made


@pytest.mark.parametrize(
    ("gap", "clock"),
    [(0.0, 0.0), (0.5, 30_000.0), (1.0, 86_400.0), (5000.0, 500_000.0), (2.0**31, 604_799.0)],
)
def test_the_vector_of_a_time_is_that_of_its_formula(gap: float, clock: float) -> None:
    """In float64: the share of the two nearest knots, and the angles of two clock hands."""
    made = time_layer()
    table = made.weight.detach().double().numpy()
    place = np.log2(1.0 + min(gap, 2.0**30))
    low, share = min(int(place), 29), place - min(int(place), 29)
    expected = (1 - share) * table[low] + share * table[low + 1]
    for number, period in enumerate((7 * 86_400.0, 86_400.0)):
        angle = 2 * np.pi * clock / period
        expected = expected + np.sin(angle) * table[31 + number] + np.cos(angle) * table[33 + number]
    given = made(torch.tensor([[gap]]), torch.tensor([[clock]]))
    assert given.shape == (1, 1, 5)
    # Angles up to 44 in float32.
    np.testing.assert_allclose(given[0, 0].detach().numpy(), expected, atol=2e-5)


def test_the_filter_of_steps_is_that_of_its_formula() -> None:
    """The mean of the last five steps, as far as there are any, and a factor of the rest; nothing later."""
    steps = torch.randn(2, 8, 3, generator=torch.manual_seed(0))
    made = MovingMean(3)
    torch.nn.init.normal_(made.rest, generator=torch.manual_seed(1))
    factor, given = made.rest.detach().numpy() ** 2, steps.numpy()
    filtered = made(steps).detach().numpy()
    for step in range(8):
        mean = given[:, max(0, step - 4) : step + 1].mean(axis=1)
        expected = mean + factor * (given[:, step] - mean)
        np.testing.assert_allclose(filtered[:, step], expected, rtol=1e-5, atol=1e-6)
    last = torch.tensor([2, 7])
    np.testing.assert_allclose(
        made(steps, last).detach().numpy()[:, 0], filtered[[0, 1], [2, 7]], rtol=1e-5, atol=1e-6
    )
