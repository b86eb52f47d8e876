"""Samplers that score the catalog, or a pool of it: softmax, quartic, two passes, and mined items."""

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor

from turret.tower.config import ScoringConfig
from turret.tower.towers.model import cross_scores
from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import (
    CountingSampler,
    Draw,
    DrawContext,
    Sampler,
    draw_by_inversion,
    drawn_from,
    relative,
)
from turret.training.samplers.core.settings import (
    BuildContext,
    ExcludingSettings,
    Negatives,
    Power,
    SamplerSettings,
    Steps,
)
from turret.training.samplers.core.snapshot import SnapshotSampler, SnapshotSettings
from turret.training.samplers.fixed.alias import AliasTable, Weights, unigram_weights
from turret.training.samplers.fixed.complement import check_others

LogKernel = Callable[[Tensor, Tensor], Tensor]
"""The log weights [B, N] of item vectors [N, D] for queries [B, D]."""

# So many weights are computed at a time; more would only move memory.
WEIGHTS_A_BLOCK = 1 << 20


class DenseSettings(SnapshotSettings, ExcludingSettings):
    """A kernel over the whole catalog, by vectors at most `refresh_every` steps old.

    Args:
        negatives: K, the number of candidates.
        refresh_every: the greatest age of a copied item vector, in steps.
        exclude_positive: whether each example draws without its positive, which is masked otherwise.
    """

    scores_catalog: ClassVar[bool] = True

    refresh_every: Steps = 1


class QuarticConfig(DenseSettings):
    """The kernel s^4 + 1 of the tempered score s, over the whole catalog: a reference.

    For the settings see `DenseSettings`.

    Draws:
        int64 [B, K], candidates of each example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.quartic(negatives=4).build(catalog)
        >>> sampler.refresh(vectors)
        >>> sampler.draw(users, positives, step).ids.shape
        torch.Size([2, 4])
    """

    kind: Literal["quartic"] = "quartic"

    def build(self, context: BuildContext) -> Sampler:
        return DenseSampler(self, context, quartic_kernel(context.scoring))


class SoftmaxConfig(DenseSettings):
    """The softmax itself, over the whole catalog: the proposal without bias, and a reference.

    For the settings see `DenseSettings`.

    Draws:
        int64 [B, K], candidates of each example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.softmax(negatives=4).build(catalog)
        >>> sampler.refresh(vectors)
        >>> sampler.draw(users, positives, step).ids.shape
        torch.Size([2, 4])
    """

    kind: Literal["softmax"] = "softmax"

    def build(self, context: BuildContext) -> Sampler:
        return DenseSampler(self, context, softmax_kernel(context.scoring))


