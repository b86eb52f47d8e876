"""The objective of labelled pairs: each positive and each given negative is judged by its label."""

import numpy as np
import torch

from turret.tower.layers.packed import gather_rows
from turret.tower.towers.scoring import paired_scores
from turret.training.errors import TrainingError
from turret.training.objectives.contract import Examples, Objective, PairLoss, StepLoss, weighted_mean


class PairsObjective(Objective):
    """The weighted mean of a pair loss over B positives with label 1 and their M negatives with label 0.

    A negative is judged by the user vector of the example that it was given with.
    """

    merges = True

    def __init__(self, loss: PairLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        """The loss of a step; nothing is drawn and nothing is masked. Raises TrainingError without labels."""
        if examples.negatives is None or examples.negative_weights is None:
            raise TrainingError(
                "labelled pairs need the negatives of the examples; prepare data with labels."
            )
        present = examples.negatives >= 0
        owners, rows = present.nonzero(as_tuple=True)[0], examples.negatives[present]
        users = torch.cat([examples.users, gather_rows(examples.users, owners)])
        items = torch.cat([examples.positive_vectors, examples.items.item_vectors(rows)])
        labels = torch.arange(len(users), device=users.device) < len(examples.positives)
        losses = self.loss(paired_scores(users, items, examples.scoring), labels)
        weights = torch.cat([examples.weights, examples.negative_weights[present]])
        masked = examples.positives.new_zeros(())
        return StepLoss(weighted_mean(losses, weights), masked, weights.sum())
