"""Search of a bundle and its overlay as one catalog; from its ranking pages, diversity, caps."""

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query, ResolvedQuery
from turret.service.schemas.fields import Cursor
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.holder import LoadedModel
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.config import ScoringConfig
from turret.tower.retrieval import NOTHING, Cap, Ranking, marginal_relevance

Rows = NDArray[np.integer[Any]]
Scores = NDArray[np.float32]
# Up to so many withdrawn rows are left out by over-fetching, which is quicker than a mask: of 100,000 items,
# leaving out 40 or 1,000 takes 0.06 ms so, and 1.1 ms by a mask.
_FEW = 500


def nearest(model: LoadedModel, fresh: FreshItems, query: ResolvedQuery, k: int) -> Ranking:
    """The k items, of the bundle and fresh ones, with the highest scores for a query.

    Without a vector, a user gets the items with the most training events; fresh ones, which have none, are
    last. A query in words gets none: counts of events are no scores of an answer to it.
    """
    if query.only is not None and not len(query.only):
        return NOTHING
    out = left_out(fresh, query)
    if query.vector is None:
        if model.bundle.manifest.reads_queries:
            return model.retriever.popular(0)
        return _with_fresh(model, fresh, query, k, model.retriever.popular(k, *out))
    ranking = model.retriever.nearest(query.vector, k, *out, query.bonus, query.only)
    return _with_fresh(model, fresh, query, k, ranking)


def nearest_of_each(model: LoadedModel, fresh: FreshItems, queries: Sequence[ResolvedQuery]) -> list[Ranking]:
    """`nearest` of each query with a vector and without a filter, in fewer calls of the index."""
    ks, outs = [query.query.request.k for query in queries], [left_out(fresh, query) for query in queries]
    if any(allowed is not None for _, allowed in outs):
        return [nearest(model, fresh, query, k) for query, k in zip(queries, ks, strict=True)]
    vectors, bonuses = np.array([query.vector for query in queries]), [query.bonus for query in queries]
    rankings = model.retriever.nearest_of_each(vectors, ks, [rows for rows, _ in outs], bonuses)
    return [_with_fresh(model, fresh, *found) for found in zip(queries, ks, rankings, strict=True)]


def _with_fresh(
    model: LoadedModel, fresh: FreshItems, query: ResolvedQuery, k: int, ranking: Ranking
) -> Ranking:
    if not len(fresh):
        return ranking
    scores: Scores = np.zeros(len(fresh.is_served), np.float32)
    if query.vector is not None:
        rows = np.arange(fresh.first_row, fresh.first_row + len(scores))
        scores = scores_of(model.bundle.manifest.scoring, query, rows, fresh.vectors)
    return merge(ranking, scores, fresh, k, query.excluded, query.filtering, query.only)


def scores_by_towers(scoring: ScoringConfig, user: Scores, vectors: Scores) -> Scores:
    """The scores [K] of item vectors [K, D] for a user's [D], computed as by `tower.retrieval.Retriever`."""
    products = vectors @ user
    return (np.abs(products) if scoring.absolute else products) / np.float32(scoring.temperature)


def scores_of(scoring: ScoringConfig, query: ResolvedQuery, rows: Rows, vectors: Scores) -> Scores:
    """The scores [K] of the items `rows`, of these vectors [K, D], with what they gain by a repeat term."""
    assert query.vector is not None
    scores = scores_by_towers(scoring, query.vector, vectors)
    return scores if query.bonus is None else scores + query.bonus.gains(rows, scores)


def left_out(fresh: FreshItems, query: ResolvedQuery) -> tuple[Rows, RowMask | None]:
    """The rows of the bundle to leave out, and the mask of the allowed ones."""
    if query.filtering is not None:
        return query.excluded, fresh.allowed(query.filtering)
    if not len(fresh.withdrawn):
        return query.excluded, None
    if len(fresh.withdrawn) > _FEW:
        return query.excluded, fresh.served
    return np.concatenate([query.excluded, fresh.withdrawn]), None


