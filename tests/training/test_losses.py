"""Losses over a draw: each formula written out a second time, and what each promises beyond the contract.

Masks, gradients, extremes and steps of every kind are checked in tests/contracts/test_losses.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.losses import Scored, scored
from tests.oracles import losses as oracle
from tests.oracles.losses import Example
from turret.training import losses
from turret.training.losses.binary import binary_cross_entropy, gbce, nce, negative_sampling
from turret.training.losses.catalog import full_softmax
from turret.training.losses.sampled import (
    refined_logq,
    sampled_softmax,
    sampled_softmax_corrected,
    standard_importance,
    top_k_off_policy,
)
from turret.training.objectives.contract import Loss, LossSettings
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.samplers.core.contract import Draw, drawn_with_replacement


@dataclass(frozen=True)
class Formula:
    """Settings, their loss written out, and whether it reads the counts of candidates and of positives."""

    settings: LossSettings
    oracle: Callable[[Example], float]
    reads_counts: bool = False
    reads_positive_counts: bool = False

    def expected(self, batch: Scored) -> Tensor:
        return torch.tensor([self.oracle(example) for example in batch.examples()], dtype=torch.float64)

    def agrees(self, batch: Scored, expected: Tensor) -> bool:
        assert isinstance(self.settings, DrawLossSettings)
        return torch.allclose(
            self.settings.build(40)(batch.positive, batch.drawn, batch.draw), expected, rtol=1e-9, atol=1e-12
        )


FORMULAS = [
    Formula(losses.sampled_softmax(), oracle.sampled_softmax, True),
    Formula(losses.sampled_softmax_corrected(), oracle.sampled_softmax_corrected, True, True),
    Formula(losses.top_k_off_policy(), lambda one: oracle.top_k_off_policy(one, k=10), True),
    Formula(losses.top_k_off_policy(k=1), lambda one: oracle.top_k_off_policy(one, k=1), True),
    Formula(losses.subset_softmax(), oracle.subset_softmax),
    Formula(losses.standard_importance(), oracle.standard_importance, True),
    Formula(losses.refined_logq(), oracle.refined_logq, True),
    Formula(losses.blackout(), oracle.blackout, True, True),
    Formula(losses.nce(), oracle.nce, True, True),
    Formula(losses.negative_sampling(), oracle.negative_sampling),
    Formula(losses.binary_cross_entropy(), oracle.binary_cross_entropy),
    Formula(losses.gbce(t=0.75), lambda one: oracle.gbce(one, t=0.75, item_count=40)),
    Formula(losses.gbce(t=1.0), lambda one: oracle.gbce(one, t=1.0, item_count=40)),
    Formula(losses.ranking(delta=0.8), lambda one: oracle.ranking(one, delta=0.8)),
    Formula(losses.ranking(delta=0.0), lambda one: oracle.ranking(one, delta=0.0)),
    Formula(losses.ranking(delta="complementary_sum"), lambda one: oracle.ranking(one, delta=math.log(39))),
    Formula(losses.ranking_hinge(delta=0.8), lambda one: oracle.ranking_hinge(one, delta=0.8)),
    Formula(losses.cosine_hinge(margin=0.3), lambda one: oracle.ranking_hinge(one, delta=0.3)),
    Formula(losses.cosine_embedding(margin=0.3), lambda one: oracle.cosine_embedding(one, margin=0.3)),
]


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("formula", FORMULAS, ids=lambda one: str(one.settings))
def test_each_loss_agrees_with_its_formula_written_out(formula: Formula, shared: bool) -> None:
    """The mask matters for it, and counts where the formula has them: a constant in their place is seen."""
    batch = scored(shared, keeps_hits=formula.settings.kind == "standard_importance")
    expected, constant = formula.expected(batch), math.log(7 / 6)
    assert formula.agrees(batch, expected)
    assert not formula.agrees(batch.with_draw(valid=torch.ones_like(batch.draw.valid)), expected)
    even = batch.with_draw(log_count=torch.full_like(batch.draw.log_count, constant))
    assert formula.agrees(even, expected) is not formula.reads_counts
    even = batch.with_draw(positive_log_count=torch.full_like(batch.draw.positive_log_count, constant))
    assert formula.agrees(even, expected) is not formula.reads_positive_counts


# Five items, from which positives come by P or have these scores, and an unlike proposal.
SCORES = torch.tensor([1.3, -0.4, 2.1, 0.2, -1.7], dtype=torch.float64)
POSITIVE = torch.tensor([2])
P = torch.tensor([0.05, 0.40, 0.30, 0.20, 0.05], dtype=torch.float64)
UNEQUAL = torch.tensor([0.60, 0.02, 0.08, 0.10, 0.20], dtype=torch.float64)
EVERYTHING = torch.arange(5)


def draw_of(ids: list[int], q: Tensor = UNEQUAL, hits: bool = False) -> Draw:
    """The draw of these ids for an example whose positive is item 2."""
    draw = drawn_with_replacement(torch.tensor(ids), q.log(), POSITIVE)
    return draw.keeping_hits(POSITIVE) if hits else draw


def loss_of(loss: Loss, draw: Draw, scores: Tensor = SCORES) -> Tensor:
    return loss(scores[POSITIVE], scores[draw.ids].unsqueeze(0), draw)[0]


def whole_catalog(positives: Tensor, hits: bool = False) -> Draw:
    """Every item drawn once for certain."""
    zeros = torch.zeros(5, dtype=torch.float64)
    return Draw(EVERYTHING, zeros, zeros[positives], (positives.unsqueeze(1) != EVERYTHING) | hits)


@pytest.mark.parametrize(("loss", "hits"), [(sampled_softmax, False), (standard_importance, True)])
def test_the_whole_catalog_as_the_draw_is_the_full_softmax(loss: Loss, hits: bool) -> None:
    """Value and gradient."""
    positives = torch.tensor([0, 2, 2, 4])
    scores = torch.randn(4, 5, dtype=torch.float64, requires_grad=True, generator=torch.manual_seed(1))
    ours = loss(scores.gather(1, positives[:, None])[:, 0], scores, whole_catalog(positives, hits))
    (gradient,) = torch.autograd.grad(ours.sum(), scores)
    for line, positive in enumerate(positives.tolist()):
        row = scores[line].detach().numpy()
        assert ours[line].item() == pytest.approx(oracle.full(row, positive), rel=1e-12)
        np.testing.assert_allclose(gradient[line], oracle.full_gradient(row, positive), atol=1e-12)
    torch.testing.assert_close(ours, full_softmax(scores, positives), rtol=1e-12, atol=1e-12)


def test_importance_weights_are_by_propensities_clipped_and_one_without_an_answer() -> None:
    batch = scored()
    propensities = [0.9, 0.004, 1.0, math.nan, 0.2]
    ours = top_k_off_policy(
        batch.positive,
        batch.drawn,
        batch.with_draw(propensities=torch.tensor(propensities)).draw,
        k=3,
        clip=5,
    )
    expected = [
        oracle.top_k_off_policy(example, 3, None if math.isnan(propensity) else propensity, clip=5.0)
        for example, propensity in zip(batch.examples(), propensities, strict=True)
    ]
    np.testing.assert_allclose(ours, expected, rtol=1e-6)  # propensities are float32
    unclipped = [oracle.top_k_off_policy(batch.examples()[1], 3, 0.004, clip=math.inf), expected[1]]
    assert unclipped[0] > 1.5 * unclipped[1]


@pytest.mark.parametrize("k", [1, 2, 8])
def test_the_gradient_is_that_of_the_reward_of_k_items_whichever_version_was_logged(k: int) -> None:
    """Chen et al. 2019, eq. 2 and section 4.3: of the chance 1 - (1 - P)^k that k draws have an item.

    The expectation over logged answers is exact: each item comes with its propensity.
    """
    rewards = torch.tensor([0.0, 1.0, 0.5, 2.0, 0.1], dtype=torch.float64)
    scores = SCORES.clone().requires_grad_()
    chances = 1 - (1 - (scores.exp() / scores.exp().sum())) ** k
    (expected,) = torch.autograd.grad((rewards * chances).sum(), scores)
    for propensities in (P, UNEQUAL):
        draw = replace(whole_catalog(EVERYTHING), propensities=propensities)
        ours = top_k_off_policy(scores, scores.expand(5, 5), draw, k=k, clip=1e6)
        (gradient,) = torch.autograd.grad((propensities * rewards * ours).sum(), scores)
        np.testing.assert_allclose(-gradient, expected, rtol=1e-9, atol=1e-12)


def expected_sum(q: Tensor, drawn_from: Tensor, size: int) -> float:
    """The exact expectation over all draws of the sum of exp over the other items, by the counts of `q`."""
    return sum(
        chance * math.expm1(float(loss_of(sampled_softmax, draw_of(list(ids), q)))) * math.exp(SCORES[2])
        for ids, chance in oracle.all_draws(drawn_from.tolist(), size)
        if chance
    )


def test_exp_sums_are_unbiased_over_all_draws_and_only_with_the_correction() -> None:
    """With replacement; and without the positive, for which plain q_j in the counts are too high."""
    truth = sum(math.exp(score) for i, score in enumerate(SCORES.tolist()) if i != 2)
    uniform = torch.full((5,), 0.2, dtype=torch.float64)
    assert expected_sum(UNEQUAL, UNEQUAL, 3) == pytest.approx(truth, rel=1e-9)
    assert expected_sum(uniform, UNEQUAL, 3) != pytest.approx(truth, rel=0.05)
    excluding = UNEQUAL.index_fill(0, POSITIVE, 0.0)
    excluding = excluding / excluding.sum()
    assert expected_sum(excluding, excluding, 2) == pytest.approx(truth, rel=1e-9)
    assert expected_sum(UNEQUAL, excluding, 2) > 1.05 * truth


def gradient_of(loss: Loss, draw: Draw) -> Tensor:
    scores = SCORES.clone().requires_grad_()
    return torch.autograd.grad(loss_of(loss, draw, scores), scores)[0]


def of_all_draws(loss: Loss, at: Tensor, size: int, hits: bool, q: Tensor = UNEQUAL) -> Tensor:
    """The exact expectation, over positives from P and all draws, of the gradient by the scores.

    The draws are made from UNEQUAL and corrected by `q`.
    """
    total = torch.zeros(5, dtype=torch.float64)
    for ids, probability in oracle.all_draws(UNEQUAL.tolist(), size):
        draw = drawn_with_replacement(torch.tensor(ids), q.log(), EVERYTHING)
        draw = draw.keeping_hits(EVERYTHING) if hits else draw
        scores = at.clone().requires_grad_()
        losses = loss(scores, scores[draw.ids].expand(5, -1), draw)
        total += probability * torch.autograd.grad((P * losses).sum(), scores)[0]
    return total


@pytest.mark.parametrize(
    ("loss", "optimum", "other", "size", "hits"),
    [
        (nce, P.log(), P.log() + 0.5, 2, True),
        (nce, P.logit(), P.log(), 2, False),
        (negative_sampling, (P / UNEQUAL).log(), P.log(), 1, True),
        (negative_sampling, (P / UNEQUAL).log(), P.log(), 3, True),
        (negative_sampling, P.logit() - UNEQUAL.log(), (P / UNEQUAL).log(), 1, False),
        (binary_cross_entropy, P.logit() - (3 * UNEQUAL).log(), (P / (3 * UNEQUAL)).log(), 3, False),
    ],
    ids=[
        "log p if hits count",
        "log odds if they are masked",
        "the lift",
        "the lift of more candidates",
        "the lift of the odds if hits are masked",
        "the same of each candidate",
    ],
)
def test_what_a_binary_loss_learns(loss: Loss, optimum: Tensor, other: Tensor, size: int, hits: bool) -> None:
    assert of_all_draws(loss, optimum, size, hits).abs().max() < 1e-12
    assert of_all_draws(loss, other, size, hits).abs().max() > 0.01


def test_the_gradient_of_nce_goes_to_that_of_the_likelihood_with_more_noise() -> None:
    """Of a normalised model, in expectation over positives from P; the difference is proportional to 1 / K.

    Candidates in proportion to q make the expectation exact, as each counts on its own (Mnih & Teh 2012,
    section 3).
    """
    model = SCORES.log_softmax(dim=0)
    likelihood = model.exp() - P
    left = []
    for rounds in (1, 100, 10_000):
        ids = torch.arange(5).repeat_interleave((50 * UNEQUAL).round().long() * rounds)
        draw = drawn_with_replacement(ids, UNEQUAL.log(), EVERYTHING).keeping_hits(EVERYTHING)
        scores = model.clone().requires_grad_()
        losses = nce(scores, scores[ids].expand(5, -1), draw)
        (gradient,) = torch.autograd.grad((P * losses).sum(), scores)
        left.append(float((gradient - likelihood).norm() / likelihood.norm()))
    few, more, most = left
    assert few > 0.05
    assert few / more == pytest.approx(100, rel=0.2)
    assert more / most == pytest.approx(100, rel=0.01)


def expected_gbce_gradient(at: Tensor, t: float) -> Tensor:
    """The exact expectation over positives from P and all uniform draws of two of the other items."""
    total = torch.zeros(5, dtype=torch.float64)
    for y in range(5):
        others = [0.0 if item == y else 0.25 for item in range(5)]
        for ids, probability in oracle.all_draws(others, 2):
            scores = at.clone().requires_grad_()
            zeros = torch.zeros(2, dtype=torch.float64)
            draw = Draw(torch.tensor(ids), zeros, zeros[:1], torch.ones(1, 2, dtype=torch.bool))
            loss = gbce(scores[y : y + 1], scores[draw.ids].unsqueeze(0), draw, t=t, item_count=5)
            total += P[y] * probability * torch.autograd.grad(loss.sum(), scores)[0]
    return total


def test_gbce_with_full_correction_learns_the_probabilities_and_with_none_is_overconfident() -> None:
    """sigma(s) = p is the optimum at t = 1; at t = 0 it is p / (p + alpha (1 - p)), which is larger."""
    assert expected_gbce_gradient(P.logit(), t=1.0).abs().max() < 1e-12
    assert expected_gbce_gradient(P.logit(), t=0.0).abs().max() > 0.01
    overconfident = P / (P + 0.5 * (1 - P))
    assert expected_gbce_gradient(overconfident.logit(), t=0.0).abs().max() < 1e-12


def test_refined_logq_has_the_gradient_of_the_sampled_softmax_and_not_of_the_plain_correction() -> None:
    """For any draw; over the whole catalog it is that of the full softmax, and the value is not."""
    draw = draw_of([0, 0, 4, 2, 3])
    ours, kept, plain = (
        gradient_of(loss, draw) for loss in (refined_logq, sampled_softmax, sampled_softmax_corrected)
    )
    torch.testing.assert_close(ours, kept, rtol=0, atol=1e-12)
    assert (ours - plain).abs().max() > 0.05
    everything = whole_catalog(POSITIVE)
    expected = oracle.full_gradient(SCORES.numpy(), 2)
    np.testing.assert_allclose(gradient_of(refined_logq, everything), expected, atol=1e-12)
    full = oracle.full(SCORES.numpy(), 2)
    assert float(loss_of(refined_logq, everything)) != pytest.approx(full, rel=0.1)


@pytest.mark.parametrize("loss", [sampled_softmax, standard_importance, refined_logq])
def test_nothing_but_hits_drawn_is_a_loss_and_a_gradient_of_zero(loss: Loss) -> None:
    """Also by the positive's score, of which standard importance sampling is a bare difference otherwise."""
    draw = draw_of([2, 2])
    assert float(loss_of(loss, draw)) == 0.0
    assert not gradient_of(loss, draw).any()
