"""The contract of every loss: values, gradients and masks of its function, and steps of its objective."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.contracts.losses import POSITIVES, Q, Scored, scored
from tests.contracts.samplers import Catalog
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import cross_scores, paired_scores, scored_items, scored_users
from turret.training import losses
from turret.training.losses.catalog import CatalogLossSettings
from turret.training.losses.registry import LOSSES
from turret.training.objectives.contract import (
    CatalogLoss,
    Examples,
    Loss,
    LossSettings,
    Objective,
    StepLoss,
    weighted_mean,
)
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.randomness import stream
from turret.training.samplers.core.contract import Draw, DrawContext
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.fixed.popularity import UniformConfig

EVERY_LOSS: list[LossSettings] = [
    *(settings(kind=kind) for kind, settings in LOSSES.items()),
    losses.hierarchical_softmax(clusters=4),
    losses.hierarchical_softmax(tree="huffman"),
    losses.scalable_cross_entropy(buckets=16, bucket_examples=8, bucket_items=6),
    losses.nce(learned_normaliser=True),
    losses.nce(learned_normaliser=True, remove_accidental_hits=True),
    losses.ranking(delta="complementary_sum"),
    losses.gbce(t=1.0),
]
OVER_A_DRAW = [loss for loss in EVERY_LOSS if isinstance(loss, DrawLossSettings)]
OVER_THE_CATALOG = [loss for loss in EVERY_LOSS if isinstance(loss, CatalogLossSettings)]
# A part of it is held constant in the gradient by definition.
DETACHED = {"refined_logq", "top_k_off_policy"}
Evaluated = tuple[Tensor, Tensor, Tensor]


def evaluated(loss: Loss, batch: Scored) -> Evaluated:
    """The losses, and the gradients of their sum by the scores of positives and candidates."""
    positive = batch.positive.clone().requires_grad_()
    drawn = batch.drawn.clone().requires_grad_()
    found = loss(positive, drawn, batch.draw)
    assert found.shape == positive.shape
    assert found.dtype == positive.dtype
    by_positive, by_drawn = torch.autograd.grad(
        found.sum(), [positive, drawn], allow_unused=True, materialize_grads=True
    )
    return found.detach(), by_positive, by_drawn


def assert_finite(found: tuple[Tensor, ...]) -> None:
    assert all(bool(part.isfinite().all()) for part in found)


def assert_same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


over_a_draw = pytest.mark.parametrize("settings", OVER_A_DRAW, ids=str)
over_the_catalog = pytest.mark.parametrize("settings", OVER_THE_CATALOG, ids=str)


@over_a_draw
def test_values_over_a_draw(settings: DrawLossSettings) -> None:
    """Finite, the same each time, of each example alone, and lower where the positive scores higher."""
    loss, batch = settings.build(40), scored(keeps_hits=settings.keeps_hits)
    plain = evaluated(loss, batch)
    assert_finite(plain)
    assert (plain[1] <= 0.0).all()
    given = (batch.positive, batch.drawn, batch.draw.log_count, batch.draw.valid)
    before = [tensor.clone() for tensor in given]
    loss(batch.positive, batch.drawn, batch.draw)
    assert all(torch.equal(one, other) for one, other in zip(given, before, strict=True))
    assert_same(evaluated(loss, batch), plain)
    for row in range(5):
        alone = slice(row, row + 1)
        assert_same(evaluated(loss, batch.rows(alone)), tuple(part[alone] for part in plain))
    for size in (0, 1):
        assert_finite(evaluated(loss, batch.first(size)))
    assert_finite(evaluated(settings.build(1), batch))
    if settings.kind not in DETACHED:
        scores = (batch.positive.clone().requires_grad_(), batch.drawn.clone().requires_grad_())
        assert torch.autograd.gradcheck(lambda p, d: loss(p, d, batch.draw), scores)


@over_a_draw
def test_masked_candidates_leave_no_trace(settings: DrawLossSettings) -> None:
    """Whatever their scores are; and all candidates of an example may be masked."""
    loss, batch = settings.build(40), scored(keeps_hits=settings.keeps_hits)
    for valid in (batch.draw.valid, batch.draw.valid & (torch.arange(5) % 2 == 0)[:, None]):
        hidden = batch.with_draw(valid=valid)
        expected = evaluated(loss, replace(hidden, drawn=batch.drawn.masked_fill(~valid, 0.0)))
        assert_finite(expected)
        assert not expected[2][~valid].any()
        for score in (math.nan, math.inf, -math.inf, 1e30):
            found = evaluated(loss, replace(hidden, drawn=batch.drawn.masked_fill(~valid, score)))
            assert_same(found, expected)


@over_a_draw
def test_counts_are_read_as_the_settings_say(settings: DrawLossSettings) -> None:
    """Counts of each example's own as shared ones; those of positives only with needs_probabilities."""
    loss, batch = settings.build(40), scored(keeps_hits=settings.keeps_hits)
    plain = evaluated(loss, batch)
    own = batch.with_draw(
        ids=batch.draw.ids.expand(5, -1), log_count=batch.draw.log_count.expand(5, -1).clone()
    )
    assert_same(evaluated(loss, own), plain)
    if not settings.needs_probabilities:
        none = batch.with_draw(positive_log_count=torch.full((5,), -math.inf, dtype=torch.float64))
        assert_same(evaluated(loss, none), plain)