class DenseSampler(SnapshotSampler):
    """K candidates an example, drawn with replacement from all N items in proportion to a kernel.

    Each draw costs O(N D) an example, as much as the full softmax: it is an oracle and a reference for other
    samplers. The item vectors come from a snapshot, for which the counts are exact.
    """

    exclude_positive = False

    def __init__(
        self, settings: SnapshotSettings, context: BuildContext, kernel: LogKernel | None = None
    ) -> None:
        """Draw by `kernel`; without it a subclass defines `log_weights`.

        Raises TrainingError where exclusion would leave nothing.
        """
        super().__init__(settings, context)
        self.kernel = kernel
        if isinstance(settings, ExcludingSettings) and settings.exclude_positive:
            self.exclude_positive = True
            check_others(self.item_count)

    def log_weights(self, query: Tensor) -> Tensor:
        """The log weights [B, N] of all items for some queries [B, D]."""
        assert self.kernel is not None
        return self.kernel(query.float(), self.vectors).float()

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids."""
        positions = torch.from_numpy(context.random.random((len(query), self.negatives))).to(query.device)
        ids = torch.empty_like(positions, dtype=torch.int64)
        log_q = torch.empty_like(positions, dtype=torch.float32)
        positive_log_q = torch.empty_like(log_q[:, 0])
        examples = max(1, WEIGHTS_A_BLOCK // self.item_count)
        for first in range(0, len(query), examples):
            rows = slice(first, first + examples)
            log_weights = self.log_weights(query[rows])
            if self.exclude_positive:
                log_weights.scatter_(1, positives[rows, None], float("-inf"))
            log_weights = relative(log_weights)
            ids[rows], log_totals = draw_by_inversion(log_weights, positions[rows])
            log_q[rows] = log_weights.gather(1, ids[rows]) - log_totals
            positive_log_q[rows] = (log_weights.gather(1, positives[rows, None]) - log_totals)[:, 0]
        return drawn_from(ids, log_q, positive_log_q, positives)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """q [B, N], before an excluded positive is left out."""
        return self.log_weights(query).softmax(dim=1)


def softmax_kernel(scoring: ScoringConfig) -> LogKernel:
    """The log s of exp s, the only kernel without bias at any K (Blanc & Rendle 2018, theorem 2.1)."""
    return lambda query, vectors: cross_scores(query, vectors, scoring)


def quartic_kernel(scoring: ScoringConfig) -> LogKernel:
    """log(s^4 + 1) of tempered scores s (Blanc & Rendle 2018, section 4.1.2).

    The power itself isn't computed, as it may overflow.
    """

    def log_kernel(query: Tensor, vectors: Tensor) -> Tensor:
        log_power = cross_scores(query, vectors, scoring).float().abs_().log_().mul_(4.0)
        return torch.logaddexp(log_power, log_power.new_zeros(()))

    return log_kernel


class TwoPassConfig(SamplerSettings):
    """A cheap shared pool by (count + 1)^alpha, and from it each example's candidates by their scores.

    Args:
        negatives: K, the number of candidates.
        pool: P, the number of draws in the pool.
        alpha: the power of the counts by which the pool is drawn.

    Draws:
        int64 [B, K], candidates of each example.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.two_pass(negatives=4, pool=8).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape
        torch.Size([2, 4])
    """

    # The counts are conditional on the pool, which need not contain the positive.
    counts_positives: ClassVar[bool] = False

    kind: Literal["two_pass"] = "two_pass"
    negatives: Negatives = 64
    pool: Negatives = 4096
    alpha: Power = 0.75

    def build(self, context: BuildContext) -> Sampler:
        weights = unigram_weights(context.statistics.item_counts(), self.alpha)
        return TwoPassSampler(weights, self.pool, self.negatives, context.scoring, context.device)


class TwoPassSampler(Sampler):
    """TAPAS (Bai et al. 2017): a pool of P items that the batch shares, and from it K for each example.

    The first pass draws the pool from a static proposal, with replacement; a copy c in it is of an item
    that was expected exp(l_c) = P q1 times. The second pass draws copies by p2, the softmax of s_c - l_c over
    the copies that are not of the example's positive; the log count, conditional on the pool, is
    l_c + log(K p2(c)). Over all pools the estimate is unbiased.
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
        # The pool of the last draw: its items [P], which may repeat, and their vectors [P, D].
        self.pool: tuple[Tensor, Tensor] | None = None

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw the pool, and [B, K] ids from it.

        An example whose pool holds only its positive gets K masked candidates.
        """
        ids = torch.from_numpy(self.table.draw(self.size, context.random)).to(positives.device)
        self.pool = ids, context.encode(ids).float()
        hits = ids == positives[:, None]
        hits &= ~hits.all(dim=1, keepdim=True)
        log_weights = relative(self._log_weights(query, *self.pool).masked_fill_(hits, float("-inf")))
        positions = torch.from_numpy(context.random.random((len(query), self.negatives))).to(query.device)
        copies, log_totals = draw_by_inversion(log_weights, positions)
        log_p = log_weights.gather(1, copies) - log_totals
        left_out = torch.full_like(log_p[:, 0], float("-inf"))
        drawn = ids[copies]
        return drawn_from(drawn, self.log_expected[drawn] + log_p, left_out, positives)

    def _log_weights(self, query: Tensor, ids: Tensor, vectors: Tensor) -> Tensor:
        """s_c - l_c of every copy: [B, P]."""
        return cross_scores(query.float(), vectors, self.scoring).float() - self.log_expected[ids]

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
        shares = self._log_weights(query, *self.pool).softmax(dim=1)
        q = torch.zeros(len(query), self.item_count, device=query.device)
        return q.index_add(1, self.pool[0], shares)


# So many examples and items are scored at once: 64 MiB of scores, however large the catalog.
EXAMPLES, ITEMS = 256, 65_536


class MinedConfig(SnapshotSettings):
    """Each example's items of highest score, by vectors at most `refresh_every` steps old; a part of `mixed`.

    Args:
        negatives: K, the number of items.
        refresh_every: the greatest age of a copied item vector, in steps.

    Draws:
        int64 [B, K], candidates of each example, rows ascending.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.mined(negatives=2).build(catalog)
        >>> sampler.refresh(vectors)
        >>> sampler.draw(users, positives, step).ids
        tensor([[8, 9],
                [0, 1]])
    """

    mixable: ClassVar[bool] = True
    covers_catalog: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    scores_catalog: ClassVar[bool] = True

    kind: Literal["mined"] = "mined"
    negatives: Negatives = 16

    def build(self, context: BuildContext) -> Sampler:
        return MinedSampler(self, context)


class MinedSampler(SnapshotSampler, CountingSampler):
    """K candidates an example: its items of highest score, by vectors at most `refresh_every` steps old.

    The draw is deterministic: an item among the K best is expected once, any other never, so that alone it
    estimates no sum (mined as by Xiong et al. 2021, ANCE). The positive is among its example's best like any
    other item, and masked there.
    """

    def __init__(self, settings: MinedConfig, context: BuildContext) -> None:
        """Raises TrainingError for more negatives than items."""
        super().__init__(settings, context)
        if self.negatives > self.item_count:
            raise TrainingError(
                f"objective.sampler: {self.negatives} mined negatives exceed a catalog of "
                f"{self.item_count} items; ask for at most {self.item_count}."
            )
        self.absolute = context.scoring.absolute
        self._best = torch.empty(0, self.negatives, dtype=torch.int64)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """The best [B, K] of each example, rows ascending. Raises TrainingError before the first refresh."""
        best = best_items(query, self.vectors, self.negatives, self.absolute)
        self._best = best.sort(dim=1).values
        return Draw(
            ids=self._best,
            log_count=torch.zeros(best.shape, device=best.device),
            positive_log_count=self.log_expected(query, positives, positives[:, None])[:, 0],
            valid=self._best != positives.unsqueeze(1),
        )

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """Zero for `ids` among the last draw's best of their example, minus infinity for others: [B, K]."""
        ids = ids.expand(len(self._best), -1).contiguous()
        positions = torch.searchsorted(self._best, ids).clamp(max=self.negatives - 1)
        return torch.where(self._best.gather(1, positions) == ids, 0.0, -math.inf)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """1/K for each of the K best, zero for the others: [B, N]."""
        vectors = self.vectors
        best = best_items(query, vectors, self.negatives, self.absolute)
        shares = torch.zeros(len(query), len(vectors), device=query.device)
        return shares.scatter(1, best, 1.0 / self.negatives)


def best_items(query: Tensor, vectors: Tensor, count: int, absolute: bool) -> Tensor:
    """The rows [B, count] of the item vectors [N, D] of highest inner product with each query [B, D].

    Scores are computed block by block, so that memory grows neither with B times N nor with N.
    """
    row_blocks = []
    for queries in torch.split(query.float(), EXAMPLES):
        scores = queries.new_empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.int64, device=query.device)
        for first in range(0, len(vectors), ITEMS):
            block = queries @ vectors[first : first + ITEMS].T
            best, positions = (block.abs() if absolute else block).topk(min(count, block.shape[1]), dim=1)
            scores, rows = torch.cat([scores, best], dim=1), torch.cat([rows, positions + first], dim=1)
            scores, kept = scores.topk(min(count, scores.shape[1]), dim=1)
            rows = rows.gather(1, kept)
        row_blocks.append(rows)
    return torch.cat(row_blocks)
