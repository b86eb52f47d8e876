"""Hard negatives: the items that score highest with each example."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, without_accidental_hits
from turret.training.samplers.core.settings import Negatives, SamplerContext, SamplerSettings, Steps
from turret.training.samplers.core.snapshot import Snapshot, SnapshotSampler

# How many examples and items are scored at once: 64 MiB of scores, however large the catalog.
EXAMPLES, ITEMS = 256, 65_536


class MinedConfig(SamplerSettings):
    """Each example's `negatives` items of highest score, by vectors at most `refresh_every` steps old."""

    mixable: ClassVar[bool] = True
    covers_catalog: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    scores_catalog: ClassVar[bool] = True
    variants = ()  # only as a part of a mixed draw

    kind: Literal["mined"] = "mined"
    negatives: Negatives = 16
    refresh_every: Steps = 100

    def build(self, context: SamplerContext) -> Sampler:
        """Build the sampler."""
        snapshot = Snapshot(context.item_count, self.refresh_every, context.device)
        return MinedSampler(snapshot, self.negatives, context.scoring.absolute)


class MinedSampler(SnapshotSampler):
    """K candidates an example: its items of highest score, by vectors at most `refresh_every` steps old.

    The draw is deterministic: an item among the K best is expected once, any other never, so that alone it
    estimates no sum. In a union with a sampler that can draw every item, the best are scored in every step,
    and the sum of the counts is right for all (mined as by Xiong et al. 2021, ANCE; the correction is that of
    a mixture of proposals).

    The positive is among its example's best like any other item, and masked there.
    """

    def __init__(self, snapshot: Snapshot, negatives: int, absolute: bool = False) -> None:
        """Take `negatives` of the snapshot's items; `absolute` ranks scores without their sign.

        Raises TrainingError when there are fewer items.
        """
        if negatives > snapshot.item_count:
            raise TrainingError(
                f"objective.sampler: {negatives} mined negatives exceed a catalog of "
                f"{snapshot.item_count} items; ask for at most {snapshot.item_count}."
            )
        self.snapshot: Snapshot = snapshot
        self.negatives = negatives
        self.absolute = absolute
        self._best = torch.empty(0, negatives, dtype=torch.int64)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """The best [B, K] of each example, rows ascending. Raises TrainingError before the first refresh."""
        best = best_items(query, self.snapshot.vectors, self.negatives, self.absolute)
        self._best = best.sort(dim=1).values
        return Draw(
            ids=self._best,
            log_count=torch.zeros(best.shape, device=best.device),
            positive_log_count=self.log_expected(query, positives, positives[:, None])[:, 0],
            valid=without_accidental_hits(self._best, positives),
        )

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """Zero for `ids` among the last draw's best of their example, minus infinity for others: [B, K]."""
        if ids.dim() == 1:
            return self._log_expected_of_shared(ids)
        positions = torch.searchsorted(self._best, ids.contiguous()).clamp(max=self.negatives - 1)
        among = self._best.gather(1, positions) == ids
        return torch.where(among, 0.0, -math.inf)

    def _log_expected_of_shared(self, ids: Tensor) -> Tensor:
        """Look up the few best among the many shared `ids` [K], instead of each of these in every example."""
        distinct, columns = torch.unique(ids, return_inverse=True)
        # Column 0 takes the best that are not among `ids`.
        distinct = torch.nn.functional.pad(distinct, (1, 0), value=-1)
        positions = torch.searchsorted(distinct, self._best).clamp(max=len(distinct) - 1)
        positions = torch.where(distinct[positions] == self._best, positions, 0)
        counts = torch.full((len(self._best), len(distinct)), -math.inf, device=ids.device)
        return counts.scatter_(1, positions, 0.0).index_select(1, columns + 1)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """1/K for each of the K best, zero for the others: [B, N]."""
        vectors = self.snapshot.vectors
        best = best_items(query, vectors, self.negatives, self.absolute)
        shares = torch.zeros(len(query), len(vectors), device=query.device)
        return shares.scatter(1, best, 1.0 / self.negatives)


def best_items(query: Tensor, vectors: Tensor, count: int, absolute: bool) -> Tensor:
    """The rows [B, count] of the item vectors [N, D] of highest inner product with each query [B, D].

    Scored block by block, so that memory grows neither with B times N nor with N.
    """
    parts = (query[first : first + EXAMPLES].float() for first in range(0, len(query), EXAMPLES))
    return torch.cat([_best_of(part, vectors, count, absolute) for part in parts])


def _best_of(query: Tensor, vectors: Tensor, count: int, absolute: bool) -> Tensor:
    scores = query.new_empty(len(query), 0)
    rows = torch.empty(len(query), 0, dtype=torch.int64, device=query.device)
    for first in range(0, len(vectors), ITEMS):
        block = query @ vectors[first : first + ITEMS].T
        best, positions = (block.abs() if absolute else block).topk(min(count, block.shape[1]), dim=1)
        scores, rows = torch.cat([scores, best], dim=1), torch.cat([rows, positions + first], dim=1)
        scores, kept = scores.topk(min(count, scores.shape[1]), dim=1)
        rows = rows.gather(1, kept)
    return rows