def of_catalog(loss: CatalogLoss, scores: Tensor, positives: Tensor) -> tuple[Tensor, Tensor]:
    """The losses, and the gradient of their sum by the scores."""
    given = scores.clone().requires_grad_()
    found = loss(given, positives)
    assert found.shape == positives.shape
    assert found.dtype == scores.dtype
    return found.detach(), torch.autograd.grad(found.sum(), given)[0]


@over_the_catalog
def test_values_over_the_catalog(settings: CatalogLossSettings) -> None:
    """Finite, of each example alone, in any order of the items, and without those of minus infinity."""
    loss = settings.build()
    scores = 1.5 * torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(11))
    plain = of_catalog(loss, scores, POSITIVES)
    assert_finite(plain)
    kept = scores.clone()
    loss(kept, POSITIVES)
    assert torch.equal(kept, scores)
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    moved = of_catalog(loss, scores[:, order], order.argsort()[POSITIVES])
    assert_same(moved, (plain[0], plain[1][:, order]))
    others = [0, 1, 3, 4, 5]
    masked = scores.clone()
    masked[:, 2] = -math.inf
    found = of_catalog(loss, masked, POSITIVES)
    left_out = of_catalog(loss, scores[:, others], torch.tensor([1, 2, 0, 4, 3]))
    assert_same((found[0], found[1][:, others]), left_out)
    assert not found[1][:, 2].any()
    for row in range(5):
        alone = slice(row, row + 1)
        assert_same(of_catalog(loss, scores[alone], POSITIVES[alone]), tuple(part[alone] for part in plain))
    if settings.needs_absolute:
        assert_same((of_catalog(loss, -scores, POSITIVES)[0],), (plain[0],))
    else:
        assert (plain[1].gather(1, POSITIVES[:, None]) <= 0.0).all()
    if settings.kind not in DETACHED:
        assert torch.autograd.gradcheck(lambda given: loss(given, POSITIVES), scores.requires_grad_())


