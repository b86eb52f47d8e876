"""Exploration of an answer: some of its places are drawn from candidates that meet all of its conditions."""

from collections.abc import Sequence

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

    Items at other places stay, and so do pins: the draw changes no place that it does not draw, whose
    propensity is 1. Only a first page of recommendations by the towers, in the order of the scores, is
    explored: so caps hold, and the next page is that of the usual ranking.
    """
    settings, explorer = query.explore, query.explorer
    if settings is None or explorer is None or query.vector is None:
        return usual
    if query.after is not None or not query.request.is_in_order:
        return usual
    first, last = settings.places
    pinned = {*query.pins.values()}
    shown = usual.rows.tolist()
    places = [place for place in range(first - 1, min(last, len(shown))) if shown[place] not in pinned]
    ranking = _allowed(query, settings, model, view, explorer)
    candidates = _candidates(ranking, shown, places)
    while len(candidates.rows) < len(places):  # the items of the last places stay, and are no candidates
        places = places[: len(candidates.rows)]
        candidates = _candidates(ranking, shown, places)
    if not places:
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
        new = [row for row in drawn if row >= view.fresh.first_row]
        explorer.count(view.bundle, [view.id(row) for row in new])
    chances = np.ones(len(rows))
    chances[places] = propensities(weights, candidates.rows, rows[places], usual.rows[places], settings.share)
    query.explored = Explored(usual, drawn, chances)
    return Ranking(rows, scores, usual.plan)


def _candidates(ranking: Ranking, shown: Sequence[int], places: Sequence[int]) -> Ranking:
    """The best items that no other place of the answer shows."""
    # Sets of so few rows are quicker than `isin`.
    others = {*shown} - {shown[place] for place in places}
    keep = np.array([row not in others for row in ranking.rows.tolist()], np.bool_)
    return Ranking(ranking.rows[keep][:CANDIDATES], ranking.scores[keep][:CANDIDATES], ranking.plan)


def _allowed(
    query: Query, settings: Explore, model: LoadedModel, view: ItemView, explorer: Explorer
) -> Ranking:
    """The best items that the answer may have: any, or new ones; as many as it shows, and the candidates."""
    ranked = fresh_nearest if settings.among == "new" else nearest
    ranking = query.pool or ranked(model, view.fresh, query, query.request.k + CANDIDATES)
    keep = np.ones(len(ranking.rows), np.bool_)
    if query.request.min_score is not None:
        keep &= ranking.scores >= np.float32(query.request.min_score)
    for place in np.flatnonzero(ranking.rows >= view.fresh.first_row).tolist():
        item = view.id(int(ranking.rows[place]))
        keep[place] &= explorer.may_show(view.bundle, item, settings.views)
    return Ranking(ranking.rows[keep], ranking.scores[keep], ranking.plan)
