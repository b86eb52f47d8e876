"""Searches a bundle and its overlay as one catalog, and selects from the ranking by page, diversity, caps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.service.overlay.fresh import FreshItems
from turret.service.popular.counts import Popular
from turret.service.popular.popular_now import PopularNow
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.schemas.fields import Cursor
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.holder import LoadedModel
from turret.tower.catalog.filters import Filter
from turret.tower.config import ScoringConfig
from turret.tower.retrieval import (
    MOST_COUNTED,
    NOTHING,
    Cap,
    Plan,
    Ranking,
    best_products,
    boosted_counts,
    marginal_relevance,
)

Rows = NDArray[np.integer[Any]]
Scores = NDArray[np.float32]
# Up to so many withdrawn rows are left out by over-fetching, which is quicker than a mask: of 100,000 items,
# leaving out 40 or 1,000 takes 0.06 ms by over-fetching, and 1.1 ms by a mask.
_FEW = 500


def rank(queries: Sequence[Query], model: LoadedModel, view: ItemView) -> list[Ranking]:
    """The ranking of each query; queries without further conditions are searched for together."""
    # Where users have several interests, a search for similar items has one vector all the same.
    fresh, together, shape = view.fresh, list[int](), view.bundle.encoder.shape
    for position, query in enumerate(queries):
        query.left_out, query.allowed = query.excluded, None
        if query.vector is None and query.popular_now is not None:
            query.popular = _popular_of(query, query.popular_now, view)
        if query.filtering is not None:
            query.allowed = fresh.allowed(query.filtering)
        elif len(fresh.withdrawn) > _FEW:
            query.allowed = fresh.served
        elif len(fresh.withdrawn):
            query.left_out = np.concatenate([query.excluded, fresh.withdrawn])
        if query.pins:
            _keep_pins(query, fresh)
        is_whole = query.allowed is None and query.only is None
        if query.vector is not None and query.vector.shape == shape and is_whole and query.is_plain:
            together.append(position)
    batched: dict[int, Ranking] = {}
    if len(together) > 1 and not view.bundle.manifest.index.is_remote:
        plain = [queries[position] for position in together]
        vectors, ks = np.array([query.vector for query in plain]), [query.depth for query in plain]
        out, bonuses = [query.left_out for query in plain], [query.bonus for query in plain]
        batched = dict(zip(together, model.retriever.nearest_of_each(vectors, ks, out, bonuses), strict=True))
    rankings: list[Ranking] = []
    for position, query in enumerate(queries):
        if position in batched:
            ranking = batched[position]
            ranking = _with_fresh(model, fresh, query, query.depth, ranking) if len(fresh) else ranking
        elif query.is_plain:
            ranking = nearest(model, fresh, query, query.depth)
        else:
            ranked = partial(nearest, model, fresh, query)
            ranking = select(ranked, query, view, by_towers=query.vector is not None)
        if query.explorer is not None and query.depth > query.request.k and query.is_plain:
            query.pool = ranking
            ranking = Ranking(
                ranking.rows[: query.request.k], ranking.scores[: query.request.k], ranking.plan
            )
        rankings.append(ranking)
    return rankings


def _keep_pins(query: Query, fresh: FreshItems) -> None:
    """Keep the pins that the answer may have, and leave their items out of the ranking of the others."""
    rows = np.array([*query.pins.values()], dtype=np.int64)
    keep, is_fresh = ~np.isin(rows, query.left_out), rows >= fresh.first_row
    if query.allowed is not None:
        keep[~is_fresh] &= query.allowed.mask[rows[~is_fresh]]
    if query.filtering is not None and is_fresh.any():
        keep[is_fresh] &= fresh.fresh_allowed(query.filtering)[rows[is_fresh] - fresh.first_row]
    if query.only is not None:
        keep &= np.isin(rows, query.only)
    query.pins = dict(compress(query.pins.items(), keep))
    pinned = rows[keep]
    query.excluded = np.concatenate([query.excluded, pinned])
    query.left_out = np.concatenate([query.left_out, pinned])


def nearest(model: LoadedModel, fresh: FreshItems, query: Query, k: int) -> Ranking:
    """The k items, of the bundle and fresh ones, with the highest scores for a query.

    Without a vector, a user gets the items with the most training events; fresh items, which have no events,
    are last. A query in words gets no items then: counts of events are no scores of an answer to it.
    """
    if query.only is not None and not len(query.only):
        return NOTHING
    if query.vector is None:
        if query.popular is not None:
            return _most_popular(model, fresh, query, query.popular, k)
        if model.bundle.manifest.reads_queries:
            return model.retriever.popular(0)
        ranking = model.retriever.popular(k, query.left_out, query.allowed, query.boosts)
    else:
        ranking = model.retriever.nearest(
            query.vector, k, query.left_out, query.allowed, query.bonus, query.only, query.boosts
        )
    return _with_fresh(model, fresh, query, k, ranking) if len(fresh) else ranking


def _popular_of(query: Query, popular_now: PopularNow, view: ItemView) -> Popular | None:
    """The decayed counts that answer a query without a vector, if they do."""
    if query.counted is not None:
        counts = popular_now.counts
        return None if counts is None else counts.ranked(query.counted, view.bundle, view.fresh)
    if view.bundle.manifest.reads_queries:
        return None
    tag = None if query.after is None else query.after.counted
    return popular_now.fallback(view.bundle, view.fresh, query.request_time, tag)


def _most_popular(model: LoadedModel, fresh: FreshItems, query: Query, popular: Popular, k: int) -> Ranking:
    """The k items with the most events of late, and behind them, as a fallback, the others by training.

    The score is the decayed count at the time of the request, or of the first page, and 0 without events.
    """
    rows, counts = popular.rows, popular.sums * popular.at(query.request_time)
    keep = popular.are_enough(query.request_time) & ~np.isin(rows, query.left_out)
    is_fresh = rows >= fresh.first_row
    if query.allowed is not None:
        keep[~is_fresh] &= query.allowed.mask[rows[~is_fresh]]
    if query.filtering is not None and is_fresh.any():
        keep[is_fresh] &= fresh.fresh_allowed(query.filtering)[rows[is_fresh] - fresh.first_row]
    rows, counts = rows[keep], counts[keep]
    if query.boosts is not None:
        logarithms, boosted = boosted_counts(counts, query.boosts[rows])
        order = np.argsort(-logarithms, kind="stable")
        rows, counts = rows[order], boosted[order].astype(np.float64)
    plan = Plan("popularity", None if query.allowed is None else query.allowed.count, len(popular.rows))
    ranking = Ranking(rows[:k], np.minimum(counts[:k], MOST_COUNTED).astype(np.float32), plan)
    if query.counted is not None or len(ranking.rows) == k:
        return ranking
    rest = replace(
        query,
        excluded=np.concatenate([query.excluded, rows]),
        left_out=np.concatenate([query.left_out, rows]),
        popular=None,
    )
    trained = nearest(model, fresh, rest, k - len(rows))
    zeros = np.zeros(len(trained.rows), np.float32)
    return Ranking(np.append(rows, trained.rows), np.append(ranking.scores, zeros), plan)


def _with_fresh(model: LoadedModel, fresh: FreshItems, query: Query, k: int, ranking: Ranking) -> Ranking:
    scores: Scores = np.zeros(len(fresh.is_served), np.float32)
    if query.vector is not None:
        rows = np.arange(fresh.first_row, fresh.first_row + len(scores))
        scores = scores_of(model.bundle.manifest.scoring, query, rows, fresh.vectors)
        if query.boosts is not None:
            scores = scores + query.boosts[rows]
    return merge(ranking, scores, fresh, k, query.excluded, query.filtering, query.only)


def fresh_nearest(model: LoadedModel, fresh: FreshItems, query: Query, k: int) -> Ranking:
    """The k items that were added since the version was made, with the highest scores for a query."""
    return _with_fresh(model, fresh, query, k, NOTHING) if len(fresh) else NOTHING


def scores_by_towers(scoring: ScoringConfig, user: Scores, vectors: Scores) -> Scores:
    """The scores [K] of item vectors [K, D] for a user's [D], computed as by `tower.retrieval.Retriever`."""
    return best_products(vectors, user, scoring.absolute) / np.float32(scoring.temperature)


