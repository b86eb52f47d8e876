"""The contract of a loss: values, gradients and masks of its function, and steps of its objective."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores, paired_scores, scored_items, scored_users
from turret.training.checks.holds import about, close, holds
from turret.training.losses.registry import LOSSES
from turret.training.objectives.catalog import CatalogLossSettings
from turret.training.objectives.contract import (
    CatalogLoss,
    Examples,
    Loss,
    LossSettings,
    Objective,
    ObjectiveContext,
    PairLoss,
    StepLoss,
    weighted_mean,
)
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.randomness import stream
from turret.training.registry import maker
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, without_accidental_hits
from turret.training.samplers.core.settings import Counts, SamplerContext
from turret.training.samplers.fixed.popularity import UniformConfig

# Strongly unequal: with a constant proposal a missing correction does not show.
_Q = torch.tensor([0.60, 0.20, 0.10, 0.05, 0.03, 0.02], dtype=torch.float64)
_POSITIVES = torch.tensor([1, 3, 0, 5, 4])
_CPU = torch.device("cpu")


def check_loss(loss: str | LossSettings, *, detached: bool = False) -> None:
    """Check a loss against the contract of all losses.

    Args:
        loss: settings, such as `losses.gbce(t=0.5)`; or a kind, which stands for its defaults.
        detached: whether a part of the loss is held constant in the gradient by design, so that finite
            differences of its values are not its gradient.

    Raises:
        AssertionError: it breaks the contract; the sentence says in what.
    """
    settings = maker(LOSSES, loss, "loss")() if isinstance(loss, str) else loss
    with about(f"the loss {settings.kind!r}"):
        if isinstance(settings, DrawLossSettings):
            _check_over_a_draw(settings, detached)
        if isinstance(settings, CatalogLossSettings):
            _check_over_the_catalog(settings, detached)
        if (pair_loss := settings.pair_loss()) is not None:
            _check_pairs(pair_loss)
        _check_steps(settings)


@dataclass(frozen=True)
class _Batch:
    """Scores [B] and [B, K], and the draw behind them."""

    positive: Tensor
    drawn: Tensor
    draw: Draw

    def rows(self, rows: slice) -> "_Batch":
        """Some of the examples."""
        draw = replace(
            self.draw, positive_log_count=self.draw.positive_log_count[rows], valid=self.draw.valid[rows]
        )
        return _Batch(self.positive[rows], self.drawn[rows], draw)

    def first(self, size: int) -> "_Batch":
        """The first candidates of each example."""
        draw = replace(
            self.draw,
            ids=self.draw.ids[:size],
            log_count=self.draw.log_count[:size],
            valid=self.draw.valid[:, :size],
        )
        return replace(self, drawn=self.drawn[:, :size], draw=draw)

    def with_draw(self, **parts: Any) -> "_Batch":
        """The same scores over a draw with other parts."""
        return replace(self, draw=replace(self.draw, **parts))


def _batch(keeps_hits: bool) -> _Batch:
    """Five examples of seven shared candidates, with duplicates, hits, and others that are masked."""
    random = torch.Generator().manual_seed(11)
    scores = 1.5 * torch.randn(5, 6, dtype=torch.float64, generator=random)
    ids, log_count = torch.tensor([0, 0, 1, 3, 0, 5, 2]), (7 * _Q).log()
    valid = torch.ones(5, 7, dtype=torch.bool) if keeps_hits else without_accidental_hits(ids, _POSITIVES)
    valid[0, 3] = valid[2, 6] = valid[4, 2:5] = False
    draw = Draw(ids, log_count[ids], log_count[_POSITIVES], valid)
    return _Batch(scores.gather(1, _POSITIVES[:, None])[:, 0], scores[:, ids], draw)


Evaluated = tuple[Tensor, Tensor, Tensor]


def _evaluated(loss: Loss, batch: _Batch) -> Evaluated:
    """The losses, and the gradients of their sum by the scores of positives and candidates."""
    positive = batch.positive.clone().requires_grad_()
    drawn = batch.drawn.clone().requires_grad_()
    losses = _unreduced(loss(positive, drawn, batch.draw), positive)
    by_positive, by_drawn = torch.autograd.grad(
        losses.sum(), [positive, drawn], allow_unused=True, materialize_grads=True
    )
    return losses.detach(), by_positive, by_drawn


def _unreduced(losses: object, scores: Tensor) -> Tensor:
    """The losses, one a score and of its type."""
    fits = isinstance(losses, Tensor) and losses.shape == scores.shape and losses.dtype == scores.dtype
    holds(fits, f"it returns {losses}, not one number of {scores.dtype} for each of {len(scores)} examples")
    assert isinstance(losses, Tensor)
    return losses


def _check_over_a_draw(settings: DrawLossSettings, detached: bool) -> None:
    loss, batch = settings.build(40), _batch(settings.keeps_hits)
    plain = _evaluated(loss, batch)
    _check_finite(plain, "a plain batch")
    holds((plain[1] <= 0.0).all(), "a higher score of the positive raises the loss")
    _check_same(_evaluated(loss, _batch(settings.keeps_hits)), plain, "two calls with equal arguments differ")
    _check_arguments(lambda: loss(batch.positive, batch.drawn, batch.draw), batch)
    _check_masks(loss, batch)
    _check_counts(settings, loss, batch)
    for rows in range(5):
        alone = _evaluated(loss, batch.rows(slice(rows, rows + 1)))
        together = tuple(part[rows : rows + 1] for part in plain)
        _check_same(alone, together, "an example alone differs from the same one in a batch")
    for size in (0, 1):
        _check_finite(_evaluated(loss, batch.first(size)), f"a draw of {size}")
    _check_finite(_evaluated(settings.build(1), batch), "a catalog of one item")
    _check_extremes(loss)
    if not detached:
        _check_differences(lambda p, d: loss(p, d, batch.draw), batch.positive, batch.drawn)


def _check_masks(loss: Loss, batch: _Batch) -> None:
    """Scores of masked candidates leave no trace, whatever they are, and all may be masked."""
    for valid in (batch.draw.valid, batch.draw.valid & (torch.arange(5) % 2 == 0)[:, None]):
        hidden = batch.with_draw(valid=valid)
        expected = _evaluated(loss, replace(hidden, drawn=batch.drawn.masked_fill(~valid, 0.0)))
        _check_finite(expected, "examples without a candidate")
        holds(not expected[2][~valid].any(), "masked candidates get a gradient")
        for score in (math.nan, math.inf, -math.inf, 1e30):
            found = _evaluated(loss, replace(hidden, drawn=batch.drawn.masked_fill(~valid, score)))
            _check_same(found, expected, f"a masked candidate with a score of {score} leaves a trace")


def _check_counts(settings: DrawLossSettings, loss: Loss, batch: _Batch) -> None:
    """Counts of each example's own are read as shared ones are, and those of positives only if asked for."""
    plain = _evaluated(loss, batch)
    own = batch.with_draw(
        ids=batch.draw.ids.expand(5, -1), log_count=batch.draw.log_count.expand(5, -1).clone()
    )
    _check_same(_evaluated(loss, own), plain, "log counts [B, K] are read otherwise than [K]")
    if not settings.needs_probabilities:
        none = batch.with_draw(positive_log_count=torch.full((5,), -math.inf, dtype=torch.float64))
        sentence = "it reads the counts of positives; say needs_probabilities = True"
        _check_same(_evaluated(loss, none), plain, sentence)


