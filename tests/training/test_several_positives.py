"""Several positives of a user vector, and targets that are distributions."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from turret.training import Estimator, losses, samplers
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext

N, D = 12, 4
POSITIVES = torch.tensor([[0, 3, 7], [5, 1, 2], [4, 0, 9]])
TARGETS = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.25, 0.0, 0.75]])
COUNTS = torch.tensor([90, 40, 30, 20, 10, 8, 6, 5, 4, 3, 2, 1])


def vectors(count: int, seed: int) -> Tensor:
    return torch.randn(count, D, generator=torch.manual_seed(seed), dtype=torch.float64)


def estimator(loss: Any, sampler: Any = None) -> Estimator:
    return Estimator(loss, sampler, items=N, counts=COUNTS, temperature=0.8)


def result(estimate: Estimator, targets: Tensor | None = TARGETS, weights: Tensor | None = None) -> float:
    items = vectors(N, 1)
    if estimate.sampler is not None:
        estimate.refresh(items.float().__getitem__)
    return float(estimate(vectors(3, 0), POSITIVES, items.__getitem__, targets=targets, weights=weights).loss)


def distribution() -> Tensor:
    """The targets over the catalog."""
    return torch.zeros(3, N, dtype=torch.float64).scatter_add(1, POSITIVES, TARGETS.double())


def scores() -> Tensor:
    return vectors(3, 0) @ vectors(N, 1).T / 0.8


@pytest.mark.parametrize(
    ("loss", "sampler"),
    [
        ("full_softmax", None),
        # Every item is in the draw with probability one, so that nothing is estimated.
        ("sampled_softmax", samplers.bernoulli(negatives=N)),
        ("sampled_softmax_corrected", samplers.bernoulli(negatives=N)),
        ("subset_softmax", samplers.bernoulli(negatives=N)),
    ],
)
def test_over_the_whole_catalog_it_is_the_cross_entropy_of_a_distribution(loss: str, sampler: Any) -> None:
    expected = cross_entropy(scores(), distribution(), reduction="none")
    estimate = estimator(getattr(losses, loss)(), sampler)
    assert result(estimate) == pytest.approx(float(expected.mean()), rel=1e-6)
    weights = torch.tensor([1.0, 4.0, 0.5], dtype=torch.float64)
    weighted = float((expected * weights).sum() / weights.sum())
    assert result(estimate, weights=weights) == pytest.approx(weighted, rel=1e-6)


def of_draw(loss: str, estimate: Estimator) -> float:
    """The formula written out over the draw of the first step, one positive at a time."""
    users = [b for b in range(3) for t in range(3) if TARGETS[b, t] > 0]
    items = [int(POSITIVES[b, t]) for b in range(3) for t in range(3) if TARGETS[b, t] > 0]
    shares = [float(TARGETS[b, t]) for b in range(3) for t in range(3) if TARGETS[b, t] > 0]
    assert estimate.sampler is not None
    rows = torch.tensor(items)
    context = DrawContext(
        stream(0, "draw", 0), rows * 0, torch.zeros(len(rows), D), vectors(N, 1).__getitem__
    )
    draw = estimate.sampler.draw((vectors(3, 0)[users]).float(), rows, context)
    ids, counts = draw.ids.expand(len(rows), -1), draw.log_count.expand(len(rows), -1).double().exp()
    own, total = draw.positive_log_count.double().exp(), 0.0
    for n, (b, y) in enumerate(zip(users, items, strict=True)):
        s = scores()[b]
        known = [m for m, owner in enumerate(users) if owner == b]
        mine = {items[m] for m in known}
        drawn = [(int(i), float(count)) for i, count in zip(ids[n], counts[n], strict=True)]
        fresh = [(i, count) for i, count in drawn if i not in mine]
        rest = sum(math.exp(s[i]) / count for i, count in fresh)
        if loss == "sampled_softmax":
            value = math.log(sum(math.exp(s[items[m]]) for m in known) + rest) - float(s[y])
        elif loss == "sampled_softmax_corrected":
            kept = sum(math.exp(s[items[m]]) / own[m] for m in known)
            value = math.log(kept + rest) - float(s[y]) + math.log(own[n])
        else:
            noise = drawn if loss == "nce" else fresh
            odds = [math.exp(s[i]) / (count if loss == "nce" else 1.0) for i, count in noise]
            odd = math.exp(s[y]) / (own[n] if loss == "nce" else 1.0)
            value = math.log(1.0 + 1.0 / odd) + sum(math.log(1.0 + o) for o in odds)
        total += shares[n] * float(value)
    return total / sum(shares)


@pytest.mark.parametrize(
    "loss", ["sampled_softmax", "sampled_softmax_corrected", "nce", "binary_cross_entropy"]
)
@pytest.mark.parametrize(
    "sampler", [samplers.unigram(negatives=20), samplers.quadratic(negatives=20)], ids=["shared", "own"]
)
def test_it_is_the_formula_over_the_draw(loss: str, sampler: Any) -> None:
    """Other positives stay in a softmax and are never drawn; hits count as noise in NCE alone."""
    drawing = estimator(getattr(losses, loss)(), sampler)
    drawing.refresh(vectors(N, 1).float().__getitem__)
    expected = of_draw(loss, drawing)
    assert result(estimator(getattr(losses, loss)(), sampler)) == pytest.approx(expected, rel=1e-4)


def test_seen_items_are_masked_for_each_positive() -> None:
    seen = (torch.tensor([2, 0, 0]), torch.tensor([11, 8, 10]))
    out = estimator(losses.full_softmax())(
        vectors(3, 0), POSITIVES, vectors(N, 1).__getitem__, seen=seen, targets=TARGETS
    )
    hidden = scores().index_put(seen, torch.tensor(-1e9, dtype=torch.float64))
    torch.testing.assert_close(out.loss, cross_entropy(hidden, distribution()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("positives", "targets", "sentence"),
    [
        ([[1, 1]], [[0.5, 0.5]], "row 0 of positives has an item twice"),
        ([[1, 2]], [[0.0, 0.0]], "row 0 of targets sums to 0, .* leave out a user vector without"),
        ([[1, 2]], [[0.6, 0.5]], "row 0 of targets sums to 1.1, .* divide the row by its sum, put the rest"),
        ([[1, -1]], [[0.5, 0.5]], "positives has the row -1; give rows 0 to 11"),
        ([[1, 2]], [[1.5, -0.5]], "give numbers of at least zero"),
        ([[1, 2]], [[1.0]], r"give \[B, T\] and \[B, T\]"),
        ([1], [[1.0]], r"give positives \[B, T\]"),
    ],
)
def test_targets_that_are_none_are_refused(positives: Any, targets: Any, sentence: str) -> None:
    with pytest.raises(TrainingError, match=sentence):
        estimator(losses.full_softmax())(
            vectors(1, 0), torch.tensor(positives), vectors(N, 1).__getitem__, targets=torch.tensor(targets)
        )


def test_hits_of_the_batch_do_not_count_beside_several_positives() -> None:
    estimate = estimator(losses.nce(), samplers.in_batch())
    with pytest.raises(TrainingError, match="remove_accidental_hits = true"):
        estimate(vectors(3, 0), POSITIVES, vectors(N, 1).__getitem__)
