"""Exploration of an answer: some of its places are drawn from candidates that meet all of its conditions."""

from collections.abc import Set

import numpy as np

from turret.service.ranking.exploration import (
    CANDIDATES,
    LARGEST_SPREAD,
    Explored,
    Explorer,
    draw_order,
    propensities,
)
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.ranking.searching import fresh_nearest, nearest
from turret.service.versions.holder import LoadedModel
from turret.service.versions.record import Explore
from turret.tower.retrieval import Ranking


def explore(query: Query, usual: Ranking, model: LoadedModel, view: ItemView) -> Ranking:
    """The ranking that the answer shows, by the exploration of its route; sets `query.explored`.

    Pins and the items before the first place stay; items that lose their places follow behind. Only a first
    page of recommendations by the towers, in the order of the scores, is explored: so caps hold, and the next
    page is that of the usual ranking.
    """
    settings, explorer = query.explore, query.explorer
    if settings is None or explorer is None or query.vector is None:
        return usual
    if query.after is not None or not query.request.is_in_order:
        return usual
    first, last = settings.places
    pinned = {*query.pins.values()}
    free = np.array([place for place, row in enumerate(usual.rows.tolist()) if row not in pinned], np.int64)
    behind = free[free >= first - 1]
    before = {*usual.rows[free[free < first - 1]].tolist()}
    candidates = _candidates(query, settings, before, model, view, explorer)
    places = behind[behind < last][: len(candidates.rows)]
    if not len(places):
        return usual
    weights = np.zeros(len(candidates.rows))
    if settings.method == "plackett_luce":
        weights = candidates.scores.astype(np.float64)
        weights = np.maximum(weights, weights.max() - LARGEST_SPREAD)
    rows, scores, drawn = usual.rows.astype(np.int64), usual.scores.copy(), frozenset[int]()
    if explorer.random.random() < settings.share:
        order = draw_order(weights, explorer.random.gumbel(size=len(weights)))[: len(places)]
        drawn = frozenset(candidates.rows[order].tolist())
        rows[places], scores[places] = candidates.rows[order], candidates.scores[order]
        others = behind[len(places) :]
        moved = behind[~np.isin(usual.rows[behind], candidates.rows[order])][: len(others)]
        rows[others], scores[others] = usual.rows[moved], usual.scores[moved]
        new = [row for row in drawn if row >= view.fresh.first_row]
        explorer.count(view.bundle, [view.id(row) for row in new])
    chances = np.ones(len(rows))
    chances[places] = propensities(weights, candidates.rows, rows[places], usual.rows[places], settings.share)
    query.explored = Explored(usual, drawn, chances)
    return Ranking(rows, scores, usual.plan)


def _candidates(
    query: Query,
    settings: Explore,
    before: Set[int],
    model: LoadedModel,
    view: ItemView,
    explorer: Explorer,
) -> Ranking:
    """The best items that the answer may have behind the rows `before`: any, or new ones."""
    ranked = fresh_nearest if settings.among == "new" else nearest
    ranking = query.pool or ranked(model, view.fresh, query, len(before) + CANDIDATES)
    # Of so few rows, sets are quicker than `isin`.
    keep = np.array([row not in before for row in ranking.rows.tolist()], np.bool_)
    if query.request.min_score is not None:
        keep &= ranking.scores >= np.float32(query.request.min_score)
    for place in np.flatnonzero(ranking.rows >= view.fresh.first_row).tolist():
        item = view.id(int(ranking.rows[place]))
        keep[place] &= explorer.may_show(view.bundle, item, settings.views)
    return Ranking(ranking.rows[keep][:CANDIDATES], ranking.scores[keep][:CANDIDATES], ranking.plan)
