"""Objectives that score the whole catalogue in every step."""

import numpy as np
import torch

from tower.gather import gather_rows
from tower.model import TwoTowers
from tower.scoring import cross_scores
from training.batches import Batch
from training.known import known_candidates
from training.losses.blocked_softmax import HELD, blocked_softmax
from training.losses.contract import CatalogueLoss
from training.losses.full_softmax import full_softmax
from training.objectives.contract import Objective, StepLoss, weighted_mean


class CatalogueObjective(Objective):
    """Every item of the catalogue is a candidate; nothing is drawn.

    The full softmax of more scores than are worth holding is computed a block of items at a time.
    """

    def __init__(self, loss: CatalogueLoss, mask_known: bool) -> None:
        super().__init__()
        self.loss = loss
        self.mask_known = mask_known

    def forward(self, model: TwoTowers, batch: Batch, random: np.random.Generator) -> StepLoss:
        """The batch's loss; `random` is not needed."""
        items = model.catalogue_vectors()
        users = model.user_vectors(batch.histories, gather_rows(items, batch.histories.rows))
        if self.loss is full_softmax and not self.mask_known and len(users) * len(items) > HELD:
            losses = blocked_softmax(users, items, batch.targets, model.config.scoring)
            return StepLoss(weighted_mean(losses, batch.weights), batch.targets.new_zeros(()))
        scores = cross_scores(users, items, model.config.scoring)
        masked = batch.targets.new_zeros(())
        if self.mask_known:
            known = known_candidates(batch, torch.arange(len(items), device=items.device))
            known[torch.arange(len(known)), batch.targets] = False
            scores = scores.masked_fill(known, float("-inf"))
            masked = known.sum()
        return StepLoss(weighted_mean(self.loss(scores, batch.targets), batch.weights), masked)