def _check_extremes(loss: Loss) -> None:
    """Scores of +-1e4 in float32, in every arrangement of a positive and three candidates."""
    extremes = torch.tensor([-1e4, 0.0, 1e4])
    scores = torch.cartesian_prod(extremes, extremes, extremes, extremes)
    counts = (3 * _Q).log().float()
    valid = torch.ones(len(scores), 3, dtype=torch.bool)
    draw = Draw(torch.arange(3), counts[:3], counts[3].expand(len(scores)), valid)
    found = _evaluated(loss, _Batch(scores[:, 0], scores[:, 1:], draw))
    _check_finite(found, "scores of 10,000")
    wide = _evaluated(loss, _Batch(scores[:, 0].double(), scores[:, 1:].double(), draw))
    for single, double in zip(found, wide, strict=True):
        close(single, double, "float32 is off at scores of 10,000", rtol=1e-3, atol=1e-3)


def _check_finite(found: Evaluated, what: str) -> None:
    holds(found[0].isfinite().all(), f"{what} has a loss that is not finite")
    gradients_finite = all(bool(gradient.isfinite().all()) for gradient in found[1:])
    holds(gradients_finite, f"{what} has a gradient that is not finite")


def _check_same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], sentence: str) -> None:
    for one, other in zip(found, expected, strict=True):
        close(one, other, sentence, rtol=1e-9, atol=1e-12)


def _check_arguments(call: Callable[[], object], batch: _Batch) -> None:
    given = (batch.positive, batch.drawn, batch.draw.log_count, batch.draw.valid)
    before = [tensor.clone() for tensor in given]
    call()
    same = all(torch.equal(one, other) for one, other in zip(given, before, strict=True))
    holds(same, "it changes its arguments")


def _check_differences(loss: Callable[..., Tensor], *scores: Tensor) -> None:
    given = tuple(tensor.clone().requires_grad_() for tensor in scores)
    agrees = torch.autograd.gradcheck(loss, given, raise_exception=False)
    holds(agrees, "its gradient is not that of finite differences; say detached=True if it is meant to")


