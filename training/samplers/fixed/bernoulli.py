"""Draws that include each item independently (complementary sum sampling)."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, check_positives, without_accidental_hits
from turret.training.samplers.core.settings import Negatives, Power, SamplerContext, SamplerSettings
from turret.training.samplers.fixed.alias import AliasTable, Weights, unigram_weights

Chances = NDArray[np.float64]


class BernoulliConfig(SamplerSettings):
    """Each item is in the draw or not, on its own; `negatives` are expected, by (count + 1)^alpha."""

    kind: Literal["bernoulli"] = "bernoulli"
    negatives: Negatives = 512
    alpha: Power = 0.75

    @property
    def fixed_size(self) -> bool:
        """Never: the number of candidates is random."""
        return False

    def build(self, context: SamplerContext) -> Sampler:
        """Build the sampler."""
        weights = unigram_weights(context.statistics.item_counts(), self.alpha)
        return BernoulliSampler(weights, self.negatives, context.device)


class BernoulliSampler(Sampler):
    """Item i is in the draw with probability b_i, independently of all others; shared by the batch.

    An item comes at most once, and is expected b_i times: the sum over the others is estimated by
    sum exp(s_j) / b_j (Botev et al. 2017, eq. 7-9 and 22). The number of candidates is random.

    A draw takes time in proportion to its size: i is among the items of a Poisson number of draws with
    replacement, of rates -log(1 - b_i), with probability b_i exactly, and independently.
    """

    def __init__(self, weights: Weights, negatives: int, device: torch.device) -> None:
        """Expect `negatives` items, in proportion to [N] positive weights as far as b_i <= 1."""
        chances = inclusion_chances(weights, negatives)
        self.always = np.flatnonzero(chances == 1.0)
        self.sometimes = np.flatnonzero(chances < 1.0)
        rates = -np.log1p(-chances[self.sometimes])
        self.rate = float(rates.sum())
        self.table = AliasTable(rates) if len(rates) else None
        self.log_chances = torch.from_numpy(np.log(chances)).float().to(device)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [K] different ids; K differs from draw to draw."""
        check_positives(positives, len(self.log_chances))
        ids = torch.from_numpy(self._included(context.random)).to(positives.device)
        return Draw(
            ids=ids,
            log_count=self.log_chances[ids],
            positive_log_count=self.log_chances[positives],
            valid=without_accidental_hits(ids, positives),
        )

    def _included(self, random: np.random.Generator) -> NDArray[np.int64]:
        if self.table is None:
            return self.always
        drawn = np.unique(self.table.draw(int(random.poisson(self.rate)), random))
        return np.concatenate([self.always, self.sometimes[drawn]])

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Each item's share b_i / sum b of the expected candidates, for each query: [B, N]."""
        chances = self.log_chances.exp()
        return (chances / chances.sum()).expand(len(query), -1)


def inclusion_chances(weights: Weights, expected: int) -> Chances:
    """b_i = min(1, c weight_i), with c such that the [N] b_i sum to `expected`, or all of them 1.

    The heaviest m are certain, and the others share what is left in proportion: m is the least for which
    none of them gets more than 1.
    """
    if expected >= len(weights):
        return np.ones(len(weights))
    order = np.argsort(-weights, kind="stable")
    falling = weights[order]
    rest = np.cumsum(falling[::-1])[::-1]
    factors = (expected - np.arange(expected)) / rest[:expected]
    certain = int(np.argmax(np.append(falling[:expected] * factors, 0.0) <= 1.0))
    chances = np.ones(len(weights))
    if certain < expected:
        chances[order[certain:]] = falling[certain:] * factors[certain]
    return chances