def merge(
    ranking: Ranking,
    scores: Scores,
    fresh: FreshItems,
    k: int,
    excluded: Rows,
    filtering: Filter | None = None,
    only: Rows | None = None,
) -> Ranking:
    """The `k` best of the `k` best rows of a bundle and of its fresh items, which the plan counts too.

    Higher scores come first, then lower rows: on a tie, rows of the bundle come before fresh ones. `scores`
    [M] are those of the fresh items on the same scale; of the `excluded` rows, those below N are ignored. The
    rows `only`, if given, are the ones that may be among the best.
    """
    mask = fresh.fresh_served if filtering is None else fresh.fresh_allowed(filtering)
    if only is not None:
        may = np.isin(np.arange(fresh.first_row, fresh.first_row + len(scores)), only)
        mask = may if mask is None else mask & may
    scanned = len(scores) if mask is None else int(np.count_nonzero(mask))
    allowed, fetched = ranking.plan.allowed, ranking.plan.fetched + scanned
    plan = ranking.plan._replace(allowed=None if allowed is None else allowed + scanned, fetched=fetched)
    # Mostly a few can be among the best, so that little is sorted.
    can = np.full(len(scores), True) if len(ranking.rows) < k else scores > ranking.scores[k - 1]
    positions = np.flatnonzero(can if mask is None else can & mask)
    if len(positions) and len(excluded):
        positions = positions[~np.isin(positions + fresh.first_row, excluded)]
    if not len(positions):
        return ranking._replace(plan=plan)
    rows = np.concatenate([ranking.rows, positions + fresh.first_row])
    both = np.concatenate([ranking.scores, scores[positions]])
    # Stable: rows of the bundle with equal scores keep the order of their inner products.
    order = np.argsort(-both, kind="stable")[:k]
    return Ranking(rows[order], both[order], plan)


# Returns the best k items; fewer only if fewer exist.
Ranked = Callable[[int], Ranking]
# The candidates of diversity: enough to differ, few enough to compare pairwise. If a cap leaves fewer than k
# of them, the rest follows in the order of the scores.
POOL, POOL_PER_ITEM = 100, 4
# The best items among which a cap chooses: else one that can't be met would read the whole catalog.
CAPPED, CAPPED_PER_ITEM = 1_000, 10
# Pages end here, as those of a search: a cursor that a client has made up would rank the whole catalog.
PAGED = 10_000
_TOLERANCE = 1e-5


def select(ranked: Ranked, query: Query, view: ItemView, by_towers: bool = True) -> Ranking:
    """Select the first k items that meet the conditions of a query; fewer only if no more exist.

    A cap chooses among the best `CAPPED_PER_ITEM` k items, or `CAPPED` if these are more, and a further page
    among the best `PAGED`.

    The least score of the request is one of the towers: unless the ranking is `by_towers`, it doesn't count.
    """
    request, after = query.request, query.after
    minimum = None if request.min_score is None or not by_towers else np.float32(request.min_score)
    most = max(CAPPED, CAPPED_PER_ITEM * request.k) if request.cap else PAGED if after else math.inf
    fetch = _pool(request.k) if request.diversity else request.k
    if after is not None:
        fetch = min(fetch + after.shown, PAGED)
    while True:
        ranking = ranked(fetch)
        is_whole = len(ranking.rows) < fetch or fetch == most
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
        # Much has changed since the previous page, or its cursor is made up.
        fetch = PAGED if after else int(min(fetch * POOL_PER_ITEM, most))


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
    limits = zip(request.cap.values(), view.coded(request.cap, ranking.rows), strict=True)
    cap = Cap(len(ranking.rows), limits)
    order: list[int] = []
    pool = min(_pool(request.k), len(ranking.rows)) if request.diversity else 0
    if pool:
        directions = view.directions(ranking.rows[:pool])
        scores = ranking.scores[:pool]
        order = marginal_relevance(scores, directions, request.k, request.diversity, cap).tolist()
    order += islice(cap.take_from(pool), request.k - len(order))
    return Ranking(ranking.rows[order], ranking.scores[order], ranking.plan)


def _pool(k: int) -> int:
    return max(POOL, POOL_PER_ITEM * k)
