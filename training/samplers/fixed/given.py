"""Negatives that came with the data, such as the wrong answers of a question."""

from typing import ClassVar

import torch
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, without_accidental_hits
from turret.training.samplers.core.settings import BuildContext, SamplerSettings


class GivenNegatives(SamplerSettings):
    """The negatives of each example, in place of a draw; for an `Estimator`, whose steps are given them.

    They have no probabilities: losses that are corrected by them take each negative as expected once.
    """

    counts_positives: ClassVar[bool] = False

    kind: str = "given"

    def build(self, context: BuildContext) -> Sampler:
        return GivenSampler()


class GivenSampler(Sampler):
    """The candidates of a step are the negatives of its context."""

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Use `context.negatives` [B, K], of which -1 is masked. Raises TrainingError without them."""
        if context.negatives is None:
            raise TrainingError(
                "GivenNegatives draws nothing; give the step its negatives, int64 [B, K], with -1 for none."
            )
        present = context.negatives >= 0
        ids = context.negatives.clamp(min=0)
        zeros = torch.zeros((), device=query.device)
        return Draw(
            ids=ids,
            log_count=zeros.expand(ids.shape),
            positive_log_count=torch.full(positives.shape, float("-inf"), device=query.device),
            valid=present & without_accidental_hits(ids, positives),
        )

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Raise TrainingError: there is no proposal."""
        raise TrainingError("GivenNegatives has no probabilities; compare samplers that draw.")
