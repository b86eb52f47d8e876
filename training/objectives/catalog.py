"""Objectives that score the whole catalog in every step."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from turret.tower.layers.packed import gather_rows
from turret.tower.towers.scoring import cross_scores, paired_scores
from turret.training.objectives.blocked import blocked_softmax
from turret.training.objectives.contract import (
    CatalogLoss,
    Examples,
    LossSettings,
    Objective,
    StepLoss,
    total_weight,
    weighted_mean,
)
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.settings import BuildContext


class CatalogLossSettings(LossSettings, ABC):
    """The registry entry of a loss over the whole catalog; a subclass builds the function of scores."""

    draws: ClassVar[bool] = False

    @abstractmethod
    def build(self) -> CatalogLoss:
        """Build the loss."""

    def objective(self, context: BuildContext, sampler: Sampler | None) -> Objective:
        return CatalogObjective(self, context.mask_seen)


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
        self.mask_seen = mask_seen
        self.shares_users = loss.blocked and not mask_seen

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        items = examples.items.catalog_vectors()
        if self.blocked:
            return self._blocked(examples, items)
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
        shares = examples.weights / total_weight(examples.weights)
        together = shares.new_zeros(len(users)).index_add(0, groups, shares)
        own = (torch.arange(len(users), device=users.device), examples.positives[first])
        hits = own if examples.seen is None else examples.seen.pairs()
        loss = blocked_softmax(
            users, positive[first], together, hits, items, None, examples.scoring, self.products
        )
        others = together @ positive[first] - shares @ positive
        masked = examples.positives.new_tensor(len(hits[0]) - len(users))
        return StepLoss(loss + others, masked, examples.weights.sum())
