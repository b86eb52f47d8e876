import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.oracles import softmax as oracle
from training.losses.full_softmax import full_softmax
from training.losses.sampled_softmax import sampled_softmax, sampled_softmax_corrected
from training.samplers.draw import Draw, drawn_with_replacement, without_accidental_hits

SCORES = torch.tensor([1.3, -0.4, 2.1, 0.2, -1.7], dtype=torch.float64)
UNEQUAL_Q = torch.tensor([0.70, 0.02, 0.08, 0.15, 0.05], dtype=torch.float64)
POSITIVE = 2


def whole_catalogue(positives: Tensor, item_count: int) -> Draw:
    ids = torch.arange(item_count)
    zeros = torch.zeros(item_count, dtype=torch.float64)
    return Draw(ids, zeros, zeros[positives], without_accidental_hits(ids, positives))


def draw_of(ids: list[int], q: Tensor) -> Draw:
    return drawn_with_replacement(torch.tensor(ids), q.log(), torch.tensor([POSITIVE]))


def loss_of(draw: Draw, scores: Tensor) -> Tensor:
    return sampled_softmax(scores[POSITIVE : POSITIVE + 1], scores[draw.ids].unsqueeze(0), draw)[0]


def test_agrees_with_the_formula_written_out() -> None:
    """Value of one example with duplicates and an accidental hit among strongly unequal candidates."""
    ids = [0, 0, 4, 2, 3, 1]
    counts = [len(ids) * float(UNEQUAL_Q[i]) for i in ids]
    expected = oracle.sampled(2.1, [float(SCORES[i]) for i in ids], counts, [i != POSITIVE for i in ids])
    assert float(loss_of(draw_of(ids, UNEQUAL_Q), SCORES)) == pytest.approx(expected, rel=1e-12)


def test_whole_catalogue_as_the_draw_is_the_full_softmax() -> None:
    """Value and gradient are those of the full softmax when every item is drawn once for certain."""
    positives = torch.tensor([0, 2, 2, 4])
    scores = torch.randn(4, 5, dtype=torch.float64, requires_grad=True, generator=torch.manual_seed(1))
    draw = whole_catalogue(positives, 5)
    ours = sampled_softmax(scores.gather(1, positives[:, None])[:, 0], scores, draw)
    (gradient,) = torch.autograd.grad(ours.sum(), scores)
    for line, positive in enumerate(positives.tolist()):
        row = scores[line].detach().numpy()
        assert ours[line].item() == pytest.approx(oracle.full(row, positive), rel=1e-12)
        np.testing.assert_allclose(gradient[line], oracle.full_gradient(row, positive), atol=1e-12)
    torch.testing.assert_close(ours, full_softmax(scores, positives), rtol=1e-12, atol=1e-12)


def expected_exp_sum(q: Tensor, correct: bool, size: int = 3) -> float:
    """The exact expectation, over all draws, of the estimated sum of exp over the other items."""
    total = 0.0
    for ids, probability in oracle.all_draws(q.tolist(), size):
        draw = draw_of(list(ids), q)
        if not correct:
            uniform = torch.full_like(draw.log_count, math.log(size / len(q)))
            draw = Draw(draw.ids, uniform, draw.positive_log_count, draw.valid)
        total += probability * math.expm1(float(loss_of(draw, SCORES))) * math.exp(SCORES[POSITIVE])
    return total


def test_exp_sum_is_unbiased_over_all_draws_and_only_with_the_correction() -> None:
    """The expectation over all 125 draws is the true sum; with a constant count in its place it is not."""
    truth = sum(math.exp(score) for i, score in enumerate(SCORES.tolist()) if i != POSITIVE)
    assert expected_exp_sum(UNEQUAL_Q, correct=True) == pytest.approx(truth, rel=1e-9)
    assert expected_exp_sum(UNEQUAL_Q, correct=False) != pytest.approx(truth, rel=0.05)


def test_gradient_is_nearly_that_of_the_full_softmax_over_all_draws() -> None:
    """The expected gradient over all draws of a size nears the full softmax's as the size grows."""
    errors = []
    for size in (1, 5):
        expected = torch.zeros(5, dtype=torch.float64)
        for ids, probability in oracle.all_draws(UNEQUAL_Q.tolist(), size):
            scores = SCORES.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss_of(draw_of(list(ids), UNEQUAL_Q), scores), scores)
            expected += probability * gradient
        errors.append(np.abs(expected.numpy() - oracle.full_gradient(SCORES.numpy(), POSITIVE)).max())
    assert errors[1] < 0.75 * errors[0]