@pytest.mark.parametrize("settings", [*OVER_A_DRAW, *OVER_THE_CATALOG], ids=str)
def test_scores_of_ten_thousand_are_finite_and_right_in_float32(settings: LossSettings) -> None:
    """In every arrangement of a positive and three other items."""
    extremes = torch.tensor([-1e4, 0.0, 1e4])
    scores = torch.cartesian_prod(extremes, extremes, extremes, extremes)
    counts = (3 * Q).log().float()
    valid = torch.ones(len(scores), 3, dtype=torch.bool)
    draw = Draw(torch.arange(3), counts[:3], counts[3].expand(len(scores)), valid)

    def found(given: Tensor) -> tuple[Tensor, ...]:
        if isinstance(settings, DrawLossSettings):
            return evaluated(settings.build(40), Scored(given[:, 0], given[:, 1:], draw))
        assert isinstance(settings, CatalogLossSettings)
        return of_catalog(settings.build(), given, torch.zeros(len(given), dtype=torch.int64))

    for single, double in zip(found(scores), found(scores.double()), strict=True):
        assert single.isfinite().all()
        torch.testing.assert_close(single.double(), double.double(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("settings", [loss for loss in EVERY_LOSS if loss.pair_loss()], ids=str)
def test_the_loss_of_a_pair_falls_with_its_score_if_it_belongs_together(settings: LossSettings) -> None:
    scores = torch.tensor([-1e4, -2.0, 0.3, 2.0, 1e4]).repeat(2).requires_grad_()
    together = torch.arange(10) < 5
    loss = settings.pair_loss()
    assert loss
    found = loss(scores, together)
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert found.shape == scores.shape
    assert_finite((found,))
    assert (gradient[together] <= 0.0).all()
    assert (gradient[~together] >= 0.0).all()


USERS, ITEMS, WIDTH = 24, 12, 8
CATALOG = Catalog(ITEMS, np.arange(ITEMS, 0, -1))


class Towers(nn.Module):
    """Tables of users and items, and the score that the loss needs."""

    def __init__(self, settings: LossSettings) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(3)
        self.users = nn.Parameter(0.5 * torch.randn(USERS, WIDTH, generator=random))
        self.items = nn.Parameter(0.5 * torch.randn(ITEMS, WIDTH, generator=random))
        self.scoring = ScoringConfig(
            kind="cosine" if settings.needs_cosine else "dot",
            temperature=1.0 if settings.needs_cosine else 0.5,
            absolute=settings.needs_absolute,
        )

    def item_vectors(self, rows: Tensor) -> Tensor:
        return scored_items(self.items[rows], self.scoring)

    def current_vectors(self, rows: Tensor) -> Tensor:
        return self.item_vectors(rows).detach()

    def catalog_vectors(self) -> Tensor:
        return self.item_vectors(torch.arange(ITEMS))

    def examples(self, weights: Tensor) -> Examples:
        """One example a user; its positive is the item of its own number, the catalog over and over."""
        rows = torch.arange(USERS)
        positives = rows % ITEMS
        users, vectors = scored_users(self.users, self.scoring), self.item_vectors(positives)
        return Examples(users, positives, vectors, self, self.scoring, weights, positives)


def objective_of(settings: LossSettings, towers: Towers) -> Objective:
    context = BuildContext(CATALOG, towers.scoring, 0, torch.device("cpu"), dimension=WIDTH)
    sampler = UniformConfig(negatives=16).build(context) if settings.draws else None
    return settings.objective(context, sampler)


def step(objective: Objective, towers: Towers, weights: Tensor, number: int = 0) -> Tensor:
    out: StepLoss = objective(towers.examples(weights), stream(0, "draw", number))
    return out.loss


@pytest.mark.parametrize("settings", EVERY_LOSS, ids=str)
def test_steps_of_the_objective(settings: LossSettings) -> None:
    """Their value, their relative weights, their gradients, their state, and that they train."""
    towers, weights = Towers(settings), torch.arange(1.0, USERS + 1)
    objective = objective_of(settings, towers)
    first = step(objective, towers, weights)
    assert first.dim() == 0
    # Paths down a tree have vectors of their own, and items none.
    others = [towers.items, *objective.parameters()]
    by_users, *gradients = torch.autograd.grad(
        first, [towers.users, *others], allow_unused=True, materialize_grads=True
    )
    assert_finite((first, by_users, *gradients))
    assert by_users.any()
    assert any(bool(gradient.any()) for gradient in gradients)
    torch.testing.assert_close(step(objective, towers, 7.0 * weights), first)
    assert step(objective, towers, torch.zeros(USERS)) == 0.0
    restored = objective_of(settings, towers)
    restored.load_state_dict(objective.state_dict())
    torch.testing.assert_close(step(restored, towers, weights), first)

    before = mean_rank(objective, towers)
    optimiser = torch.optim.Adam([*towers.parameters(), *objective.parameters()], lr=0.05)
    for number in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(step(objective, towers, torch.ones(USERS), number))
        optimiser.step()
    assert mean_rank(objective, towers) < 0.5 * before


@torch.no_grad()
def mean_rank(objective: Objective, towers: Towers) -> float:
    """The number of items before the positive, by the scores that rank items."""
    examples = towers.examples(torch.ones(USERS))
    scores = objective.scores(examples.users, towers.catalog_vectors(), towers.scoring)
    own = scores.gather(1, examples.positives[:, None])
    return float((scores > own).sum(dim=1).double().mean())


@pytest.mark.parametrize("settings", [*OVER_A_DRAW, *OVER_THE_CATALOG], ids=str)
def test_a_step_is_the_weighted_mean_of_the_function_also_in_blocks(settings: LossSettings) -> None:
    towers, weights = Towers(settings), torch.arange(1.0, USERS + 1)
    objective, examples = objective_of(settings, towers), towers.examples(weights)
    if isinstance(settings, CatalogLossSettings):
        scores = cross_scores(examples.users, towers.catalog_vectors(), towers.scoring)
        expected = settings.build()(scores, examples.positives)
    elif isinstance(settings, DrawLossSettings) and objective.sampler is not None:
        vectors = examples.positive_vectors.detach()
        context = DrawContext(stream(0, "draw", 0), examples.positives, vectors, towers.current_vectors)
        draw = objective.sampler.draw(examples.users.detach(), examples.positives, context)
        draw = draw.keeping_hits(examples.positives) if settings.keeps_hits else draw
        positive = paired_scores(examples.users, examples.positive_vectors, towers.scoring)
        drawn = cross_scores(examples.users, towers.item_vectors(draw.ids), towers.scoring)
        expected = settings.build(ITEMS)(positive, drawn, draw)
    found = step(objective, towers, weights)
    torch.testing.assert_close(found, weighted_mean(expected, weights), rtol=1e-4, atol=1e-5)
