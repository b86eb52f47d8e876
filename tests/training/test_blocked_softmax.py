"""Softmaxes block by block: the same loss and gradients without all scores at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.config import ScoringConfig
from turret.training.batches.batches import TrainingBatches
from turret.training.config.experiment import ExperimentConfig
from turret.training.model_loss import build_objective, model_loss
from turret.training.objectives.blocked import blocked_softmax, tensor_masses_
from turret.training.randomness import stream
from turret.training.run import build_model

SIGNED = ScoringConfig(kind="dot", temperature=0.3)
ABSOLUTE = ScoringConfig(kind="dot", temperature=0.3, absolute=True)
WEIGHTS = torch.tensor([1.0, 2.0, 0.0, 0.25, 1.0], dtype=torch.float64)
HITS = (torch.tensor([0, 0, 2, 4]), torch.tensor([3, 36, 0, 5]))


def vectors(scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """User vectors [5, 6], candidates [37, 6], and scores of positives [5]."""
    random = torch.Generator().manual_seed(0)
    shapes = ((5, 6), (37, 6), (5,))
    users, items, positive = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes)
    return (users * scale).requires_grad_(), items.requires_grad_(), (positive * scale).requires_grad_()


def plain(
    users: Tensor, items: Tensor, positive: Tensor, counts: Tensor | None, scoring: ScoringConfig
) -> Tensor:
    """The formula, with all scores at once."""
    scores = users @ items.T / 0.3
    if scoring.absolute:
        scores = scores.abs()
    if counts is not None:
        scores = scores - counts
    mask = torch.zeros(scores.shape, dtype=torch.bool)
    mask[HITS] = True
    scores = torch.cat([positive.unsqueeze(1), scores.masked_fill(mask, -torch.inf)], dim=1)
    return ((scores.logsumexp(dim=1) - positive) * WEIGHTS).sum()


COUNTS = torch.linspace(-3.0, 2.0, 37, dtype=torch.float64)


@pytest.mark.parametrize("scoring", [SIGNED, ABSOLUTE], ids=["signed", "absolute"])
@pytest.mark.parametrize("counts", [None, COUNTS], ids=["catalog", "drawn"])
@pytest.mark.parametrize("held", [1, 2 * 37, 10**6])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
def test_it_is_the_softmax_of_all_scores(
    scoring: ScoringConfig, counts: Tensor | None, held: int, scale: float
) -> None:
    given = vectors(scale)
    users, items, positive = given
    ours = blocked_softmax(users, positive, WEIGHTS, HITS, items, counts, scoring, held=held)
    theirs = plain(*given, counts, scoring)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    slopes = torch.autograd.grad(2.0 * ours, given), torch.autograd.grad(2.0 * theirs, given)
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


CPU = torch.device("cpu")


def test_examples_of_one_window_share_the_sum_over_the_catalog(shop: PreparedData) -> None:
    """Loss and gradients are those of cross entropy over all scores, example by example, with weights."""
    user = {"ordered": False, "leave_out": False, "last_item": False, "hidden": [], "dropout": 0.0}
    settings = {"tower": {"dimension": 8, "user": user}, "objective": {"loss": "full_softmax"}}
    experiment = ExperimentConfig.model_validate(settings)
    model = build_model(experiment, shop)
    batch = next(TrainingBatches.of(experiment, shop, 200).epoch(stream(0, "order", 0)))
    batch = replace(batch, weights=torch.rand(len(batch.targets), generator=torch.manual_seed(0)))
    assert len(batch.histories.distinct()[0]) < len(batch.targets) / 3
    objective = build_objective(experiment.objective, experiment.tower, shop, 0, CPU)
    out = model_loss(objective, model, batch, stream(0, "draw", 0))

    items = model.catalog_vectors()
    users = model.user_vectors(batch.histories, items[batch.histories.rows])
    scores = users @ items.T / experiment.tower.scoring.temperature
    losses = torch.nn.functional.cross_entropy(scores, batch.targets, reduction="none")
    expected = (losses * batch.weights).sum() / batch.weights.sum()
    torch.testing.assert_close(out.loss, expected, rtol=1e-5, atol=1e-6)
    slopes = [torch.autograd.grad(loss, list(model.parameters())) for loss in (out.loss, expected)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


ROWS, COUNT = 300, 701


def given_rows(scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [300, 701] as bfloat16, what is subtracted from them, and the scores of the positives."""
    random = torch.Generator().manual_seed(0)
    scores = (torch.randn(ROWS, COUNT, generator=random) * scale).bfloat16()
    return scores, torch.randn(COUNT, generator=random), torch.randn(ROWS, generator=random) * scale


def expected_masses(scores: Tensor, counts: Tensor | None, own: Tensor) -> tuple[np.ndarray, ...]:
    """Tops, masses and sums in double precision."""
    held = scores.double().numpy() - (0.0 if counts is None else counts.double().numpy())
    tops = np.maximum(held.max(axis=1), own.double().numpy())
    masses = np.exp(held - tops[:, None])
    return tops, masses, masses.sum(axis=1)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_log_counts_keep_their_bits_beside_scores_of_eight(scale: float) -> None:
    """Without the compiled loop, as on a GPU: log Z of bfloat16 scores has the rounding of float32 alone.

    Log counts near -10 in bfloat16 are off by .03 at most, and log Z with them.
    """
    scores, counts, own = given_rows(scale)
    counts = counts - 10.0
    tops, masses, sums = expected_masses(scores, counts, own)
    assert np.abs(counts.bfloat16().double().numpy() - counts.double().numpy()).max() > 0.01
    found, total = tensor_masses_(scores, counts, own)
    assert scores.dtype == torch.bfloat16
    assert found.dtype == total.dtype == torch.float32
    np.testing.assert_allclose(total.log() + found, np.log(sums) + tops, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(scores.float().numpy(), masses, rtol=0.005, atol=1e-37)