def test_proposal_proportional_to_exp_scores_is_exact_for_every_draw() -> None:
    """With q proportional to exp s over the other items, log Z is right for each single draw."""
    others = torch.tensor([0, 1, 3, 4])
    q = torch.zeros(5, dtype=torch.float64)
    q[others] = torch.softmax(SCORES[others], dim=0)
    truth = oracle.full(SCORES.numpy(), POSITIVE)
    for ids in ([0], [1, 1], [4, 3, 0, 0, 0, 1, 4]):
        assert float(loss_of(draw_of(ids, q), SCORES)) == pytest.approx(truth, rel=1e-12)


def test_a_masked_candidate_has_no_mass_and_no_gradient() -> None:
    """Raising the score of a masked candidate changes neither the loss nor any gradient, exactly."""
    draw = draw_of([0, POSITIVE, 3], UNEQUAL_Q)
    positive = torch.tensor([0.5], dtype=torch.float64)
    results = []
    for hidden in (-3.0, 300.0):
        drawn = torch.tensor([[0.1, hidden, 0.7]], dtype=torch.float64, requires_grad=True)
        loss = sampled_softmax(positive, drawn, draw)
        (gradient,) = torch.autograd.grad(loss.sum(), drawn)
        assert gradient[0, 1] == 0.0
        results.append((loss.item(), gradient.tolist()))
    assert results[0] == results[1]


def test_no_candidate_left_is_a_loss_of_zero_that_can_be_differentiated() -> None:
    """When everything drawn is the positive itself, loss and gradients are zero, not nan."""
    draw = draw_of([POSITIVE, POSITIVE], UNEQUAL_Q)
    positive = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    drawn = torch.tensor([[0.3, 0.3]], dtype=torch.float64, requires_grad=True)
    loss = sampled_softmax(positive, drawn, draw)
    gradients = torch.autograd.grad(loss.sum(), [positive, drawn])
    assert loss.item() == 0.0
    assert all((gradient == 0.0).all() for gradient in gradients)


@pytest.mark.parametrize(("positive", "drawn"), [(1e4, -1e4), (-1e4, 1e4), (1e4, 1e4), (-1e4, -1e4)])
def test_extreme_scores_stay_finite(positive: float, drawn: float) -> None:
    """Scores of +-1e4 in float32 give the right finite loss and finite gradients."""
    draw = draw_of([0, 1], UNEQUAL_Q.float())
    given = torch.tensor([positive], requires_grad=True)
    loss = sampled_softmax(given, torch.full((1, 2), drawn), draw)
    (gradient,) = torch.autograd.grad(loss.sum(), given)
    assert gradient.isfinite().all()
    corrected = drawn + math.log(sum(1 / (2 * float(UNEQUAL_Q[i])) for i in (0, 1)))
    assert loss.item() == pytest.approx(max(0.0, corrected - positive), abs=10)


def test_gradient_agrees_with_finite_differences() -> None:
    """The analytic gradient passes torch's finite-difference check in float64, for both forms."""
    draw = draw_of([0, 0, 4, POSITIVE, 1], UNEQUAL_Q)
    positive = torch.tensor([0.4], dtype=torch.float64, requires_grad=True)
    drawn = torch.randn(1, 5, dtype=torch.float64, generator=torch.manual_seed(0)).requires_grad_()
    for loss in (sampled_softmax, sampled_softmax_corrected):
        assert torch.autograd.gradcheck(lambda p, d, loss=loss: loss(p, d, draw), (positive, drawn))


def test_the_corrected_form_corrects_the_positive_too() -> None:
    """It is the plain form at a positive score less the positive's own log count."""
    draw = draw_of([0, 3], UNEQUAL_Q)
    positive, drawn = SCORES[POSITIVE : POSITIVE + 1], SCORES[draw.ids].unsqueeze(0)
    count = 2 * float(UNEQUAL_Q[POSITIVE])
    counts = [2 * float(UNEQUAL_Q[i]) for i in (0, 3)]
    expected = oracle.sampled(2.1 - math.log(count), [1.3, 0.2], counts, [True, True])
    assert sampled_softmax_corrected(positive, drawn, draw).item() == pytest.approx(expected, rel=1e-12)
