"""Layers of towers: windows of packed histories, rows by number, features and perceptrons."""

from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.tower.small_towers import ITEMS, item_features, user_features
from turret.tower.errors import TowerError
from turret.tower.kernels.elementwise import gather_rows
from turret.tower.layers.feature_layers import FeatureLayers, FeatureRows, feature_rows
from turret.tower.layers.packed import PackedHistories
from turret.tower.layers.windows import window_means, window_sums


def windows(starts: list[int], ends: list[int], left_out: list[int] | None = None) -> PackedHistories:
    return PackedHistories(
        rows=torch.zeros(max(ends), dtype=torch.int64),
        starts=torch.tensor(starts),
        ends=torch.tensor(ends),
        users=torch.zeros(len(starts), dtype=torch.int64),
        ages=torch.zeros(len(starts)),
        left_out=None if left_out is None else torch.tensor(left_out),
    )


def given(places: int, width: int = 3) -> Tensor:
    return torch.randn(places, width, generator=torch.manual_seed(0))


CASES = {
    "prefixes": windows([0, 0, 0, 3, 3], [1, 2, 3, 4, 5]),
    "sliding": windows([0, 1, 2, 3], [3, 4, 5, 6]),
    "backwards": windows([3, 2, 0], [6, 4, 3]),
    "apart": windows([5, 0, 2], [6, 2, 4]),
    "all but one": windows([0, 0, 0, 3, 3], [3, 3, 3, 5, 5], [0, 1, 2, 4, -1]),
}


@pytest.mark.parametrize("histories", CASES.values(), ids=CASES.keys())
def test_a_sum_has_what_its_window_holds(histories: PackedHistories) -> None:
    """One window after the other, in NumPy; the gradient is that of the same sums."""
    vectors = given(int(histories.ends.max())).requires_grad_()
    left_out = histories.left_out if histories.left_out is not None else torch.full_like(histories.starts, -1)
    mask = np.zeros((len(histories.starts), len(vectors)), dtype=np.float32)
    for b, (start, end, out) in enumerate(zip(histories.starts, histories.ends, left_out, strict=True)):
        mask[b, start:end] = 1.0
        if out >= 0:
            mask[b, out] = 0.0
    held = torch.from_numpy(mask)
    sums = window_sums(vectors, histories)
    torch.testing.assert_close(sums, held @ vectors, rtol=1e-5, atol=1e-5)
    slopes = torch.randn(sums.shape, generator=torch.manual_seed(1))
    (gradient,) = torch.autograd.grad((sums * slopes).sum(), vectors)
    torch.testing.assert_close(gradient, held.T @ slopes, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(window_means(vectors, histories), sums / held.sum(dim=1, keepdim=True))


def test_short_windows_survive_a_long_pack() -> None:
    """A window of one after one of 199,999 is its vector to float32's precision."""
    vectors = torch.rand(200_000, 2) + 1.0
    means = window_means(vectors, windows([0, 199_999], [199_999, 200_000]))
    torch.testing.assert_close(means[1], vectors[-1], rtol=1e-6, atol=0)
    slid = window_means(vectors, windows([0, 199_998], [199_999, 200_000]))
    torch.testing.assert_close(slid[1], vectors[-2:].mean(dim=0), rtol=1e-6, atol=0)


def test_the_gradient_is_the_same_bit_for_bit_in_every_run() -> None:
    """Thousands of rows are picked again and again; the order of addition decides the last bits."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 50, (40_000,), generator=random)
    weights = torch.randn(40_000, 16, generator=random)
    gradients: list[torch.Tensor] = []
    for _ in range(5):
        matrix = torch.zeros(50, 16, requires_grad=True)
        (gather_rows(matrix, rows) * weights).sum().backward()  # type: ignore[no-untyped-call]
        assert matrix.grad is not None
        gradients.append(matrix.grad)
    assert all(torch.equal(gradients[0], other) for other in gradients[1:])


def test_the_unknown_gives_zeros_and_learns_nothing() -> None:
    prepared = item_features()
    layers = FeatureLayers(prepared.features, 5)
    FeatureRows(layers, prepared)(torch.arange(ITEMS)).sum().backward()
    for table in layers.tables.values():
        weight = next(table.parameters())
        assert (weight[0] == 0).all()
        assert weight.grad is not None
        assert (weight.grad[0] == 0).all()
        assert (weight.grad[1:] != 0).any()


def names(asked: tuple[str, ...] | Literal["all"]) -> list[str]:
    rows = feature_rows(asked, 4, user_features(), "tower.user.features")
    return [] if rows is None else [feature.name for feature in rows.layers.features]


def test_features_are_read_in_the_order_of_their_names_and_an_unknown_one_is_refused() -> None:
    assert names("all") == ["country", "age", "likes"]
    assert names(("likes", "age")) == ["likes", "age"]
    with pytest.raises(TowerError, match=r"^tower\.user\.features: .*'shoes'.*country, age, likes\.$"):
        names(("country", "shoes"))
