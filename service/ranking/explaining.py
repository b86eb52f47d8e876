"""Explanation of an answer: the search plan, the parts of each score, and its leave-one-out attribution."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.features import QUERY, grams
from turret.service.ranking.item_view import ItemView, Vectors
from turret.service.ranking.query import ResolvedQuery
from turret.tower.retrieval import Ranking
from turret.tower.times import Times

# How many of the newest history items are left out one by one, and how many of them are reported per item.
REMOVED, NAMED = 100, 3
# The most grams that are reported per item.
MATCHED = 50


def explain(view: ItemView, query: ResolvedQuery, ranking: Ranking) -> dict[str, Any]:
    """Describe the plan and, for an answer of the towers, the score of each item.

    `pulled_by` lists the history items whose removal, one at a time, lowers the item's score most, with the
    change (leave-one-out). `matched` lists the words (each as "=word") and letter trigrams that the item's
    texts share with a query.
    """
    explanation: dict[str, Any] = {"plan": ranking.plan._asdict()}
    if query.vector is not None:
        vectors = view.vectors(ranking.rows)
        pulls = _pulls(view, query, query.vector, vectors)
        explanation["items"] = [
            {"id": view.id(row), "score_parts": _parts(view, query, row, vector), "pulled_by": pull}
            for row, vector, pull in zip(ranking.rows.tolist(), vectors, pulls, strict=True)
        ]
        if isinstance(text := query.query.request.features.get(QUERY), str):
            for row, item in zip(ranking.rows.tolist(), explanation["items"], strict=True):
                item["matched"] = _matched(view, text, row)
    return explanation


def _matched(view: ItemView, query: str, row: int) -> list[str]:
    """The parts of a query that the texts of an item have too, words first, then trigrams."""
    encoder, fields = view.bundle.item_encoder, view.fields(row)
    texts = [one for one in (encoder.features if encoder else ()) if one.kind == "text"]
    words = any(one.words for one in texts)
    found = {gram for one in texts for gram in grams(str(fields.get(one.name) or ""), words)}
    matched = dict.fromkeys(gram for gram in grams(query, words) if gram in found)
    return sorted(matched, key=lambda gram: not gram.startswith("="))[:MATCHED]


def _parts(
    view: ItemView, query: ResolvedQuery, row: int, item: NDArray[np.float32]
) -> dict[str, float | bool]:
    """The inner product with the item's vector [D], the temperature, and what applies of the others.

    These are the item's bias, and the gain of an item of the history by a repeat term.
    """
    scoring, user = view.bundle.manifest.scoring, query.vector
    assert user is not None
    parts: dict[str, float | bool] = {
        "inner_product": float(item @ user),
        "temperature": scoring.temperature,
    }
    if scoring.item_bias:
        parts["item_bias"] = float(item[-1] * user[-1])
    if scoring.absolute:
        parts["without_sign"] = True
    if query.bonus is not None and row in query.bonus.rows:
        product = np.abs(item @ user) if scoring.absolute else item @ user
        score = np.array([product / np.float32(scoring.temperature)], dtype=np.float32)
        parts["repeat"] = float(query.bonus.gains(np.array([row]), score)[0])
    return parts


def _pulls(
    view: ItemView, query: ResolvedQuery, vector: NDArray[np.float32], items: Vectors
) -> list[list[dict[str, Any]]]:
    """For each of K items, the history items that raise its score, strongest first."""
    rows = query.rows[-view.bundle.manifest.history_length :]
    removed = range(max(0, len(rows) - REMOVED), len(rows))
    if len(rows) < 2:  # without its only item, a history has no user vector to compare with
        return [[] for _ in items]
    shorter = [np.delete(rows, position) for position in removed]
    times = [_without(query.times, len(rows), position) for position in removed]
    codes = None if query.kinds is None else query.kinds[-len(rows) :]
    kinds = [None if codes is None else np.delete(codes, position) for position in removed]
    users = view.encode(shorter, [query.query.request.features] * len(shorter), times, kinds)
    scoring = view.bundle.manifest.scoring
    before, without = (some @ items.T / np.float32(scoring.temperature) for some in (vector[None], users))
    changes = np.abs(before) - np.abs(without) if scoring.absolute else before - without  # [removed, K]
    pulls = []
    for k in range(len(items)):
        strongest = np.argsort(-changes[:, k], kind="stable")[:NAMED].tolist()
        pulls.append(
            [
                {"id": view.id(int(rows[removed[index]])), "change": float(changes[index, k])}
                for index in strongest
                if changes[index, k] > 0  # the others raise the score
            ]
        )
    return pulls


def _without(times: Times | None, count: int, position: int) -> Times | None:
    return None if times is None else Times(np.delete(times.events[-count:], position), times.asked)
