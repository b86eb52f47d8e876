"""Losses over the whole catalog, and the scalable cross entropy."""

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from turret.tower.config import ScoringConfig
from turret.tower.kernels.elementwise import gather_rows
from turret.tower.towers.model import cross_scores, paired_scores, signed_or_absolute
from turret.training.losses.loss import loss
from turret.training.losses.sampled import sampled_softmax
from turret.training.objectives.blocked import blocked_softmax
from turret.training.objectives.contract import (
    CatalogLoss,
    Examples,
    LossSettings,
    Objective,
    StepLoss,
    weighted_mean,
)
from turret.training.objectives.taught import expected_scores
from turret.training.samplers.core.contract import Draw, Sampler
from turret.training.samplers.core.settings import BuildContext


class CatalogLossSettings(LossSettings, ABC):
    """The registry entry of a loss over the whole catalog; a subclass builds the function of scores."""

    draws: ClassVar[bool] = False

    @abstractmethod
    def build(self) -> CatalogLoss:
        """Build the loss."""

    def objective(self, context: BuildContext, sampler: Sampler | None) -> Objective:
        return CatalogObjective(self, context.mask_seen)


class SmoothedSettings(CatalogLossSettings, ABC):
    """A softmax over the catalog whose label may be smoothed (Szegedy et al. 2016, section 7).

    The positive keeps `1 - smoothing` of the label, and all candidates share the rest.
    """

    smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0


class CatalogObjective(Objective):
    """Every item of the catalog is a candidate; nothing is drawn.

    A blocked loss never holds all scores of a batch.
    """

    scores_catalog = True
    merges = True

    def __init__(self, loss: CatalogLossSettings, mask_seen: bool = False) -> None:
        super().__init__()
        self.loss = loss.build()
        self.blocked = loss.blocked
        self.smoothing = loss.smoothing if isinstance(loss, SmoothedSettings) else 0.0
        self.mask_seen = mask_seen
        self.shares_users = loss.blocked and not mask_seen

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        items = examples.items.catalog_vectors()
        if self.blocked:
            # Sums over the catalog need float32, also where autocast computes the towers in bfloat16.
            wide = torch.promote_types(items.dtype, torch.float32)
            users, positives = examples.users.to(wide), examples.positive_vectors.to(wide)
            with torch.autocast(items.device.type, enabled=False):
                return self._blocked(
                    replace(examples, users=users, positive_vectors=positives), items.to(wide)
                )
        scores = cross_scores(examples.users, items, examples.scoring)
        masked = examples.positives.new_zeros(())
        if examples.seen is not None:
            seen = examples.seen.among(torch.arange(len(items), device=items.device))
            seen[torch.arange(len(seen)), examples.positives] = False
            scores = scores.masked_fill(seen, float("-inf"))
            masked = seen.sum()
        losses = self.loss(scores, examples.positives)
        weights = examples.weights
        return StepLoss(weighted_mean(losses, weights), masked, weights.sum())

    def _blocked(self, examples: Examples, items: Tensor) -> StepLoss:
        """The full softmax; its sum over the catalog is computed once for examples of the same user vector.

        The first example of a group is computed as usual, with the weight of the whole group; the others
        differ from it by the scores of their positives alone. Seen items are masked with the positive.
        """
        users, size = examples.users, len(examples.positives)
        order = torch.arange(size, device=users.device)
        groups = order if examples.groups is None else examples.groups
        first = order.new_full((len(users),), size).scatter_reduce(0, groups, order, "amin")
        positive = paired_scores(gather_rows(users, groups), examples.positive_vectors, examples.scoring)
        shares = examples.shares
        together = shares.new_zeros(len(users)).index_add(0, groups, shares)
        positive_pairs = (torch.arange(len(users), device=users.device), examples.positives[first])
        hits = positive_pairs if examples.seen is None else examples.seen.pairs()
        loss = blocked_softmax(
            users, positive[first], together, hits, items, None, examples.scoring, self.products
        )
        others = together @ positive[first] - shares @ positive
        if self.smoothing:
            means = mean_scores(users, positive[first], hits, items, examples.scoring)
            others = others + self.smoothing * (shares @ positive - together @ means)
        if examples.lesson is not None:
            tempered = users / examples.scoring.temperature
            expected = expected_scores(tempered, items, together, examples.lesson, self.products)
            others = torch.lerp(others, together @ positive[first] - expected, examples.lesson.weight)
        masked = examples.positives.new_tensor(len(hits[0]) - len(users))
        return StepLoss(loss + others, masked, examples.weights.sum())


def mean_scores(
    users: Tensor, positive: Tensor, hits: tuple[Tensor, Tensor], items: Tensor, scoring: ScoringConfig
) -> Tensor:
    """The mean score of each user over its positive and the items that are not masked: [U].

    Args:
        users: [U, D].
        positive: [U], the signed scores of the positives.
        hits: the users and the items of masked pairs, int64 [L] each, the positives among them.
        items: [N, D], those of the whole catalog; scores are linear in their sum.
        scoring: the scoring, without `absolute`.
    """
    total = cross_scores(users, items.sum(dim=0, keepdim=True), scoring)[:, 0]
    of_users, rows = hits
    scores = paired_scores(gather_rows(users, of_users), gather_rows(items, rows), scoring)
    masked = torch.zeros_like(total).index_add(0, of_users, scores)
    counts = torch.bincount(of_users, minlength=len(users))
    return (total - masked + positive) / (len(items) - counts + 1)


