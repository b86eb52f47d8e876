"""A large cheap draw, scored, and a small one from the scores."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores
from turret.training.errors import TrainingError
from turret.training.samplers.core.categorical import draw_by_inversion, relative
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, check_positives, drawn_by_example
from turret.training.samplers.core.settings import Negatives, Power, SamplerContext, SamplerSettings
from turret.training.samplers.fixed.alias import AliasTable
from turret.training.samplers.fixed.weights import Weights, unigram_weights


class TwoPassConfig(SamplerSettings):
    """A cheap shared `pool` by (count + 1)^alpha, and from it each example's candidates by their scores."""

    kind: Literal["two_pass"] = "two_pass"
    negatives: Negatives = 64
    pool: Negatives = 4096
    alpha: Power = 0.75

    @property
    def counts_positives(self) -> bool:
        """Its counts are those given the pool, which need not contain the positive."""
        return False

    def build(self, context: SamplerContext) -> Sampler:
        """Build the sampler."""
        weights = unigram_weights(context.statistics.item_counts(), self.alpha)
        return TwoPassSampler(weights, self.pool, self.negatives, context.scoring, context.device)


@dataclass(frozen=True)
class Pool:
    """The first pass: `ids` [P] with copies, their log expected counts [P], and their vectors [P, D]."""

    ids: Tensor
    log_count: Tensor
    vectors: Tensor


class TwoPassSampler(Sampler):
    """TAPAS (Bai et al. 2017): a pool of P items that the batch shares, and from it K for each example.

    The first pass draws the pool from a static proposal, with replacement; a copy c in it is of an item
    that was expected exp(l_c) = P q1 times. The second draws copies by p2, the softmax of s_c - l_c over the
    copies that are not of the example's positive; the log count that is reported is l_c + log(K p2(c)).

    Given the pool the sum of exp(s_j) / count is expected to be sum_c exp(s_c - l_c); over all pools that is
    the sum of exp s_i over the other items. So the estimate is unbiased, though the count is not one that an
    item has beforehand: it is that given the pool.
    """

    def __init__(
        self, weights: Weights, pool: int, negatives: int, scoring: ScoringConfig, device: torch.device
    ) -> None:
        """Take the [N] positive weights of the first pass."""
        self.item_count = len(weights)
        self.size = pool
        self.negatives = negatives
        self.scoring = scoring
        self.table = AliasTable(weights)
        self.log_expected = torch.from_numpy(weights / weights.sum()).mul(pool).log().float().to(device)
        self.pool: Pool | None = None

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw the pool, and [B, K] ids from it.

        An example whose pool holds only its positive gets K masked candidates.
        """
        check_positives(positives, self.item_count)
        ids = torch.from_numpy(self.table.draw(self.size, context.random)).to(positives.device)
        self.pool = Pool(ids, self.log_expected[ids], context.encode(ids).float())
        hits = ids == positives[:, None]
        hits &= ~hits.all(dim=1, keepdim=True)
        log_weights = relative(self._log_weights(query, self.pool).masked_fill_(hits, float("-inf")))
        positions = torch.from_numpy(context.random.random((len(query), self.negatives))).to(query.device)
        copies, log_totals = draw_by_inversion(log_weights, positions)
        log_p = log_weights.gather(1, copies) - log_totals
        left_out = torch.full_like(log_p[:, 0], float("-inf"))
        return drawn_by_example(ids[copies], self.pool.log_count[copies] + log_p, left_out, positives)

    def _log_weights(self, query: Tensor, pool: Pool) -> Tensor:
        """s_c - l_c of every copy: [B, P]."""
        return cross_scores(query.float(), pool.vectors, self.scoring).float() - pool.log_count

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Each item's share [B, N] of the second pass over the last draw's pool, positives not left out.

        Raises:
            TrainingError: nothing was drawn yet.
        """
        if self.pool is None:
            raise TrainingError(
                "objective.sampler.kind = 'two_pass': the proposal is that of a pool, and none was drawn "
                "yet; draw before asking for it."
            )
        shares = self._log_weights(query, self.pool).softmax(dim=1)
        q = torch.zeros(len(query), self.item_count, device=query.device)
        return q.index_add(1, self.pool.ids, shares)
