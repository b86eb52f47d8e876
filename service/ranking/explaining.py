"""Explanation of an answer: the search plan, the parts of each score, and its leave-one-out attribution."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.features.texts import QUERY, grams
from turret.data.kinds import read_kinds, target_codes
from turret.data.vocabulary import Id
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.ranking.searching import scores_by_towers, scores_of
from turret.tower.repeats import Events
from turret.tower.retrieval import Ranking
from turret.tower.times import Times

# How many of the newest history items are left out one by one, and how many of them are reported per item.
REMOVED, NAMED = 100, 3
# The most grams that are reported per item.
MATCHED = 50
_DAY = 86_400.0


def explain(view: ItemView, query: Query, ranking: Ranking, shorter: Mapping[int, Query]) -> dict[str, Any]:
    """Describe the plan and, for an answer of the towers, the score of each item; else its boosts, if any.

    `shorter` has the queries whose history lacks one item, by its row, with their vectors and bonuses.
    `pulled_by` lists the history items whose removal, one at a time, lowers the item's score most, with the
    change (leave-one-out). `matched` lists the words (each as "=word") and letter trigrams that the item's
    texts share with a query. `uses` says how often and when the history has the item itself, and `boosts`
    which rules, or the request (null), have raised the score. Of several interests of a user, `interest` is
    the one with the item's score, as the items of the history that are closest to it.
    """
    explanation: dict[str, Any] = {"plan": ranking.plan._asdict()}
    if query.vector is not None:
        pulls = _pulls(view, query, ranking, shorter)
        explanation["items"] = [
            {"id": view.id(row), "score_parts": _parts(view, query, row), "pulled_by": pull}
            for row, pull in zip(ranking.rows.tolist(), pulls, strict=True)
        ]
        interests = _interests(view, query)
        for row, item in zip(ranking.rows.tolist(), explanation["items"], strict=True):
            if interests is not None:
                item["interest"] = interests[_interest(view, query.vector, row)]
            if boosts := _boosts(view, query, row):
                item["boosts"] = boosts
            if query.uses is not None and (uses := _uses(view, query.uses, row)):
                item["uses"] = uses
        if isinstance(text := query.request.features.get(QUERY), str):
            matched = _matched(view, text, ranking.rows.tolist())
            for parts, item in zip(matched, explanation["items"], strict=True):
                item["matched"] = parts
    elif query.boosts is not None:
        explanation["items"] = [
            {
                "id": view.id(row),
                "score_parts": {"boosts": float(query.boosts[row])},
                "pulled_by": [],
                "boosts": _boosts(view, query, row),
            }
            for row in ranking.rows.tolist()
        ]
    return explanation


def _matched(view: ItemView, query: str, rows: Sequence[int]) -> Iterator[list[str]]:
    """The parts of a query that the texts of each item have too, words first, then trigrams."""
    encoder = view.bundle.item_encoder
    texts = [feature for feature in (encoder.features if encoder else ()) if feature.kind == "text"]
    words = any(text.words for text in texts)
    parts = sorted(dict.fromkeys(grams(query, words)), key=lambda gram: not gram.startswith("="))
    for row in rows:
        fields = view.fields(row)
        present = {gram for text in texts for gram in grams(str(fields.get(text.name) or ""), words)}
        yield [gram for gram in parts if gram in present][:MATCHED]


def _boosts(view: ItemView, query: Query, row: int) -> list[dict[str, Any]]:
    """The boosts of an item, each with the name of its rule."""
    fresh = view.fresh
    is_raised = [
        fresh.fresh_allowed(boost.condition)[row - fresh.first_row]
        if row >= fresh.first_row
        else fresh.allowed(boost.condition).mask[row]
        for boost in query.named_boosts
    ]
    return [{"rule": boost.rule, "by": boost.by} for boost in compress(query.named_boosts, is_raised)]


def _uses(view: ItemView, uses: Events, row: int) -> dict[str, Any] | None:
    """The number of an item's events, also by kind, the mean days between them and since; None without any.

    The days are those of events of target kinds, where the item has some.
    """
    at = np.flatnonzero(uses.rows == row)
    if not len(at):
        return None
    names, codes = read_kinds(view.bundle.manifest.kinds), np.full(len(at), -1)
    codes = codes if uses.kinds is None else uses.kinds[at]
    counts = {name: int(np.count_nonzero(codes == code)) for code, name in enumerate(names)}
    kinds = {name: count for name, count in counts.items() if count}
    takes = np.isin(codes, target_codes(view.bundle.manifest.kinds))
    at, every, last = at[takes] if takes.any() else at, None, None
    if uses.times is not None and uses.request_times is not None:
        *gaps, since = np.diff([*uses.times[at], uses.request_times[0]]) / _DAY
        every, last = round(float(np.mean(gaps)), 3) if gaps else None, max(0.0, round(float(since), 3))
    return {"times": len(codes), "kinds": kinds, "every_days": every, "last_days_ago": last}


def _parts(view: ItemView, query: Query, row: int) -> dict[str, float | bool]:
    """The inner product with the item's vector [D], the temperature, and the other parts that apply.

    The other parts are the item's bias, the sum of its boosts, and for an item of the history its score by
    the towers and its gain by a repeat term.
    """
    scoring, user, (item,) = view.bundle.manifest.scoring, query.vector, view.vectors(np.array([row]))
    assert user is not None
    vector = user if user.ndim == 1 else user[_interest(view, user, row)]
    parts: dict[str, float | bool] = {
        "inner_product": float(item @ vector),
        "temperature": scoring.temperature,
    }
    if scoring.item_bias:
        parts["item_bias"] = float(item[-1] * vector[-1])
    if scoring.absolute:
        parts["without_sign"] = True
    if query.boosts is not None and query.boosts[row]:
        parts["boosts"] = float(query.boosts[row])
    if query.bonus is not None and row in query.bonus.rows:
        by_towers = scores_by_towers(scoring, user, item[None])
        parts["towers"] = float(by_towers[0])
        parts["repeat"] = float(query.bonus.gains(np.array([row]), by_towers)[0])
    return parts


def _interest(view: ItemView, user: NDArray[np.float32], row: int) -> int:
    """Which of the vectors [I, D] of a user gives an item its score."""
    products = user @ view.vectors(np.array([row]))[0]
    return int(np.argmax(np.abs(products) if view.bundle.manifest.scoring.absolute else products))


def _interests(view: ItemView, query: Query) -> list[list[Id]] | None:
    """For each interest, the items of the history that are closest to it by the cosine, closest first.

    None for a user of one vector.
    """
    if query.vector is None or query.vector.ndim == 1:
        return None
    rows = np.unique(query.rows)
    directions = view.directions(rows)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    cosines = (directions / np.maximum(lengths, np.finfo(np.float32).tiny)) @ (
        query.vector[:, : directions.shape[1]].T
    )
    order = np.argsort(-cosines, axis=0, kind="stable")[:NAMED]
    return [[view.id(row) for row in rows[places].tolist()] for places in order.T]


def without_each(query: Query) -> dict[int, Query]:
    """The query without the events of one item, for each of the newest items of its history, by row.

    Empty for fewer than two items: the rest would be answered by popularity, whose scores are counts.
    """
    newest = dict.fromkeys(reversed(query.rows.tolist()))
    return {row: _without(query, row) for row in islice(newest, REMOVED)} if len(newest) > 1 else {}


def _without(query: Query, row: int) -> Query:
    rows, times, kinds = query.rows, query.times, query.kinds
    stay = rows != row
    return replace(
        query,
        rows=rows[stay],
        times=None if times is None else Times(times.events[stay], times.request),
        kinds=None if kinds is None else kinds[stay],
        vector=None,
        bonus=None,
    )


def _pulls(
    view: ItemView, query: Query, ranking: Ranking, shorter: Mapping[int, Query]
) -> list[list[dict[str, Any]]]:
    """For each of K items, the history items without which its score is lower, strongest first."""
    if not shorter:
        return [[] for _ in ranking.rows]
    score = partial(
        scores_of, view.bundle.manifest.scoring, rows=ranking.rows, vectors=view.vectors(ranking.rows)
    )
    removed = list(shorter)
    changes = score(query) - np.array([score(rest) for rest in shorter.values()])  # [removed, K]
    return [
        [
            {"id": view.id(removed[index]), "change": float(column[index])}
            for index in np.argsort(-column, kind="stable")[:NAMED].tolist()
            if column[index] > 0  # the removal of the others doesn't lower the score
        ]
        for column in changes.T
    ]