def scores_of(scoring: ScoringConfig, query: Query, rows: Rows, vectors: Scores) -> Scores:
    """The scores [K] of the items `rows` with these vectors [K, D], with their gains by a repeat term."""
    assert query.vector is not None
    scores = scores_by_towers(scoring, query.vector, vectors)
    return scores if query.bonus is None else scores + query.bonus.gains(rows, scores)


def merge(
    ranking: Ranking,
    scores: Scores,
    fresh: FreshItems,
    k: int,
    excluded: Rows,
    filtering: Filter | None = None,
    only: Rows | None = None,
) -> Ranking:
    """Merge the `k` best rows of a bundle with its fresh items into the `k` best; the plan counts both.

    Higher scores come first, then lower rows: on a tie, rows of the bundle come before fresh rows. `scores`
    [M] are the scores of the fresh items on the same scale; `excluded` rows below N are ignored. If `only` is
    given, no fresh row outside of it may be among the best.
    """
    mask = fresh.fresh_served if filtering is None else fresh.fresh_allowed(filtering)
    if only is not None:
        may = np.isin(np.arange(fresh.first_row, fresh.first_row + len(scores)), only)
        mask = may if mask is None else mask & may
    scanned = len(scores) if mask is None else int(np.count_nonzero(mask))
    allowed, fetched = ranking.plan.allowed, ranking.plan.fetched + scanned
    plan = ranking.plan._replace(allowed=None if allowed is None else allowed + scanned, fetched=fetched)
    # Mostly few fresh items can be among the best, so that little is sorted.
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
# Diversity has so many candidates: enough to differ, few enough to compare pairwise. If a cap leaves fewer
# than k of them, the rest follows in the order of the scores.
POOL, POOL_PER_ITEM = 100, 4
# A cap chooses among so many of the best items: else a cap that can't be met would read the whole catalog.
CAPPED, CAPPED_PER_ITEM = 1_000, 10
# Pages end here, as in a catalog search: else a cursor that a client made up would rank the whole catalog.
PAGED = 10_000
_TOLERANCE = 1e-5


