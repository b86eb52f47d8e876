"""The validation metric of towers whose item table is split: each process scores its part of the catalog."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.training.distributed.world import World
from turret.training.evaluation.evaluation import EvaluatedPart, Relevant, measure
from turret.training.evaluation.ranking import (
    SCORES_A_BLOCK,
    USERS_A_BLOCK,
    Block,
    histories_of,
    history_bounds,
    popularity_scores,
    seen_pairs,
)
from turret.training.evaluation.reused_scores import ReusedScores
from turret.training.evaluation.top_rows import top_rows

_PART: EvaluatedPart = "validation"


@torch.no_grad()
def split_validation_metric(
    world: World,
    model: TwoTowers,
    data: PreparedData,
    popularity: NDArray[np.int64],
    relevant: Relevant,
    metric: str,
    exclude_seen: bool,
) -> float:
    """The mean of one metric, such as ndcg@10, over the users of `relevant`; the same in every process."""
    model.eval()
    k = int(metric.partition("@")[2])
    ranked = _ranked(world, model, data, popularity, relevant.users, k, exclude_seen)
    values, _ = measure(ranked, relevant, [k], len(data.item_ids), "validating")
    return float(values[metric].mean())


def _ranked(
    world: World,
    model: TwoTowers,
    data: PreparedData,
    popularity: NDArray[np.int64],
    users: NDArray[np.int64],
    k: int,
    exclude_seen: bool,
) -> Iterator[Block]:
    """The top k of each user, merged from the top k of each part of the catalog."""
    count = len(data.item_ids)
    share = -(-count // world.size)
    part = slice(min(count, share * world.rank), min(count, share * (world.rank + 1)))
    items = model.item_vectors(torch.arange(part.start, part.stop))
    popular, scores_of = popularity_scores(popularity), ReusedScores()
    size = min(USERS_A_BLOCK, max(1, SCORES_A_BLOCK // share))
    for first in range(0, len(users), size):
        block = users[first : first + size]
        starts, ends = history_bounds(data, block, _PART)
        warm = ends > starts
        if warm.all():
            scores = scores_of(_user_vectors(model, data, block), items, model.config.scoring)
        else:
            scores = popular(block[:1])[:, part].repeat(len(block), 1)
            if warm.any():
                vectors = _user_vectors(model, data, block[warm])
                scores[torch.from_numpy(warm)] = scores_of(vectors, items, model.config.scoring)
        if exclude_seen:
            owners, seen = seen_pairs(data, block, _PART)
            inside = (seen >= part.start) & (seen < part.stop)
            scores[owners[inside], seen[inside] - part.start] = float("-inf")
        yield Block(block, _merged(world, scores, part.start, k).numpy())


def _user_vectors(model: TwoTowers, data: PreparedData, users: NDArray[np.int64]) -> Tensor:
    user = model.config.user
    histories = histories_of(data, users, _PART, user.history_length, user.reads_times)
    return model.user_vectors(histories, model.item_vectors(histories.rows))


def _merged(world: World, scores: Tensor, first: int, k: int) -> Tensor:
    """The top k rows of the catalog [U, k], from the `scores` [U, R] of the items from row `first` on."""
    columns = top_rows(scores, k)
    best = scores.gather(1, columns.clamp(min=0)).masked_fill(columns < 0, float("-inf"))
    rows = torch.where(columns < 0, columns, columns + first)
    # Parts follow each other by ascending row, so a stable sort keeps ties in the order of rows.
    every_score, every_row = _side_by_side(world, best), _side_by_side(world, rows)
    order = every_score.argsort(dim=1, descending=True, stable=True)[:, :k]
    return every_row.gather(1, order)


def _side_by_side(world: World, part: Tensor) -> Tensor:
    """The columns of [U, K] of all processes: [U, sum of K]."""
    return world.gathered(part.T.contiguous()).T.contiguous()
