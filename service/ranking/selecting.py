"""Selection from a ranking: pages, minimum scores, diversity and caps."""

from collections.abc import Callable
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.schemas.fields import Cursor
from turret.service.schemas.requests import RecommendRequest
from turret.tower.retrieval import Cap, Ranking, marginal_relevance

# Returns the best k items; fewer only if fewer exist.
Ranked = Callable[[int], Ranking]
# The candidates of diversity: enough to differ, few enough to compare pairwise. If a cap leaves fewer than k
# of them, the rest follows in the order of the scores.
POOL, POOL_PER_ITEM = 100, 4
_TOLERANCE = 1e-5


def select(ranked: Ranked, query: Query, view: ItemView, by_towers: bool = True) -> Ranking:
    """Select the first k items that meet the conditions of a query; fewer only if no more exist.

    The least score of the request is one of the towers: unless the ranking is `by_towers`, it doesn't count.
    """
    request, after = query.request, query.after
    minimum = None if request.min_score is None or not by_towers else np.float32(request.min_score)
    fetch = _pool(request.k) if request.diversity else request.k + (after.shown if after else 0)
    while True:
        ranking = ranked(fetch)
        is_whole = len(ranking.rows) < fetch
        keep = np.ones(len(ranking.rows), dtype=np.bool_)
        if after is not None:
            keep &= _comes_after(ranking, after)
        if minimum is not None:
            keep &= ranking.scores >= minimum
            # Items after one below the least score are below it too.
            is_whole |= len(ranking.scores) > 0 and bool(ranking.scores[-1] < minimum)
        kept = Ranking(ranking.rows[keep], ranking.scores[keep], ranking.plan)
        chosen = _chosen(kept, request, view)
        if len(chosen.rows) == request.k or is_whole:
            return chosen
        fetch *= POOL_PER_ITEM


def _comes_after(ranking: Ranking, after: Cursor) -> NDArray[np.bool_]:
    """The mask [M] of the items after the last one of the previous page, which may be gone by now."""
    # Different inner products may become equal scores after the division by the temperature, as may counts
    # above 2^24: if the item is still there, its position decides. The last bits of its score depend on the
    # machine.
    last = np.float32(after.score)
    is_close = abs(ranking.scores.astype(np.float64) - after.score) <= _TOLERANCE * abs(after.score)
    last_at = np.flatnonzero((ranking.rows == after.row) & is_close)
    comes: NDArray[np.bool_] = (
        np.arange(len(ranking.rows)) > last_at[0]
        if len(last_at)
        else (ranking.scores < last) | ((ranking.scores == last) & (ranking.rows > after.row))
    )
    return comes


def _chosen(ranking: Ranking, request: RecommendRequest, view: ItemView) -> Ranking:
    """The first k of a ranking, as far as diversity and caps allow."""
    if request.is_in_order:
        return Ranking(ranking.rows[: request.k], ranking.scores[: request.k], ranking.plan)
    cap = Cap(request.cap)

    def take(position: int) -> bool:
        return not request.cap or cap.take(view.fields(int(ranking.rows[position])))

    order: list[int] = []
    pool = min(_pool(request.k), len(ranking.rows)) if request.diversity else 0
    if pool:
        directions = view.directions(ranking.rows[:pool])
        scores = ranking.scores[:pool]
        order = marginal_relevance(scores, directions, request.k, request.diversity, take).tolist()
    others = filter(take, range(pool, len(ranking.rows)))
    order += islice(others, request.k - len(order))
    return Ranking(ranking.rows[order], ranking.scores[order], ranking.plan)


def _pool(k: int) -> int:
    return max(POOL, POOL_PER_ITEM * k)