@loss("full_softmax", SmoothedSettings, blocked=True)
def full_softmax(scores: Tensor, positives: Tensor) -> Tensor:
    """log sum_i exp s_i - s_y over the whole catalog.

    Args:
        scores: [B, N] tempered scores.
        positives: int64 [B], the rows of the positives.

    Returns:
        [B], at least zero.

    Example, with a catalog of three items:

        >>> full_softmax(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor([0.4076])
    """
    return cross_entropy(scores, positives, reduction="none")


@loss("spherical_softmax", CatalogLossSettings, needs_absolute=True)
def spherical_softmax(
    scores: Tensor, positives: Tensor, *, epsilon: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
) -> Tensor:
    """-log p_y with p_i = (s_i^2 + epsilon) / sum_k (s_k^2 + epsilon), over the whole catalog.

    Args:
        scores: [B, N] tempered scores; minus infinity for a masked item.
        positives: int64 [B], the rows of the positives.
        epsilon: above zero; the weight of an item of score zero.

    Returns:
        [B], at least zero.

    Source: Vincent et al. 2015; de Brebisson & Vincent 2016.

    Example, with a catalog of three items:

        >>> spherical_softmax(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor([0.4700])
    """
    hidden = scores == -math.inf
    # The first fill keeps the square and its gradient finite; the second removes the weight.
    weights = (scores.masked_fill(hidden, 0.0).square() + epsilon).masked_fill(hidden, 0.0)
    return weights.sum(dim=1).log() - weights.gather(1, positives.unsqueeze(1))[:, 0].log()


class ScalableCrossEntropyConfig(LossSettings):
    """Cross entropy inside buckets of hard examples (Mezentsev et al. 2024).

    Each of `buckets` random directions takes its nearest `bucket_examples` examples and `bucket_items` items.
    """

    draws: ClassVar[bool] = False

    kind: Literal["scalable_cross_entropy"] = "scalable_cross_entropy"
    buckets: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 64
    bucket_examples: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 128
    bucket_items: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 256

    def objective(self, context: BuildContext, sampler: Sampler | None) -> Objective:
        return BucketedObjective(self, context.item_count, context.mask_seen)


def scalable_cross_entropy(positive: Tensor, bucketed: Tensor, draw: Draw, examples: Tensor) -> Tensor:
    """Each example's greatest cross entropy, over its buckets, against its positive and the bucket's items.

    Within a bucket it is `sampled_softmax` with every item expected once: a lower bound of the full softmax,
    and equal to it with one bucket of everything.

    Args:
        positive: [B] tempered scores of the positives.
        bucketed: [L, K] tempered scores of the items of a bucket, one line for each example in it.
        draw: the draw of L lines: log counts are zero, an item is valid unless it is the example's positive.
        examples: int64 [L], which example a line is about.

    Returns:
        [B], at least zero; zero, without a gradient, for examples in no bucket.

    Source: Mezentsev et al. 2024, section 3.
    """
    losses = sampled_softmax(positive[examples], bucketed, draw)
    return losses.new_zeros(len(positive)).scatter_reduce(0, examples, losses, "amax", include_self=False)


class BucketedObjective(Objective):
    """Scalable cross entropy (Mezentsev et al. 2024): hard candidates by random directions, nothing drawn.

    A direction is a Gaussian mixture of the batch's user vectors (the paper's "Mix"), so that buckets form
    where users are. A bucket larger than the batch or the catalog takes all of it. Examples in no bucket
    don't count: the mean is over the examples that are in one.
    """

    def __init__(
        self, settings: ScalableCrossEntropyConfig, item_count: int, mask_seen: bool = False
    ) -> None:
        super().__init__()
        self.settings = settings
        self.item_count = item_count
        self.mask_seen = mask_seen

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        """The loss of a step, over buckets along directions drawn with `random`."""
        users, scoring = examples.users, examples.scoring
        positive = paired_scores(users, examples.positive_vectors, scoring)
        members, ids = self._buckets(examples, random)
        items = examples.items.item_vectors(ids)
        scores = torch.stack(
            [
                cross_scores(gather_rows(users, bucket), vectors, scoring)
                for bucket, vectors in zip(members, items, strict=True)
            ]
        )
        lines = members.flatten()
        draw = self._draw(examples, ids.repeat_interleave(members.shape[1], dim=0), lines)
        losses = scalable_cross_entropy(positive, scores.flatten(0, 1), draw, lines)
        placed = torch.zeros_like(examples.weights).index_fill(0, lines, 1.0)
        return StepLoss(weighted_mean(losses, examples.weights * placed), draw.masked_count)

    @torch.no_grad()
    def _buckets(self, examples: Examples, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The examples [G, M] and the item rows [G, K] of each bucket."""
        users, scoring = examples.users.detach(), examples.scoring
        mixture = random.standard_normal((self.settings.buckets, len(users)), dtype=np.float32)
        directions = torch.from_numpy(mixture).to(users) @ users
        catalog = examples.items.current_vectors(torch.arange(self.item_count, device=users.device))
        return (
            _nearest(signed_or_absolute(directions @ users.T, scoring), self.settings.bucket_examples),
            _nearest(signed_or_absolute(directions @ catalog.T, scoring), self.settings.bucket_items),
        )

    def _draw(self, examples: Examples, ids: Tensor, lines: Tensor) -> Draw:
        """A bucket's items `ids` [L, K] for the example of each of `lines` [L], each expected once."""
        valid = ids != examples.positives[lines].unsqueeze(1)
        if examples.seen is not None:
            valid &= ~examples.seen.among(ids, lines)
        zeros = examples.weights.new_zeros(())
        return Draw(ids, zeros.expand(ids.shape), zeros.expand(len(ids)), valid)


def _nearest(projections: Tensor, size: int) -> Tensor:
    """The columns of the `size` greatest of each line: [G, size], or all of them where there are fewer."""
    return projections.topk(min(size, projections.shape[1]), dim=1).indices