def select(ranked: Ranked, query: Query, view: ItemView, by_towers: bool = True) -> Ranking:
    """Select the first k items that meet the conditions of a query; fewer only if no more exist.

    A cap chooses among the best `CAPPED_PER_ITEM` k items, or `CAPPED` if these are more, and a further page
    among the best `PAGED`.

    The least score of the request is a score of the towers: it counts only if the ranking is `by_towers`.
    Pins have their positions in the answer, and the ranking has the others.
    """
    request, after = query.request, query.after
    first = 1 if after is None else 1 + after.shown
    pins = {position: row for position, row in query.pins.items() if position >= first}
    pinned = np.array([row for position, row in pins.items() if position < first + request.k], dtype=np.int64)
    count = request.k - len(pinned)
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
            # All items after one below the least score are below the least score too.
            is_whole |= len(ranking.scores) > 0 and bool(ranking.scores[-1] < minimum)
        kept = Ranking(ranking.rows[keep], ranking.scores[keep], ranking.plan)
        chosen = _chosen(kept, request, view, count, pinned)
        if len(chosen.rows) == count or is_whole:
            return _with_pins(chosen, query, view, pins, first) if pins else chosen
        # Much has changed since the previous page, or its cursor is made up.
        fetch = PAGED if after else int(min(fetch * POOL_PER_ITEM, most))


def _comes_after(ranking: Ranking, after: Cursor) -> NDArray[np.bool_]:
    """The mask [M] of the items after the last item of the previous page, which may be gone by now."""
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


def _chosen(ranking: Ranking, request: RecommendRequest, view: ItemView, count: int, pinned: Rows) -> Ranking:
    """The first `count` of a ranking, as far as diversity and caps allow; caps count `pinned` too."""
    if request.is_in_order:
        return Ranking(ranking.rows[:count], ranking.scores[:count], ranking.plan)
    rows = np.concatenate([ranking.rows, pinned])
    cap = Cap(len(rows), zip(request.cap.values(), view.coded(request.cap, rows), strict=True))
    for place in range(len(ranking.rows), len(rows)):
        cap.take(place)
    order: list[int] = []
    pool = min(_pool(request.k), len(ranking.rows)) if request.diversity else 0
    if pool:
        directions = view.directions(ranking.rows[:pool])
        scores = ranking.scores[:pool]
        order = marginal_relevance(scores, directions, count, request.diversity, cap).tolist()
    order += islice(cap.take_from(pool), count - len(order))
    return Ranking(ranking.rows[order], ranking.scores[order], ranking.plan)


def _with_pins(others: Ranking, query: Query, view: ItemView, pins: dict[int, int], first: int) -> Ranking:
    """The page from position `first` on: `pins` at their positions, or behind the last of the `others`."""
    page = range(first, first + query.request.k)
    places = [place for place, position in enumerate(page) if position in pins]
    pinned = [row for _, row in sorted(pins.items())]
    total = min(query.request.k, len(others.rows) + len(pinned))
    # Pins that would stand behind a gap follow the others.
    free = [place for place in range(total) if place not in places][: len(others.rows)]
    taken = [place for place in range(total) if place not in free]
    rows, scores = np.empty(total, np.int64), np.empty(total, np.float32)
    rows[free], scores[free] = others.rows, others.scores
    rows[taken] = pinned[: len(taken)]
    scores[taken] = _pin_scores(rows[taken], query, view)
    return Ranking(rows, scores, others.plan)


def _pin_scores(rows: NDArray[np.int64], query: Query, view: ItemView) -> Scores:
    """The scores of pinned items, on the scale of the other items of the answer."""
    boosts = np.zeros(len(rows), np.float32) if query.boosts is None else query.boosts[rows]
    if query.vector is not None:
        return scores_of(view.bundle.manifest.scoring, query, rows, view.vectors(rows)) + boosts
    if query.popular is not None:
        counted = dict(zip(query.popular.rows.tolist(), query.popular.sums.tolist(), strict=True))
        factor = query.popular.at(query.request_time)
        return boosted_counts(np.array([factor * counted.get(row, 0.0) for row in rows.tolist()]), boosts)[1]
    counts = np.append(view.bundle.item_weights, 0)[np.minimum(rows, view.fresh.first_row)]
    return boosted_counts(counts, boosts)[1]


def _pool(k: int) -> int:
    return max(POOL, POOL_PER_ITEM * k)