def _check_over_the_catalog(settings: CatalogLossSettings, detached: bool) -> None:
    loss = settings.build()
    scores = 1.5 * torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(11))
    plain = _of_catalog(loss, scores, _POSITIVES)
    holds(all(bool(part.isfinite().all()) for part in plain), "a plain batch has no finite loss and gradient")
    kept = scores.clone()
    loss(kept, _POSITIVES)
    holds(torch.equal(kept, scores), "it changes its arguments")
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    moved = _of_catalog(loss, scores[:, order], order.argsort()[_POSITIVES])
    _check_same(moved, (plain[0], plain[1][:, order]), "the order of the items matters")
    masked = scores.clone()
    masked[:, 2] = -math.inf
    left_out = _of_catalog(loss, scores[:, [0, 1, 3, 4, 5]], torch.tensor([1, 2, 0, 4, 3]))
    found = _of_catalog(loss, masked, _POSITIVES)
    sentence = "a score of minus infinity is not as if the item were not there"
    _check_same((found[0], found[1][:, [0, 1, 3, 4, 5]]), left_out, sentence)
    holds(not found[1][:, 2].any(), "an item with a score of minus infinity gets a gradient")
    for row in range(5):
        alone = _of_catalog(loss, scores[row : row + 1], _POSITIVES[row : row + 1])
        together = (plain[0][row : row + 1], plain[1][row : row + 1])
        _check_same(alone, together, "an example alone differs from the same one in a batch")
    if settings.needs_absolute:
        _check_same((_of_catalog(loss, -scores, _POSITIVES)[0],), (plain[0],), "the sign of scores matters")
    else:
        by_positive = plain[1].gather(1, _POSITIVES[:, None])
        holds((by_positive <= 0.0).all(), "a higher score of the positive raises the loss")
    extremes = torch.tensor([-1e4, 0.0, 1e4])
    far = torch.cartesian_prod(extremes, extremes, extremes)
    first = torch.zeros(len(far), dtype=torch.int64)
    for single, double in zip(
        _of_catalog(loss, far, first), _of_catalog(loss, far.double(), first), strict=True
    ):
        holds(single.isfinite().all(), "scores of 10,000 have a loss or a gradient that is not finite")
        close(single, double, "float32 is off at scores of 10,000", rtol=1e-3, atol=1e-3)
    if not detached:
        _check_differences(lambda given: loss(given, _POSITIVES), scores)


def _of_catalog(loss: CatalogLoss, scores: Tensor, positives: Tensor) -> tuple[Tensor, Tensor]:
    """The losses, and the gradient of their sum by the scores."""
    given = scores.clone().requires_grad_()
    losses = _unreduced(loss(given, positives), given[:, 0])
    return losses.detach(), torch.autograd.grad(losses.sum(), given)[0]


def _check_pairs(loss: PairLoss) -> None:
    """The loss of a pair that belongs together falls with its score, and that of another one rises."""
    scores = torch.tensor([-1e4, -2.0, 0.3, 2.0, 1e4]).repeat(2).requires_grad_()
    together = torch.arange(10) < 5
    losses = _unreduced(loss(scores, together), scores)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    holds(losses.isfinite().all(), "the loss of a pair is not finite")
    holds((gradient[together] <= 0.0).all(), "the loss of a pair of label 1 rises with its score")
    holds((gradient[~together] >= 0.0).all(), "the loss of a pair of label 0 falls with its score")


_USERS, _ITEMS, _WIDTH = 24, 12, 8


class _Towers(nn.Module):
    """Tables of users and items, and the score that the loss needs."""

    def __init__(self, settings: LossSettings) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(3)
        self.users = nn.Parameter(0.5 * torch.randn(_USERS, _WIDTH, generator=random))
        self.items = nn.Parameter(0.5 * torch.randn(_ITEMS, _WIDTH, generator=random))
        self.scoring = ScoringConfig(
            kind="cosine" if settings.needs_cosine else "dot",
            temperature=1.0 if settings.needs_cosine else 0.5,
            absolute=settings.needs_absolute,
        )

    def item_vectors(self, rows: Tensor) -> Tensor:
        """Scored vectors of item rows."""
        return scored_items(self.items[rows], self.scoring)

    def current_vectors(self, rows: Tensor) -> Tensor:
        """The same without a gradient."""
        return self.item_vectors(rows).detach()

    def catalog_vectors(self) -> Tensor:
        """Those of all items."""
        return self.item_vectors(torch.arange(_ITEMS))

    def examples(self, weights: Tensor) -> Examples:
        """One example a user; its positive is the item of its own number, the catalog over and over."""
        rows = torch.arange(_USERS)
        positives = rows % _ITEMS
        users, vectors = scored_users(self.users, self.scoring), self.item_vectors(positives)
        return Examples(users, positives, vectors, self, self.scoring, weights, positives, contexts=rows)


@dataclass(frozen=True)
class _Catalog:
    """Items of unequal popularity."""

    item_count: int = _ITEMS

    def item_counts(self) -> Counts:
        return np.arange(_ITEMS, 0, -1)

    target_counts = positive_counts = item_counts

    def bigram_counts(self) -> tuple[Counts, Counts]:
        raise NotImplementedError


def _objective(settings: LossSettings, towers: _Towers) -> Objective:
    drawn = UniformConfig(negatives=16).build(SamplerContext(_Catalog(), towers.scoring, 0, _CPU))
    sampler = drawn if settings.draws else None
    return settings.objective(ObjectiveContext(_Catalog(), sampler, False, _WIDTH, 0, _USERS))


def _check_steps(settings: LossSettings) -> None:
    """Steps of the objective: their value, their weights, their gradients, and that they train."""
    towers, weights = _Towers(settings), torch.arange(1.0, _USERS + 1)
    objective = _objective(settings, towers)

    def step(objective: Objective, weights: Tensor, number: int = 0) -> StepLoss:
        out: StepLoss = objective(towers.examples(weights), stream(0, "draw", number))
        return out

    first = step(objective, weights).loss
    holds(first.dim() == 0 and bool(first.isfinite()), f"a step has the loss {first}, not a finite number")
    _check_of_function(settings, objective.sampler, towers, weights, first)
    # Paths down a tree have vectors of their own, and items none.
    others = [towers.items, *objective.parameters()]
    by_users, *gradients = torch.autograd.grad(
        first, [towers.users, *others], allow_unused=True, materialize_grads=True
    )
    finite = all(bool(gradient.isfinite().all()) for gradient in (by_users, *gradients))
    reached = bool(by_users.any()) and any(bool(gradient.any()) for gradient in gradients)
    holds(finite and reached, "a step gives user vectors or item vectors no finite gradient")
    close(step(objective, 7.0 * weights).loss, first, "weights are not relative: 7 times as large")
    nothing = step(objective, torch.zeros(_USERS)).loss
    holds(nothing == 0.0, f"a batch without any weight has the loss {float(nothing.detach())}, not zero")
    other = _objective(settings, towers)
    other.load_state_dict(objective.state_dict())
    close(step(other, weights).loss, first, "the objective of a restored state has another loss")
    _check_training(objective, towers, lambda number: step(objective, torch.ones(_USERS), number).loss)


def _check_of_function(
    settings: LossSettings, sampler: Sampler | None, towers: _Towers, weights: Tensor, found: Tensor
) -> None:
    """The loss of a step is the weighted mean of what `build` returns, also if computed in blocks."""
    examples = towers.examples(weights)
    if isinstance(settings, CatalogLossSettings):
        scores = cross_scores(examples.users, towers.catalog_vectors(), towers.scoring)
        losses = settings.build()(scores, examples.positives)
    elif isinstance(settings, DrawLossSettings) and sampler is not None:
        vectors = examples.positive_vectors.detach()
        context = DrawContext(stream(0, "draw", 0), examples.positives, vectors, towers.current_vectors)
        draw = sampler.draw(examples.users.detach(), examples.positives, context)
        draw = draw.keeping_hits(examples.positives) if settings.keeps_hits else draw
        positive = paired_scores(examples.users, examples.positive_vectors, towers.scoring)
        drawn = cross_scores(examples.users, towers.item_vectors(draw.ids), towers.scoring)
        losses = settings.build(_ITEMS)(positive, drawn, draw)
    else:
        return
    sentence = "a step is not the weighted mean of what build returns"
    if settings.blocked:
        sentence += "; say blocked = False unless its terms form a softmax"
    close(found, weighted_mean(losses, weights), sentence, rtol=1e-4, atol=1e-5)


def _check_training(objective: Objective, towers: _Towers, loss: Callable[[int], Tensor]) -> None:
    """After 60 steps the positives stand further in front, by the scores that rank items."""

    @torch.no_grad()
    def mean_rank() -> float:
        examples = towers.examples(torch.ones(_USERS))
        scores = objective.scores(examples.users, towers.catalog_vectors(), towers.scoring)
        own = scores.gather(1, examples.positives[:, None])
        return float((scores > own).sum(dim=1).double().mean())

    before = mean_rank()
    optimiser = torch.optim.Adam([*towers.parameters(), *objective.parameters()], lr=0.05)
    for number in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(loss(number))
        optimiser.step()
    after = mean_rank()
    holds(after < 0.5 * before, f"training leaves {after:.1f} items before the positive; first {before:.1f}")
