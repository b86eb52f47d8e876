"""Explanation of an answer: the search plan, the parts of each score, and its leave-one-out attribution."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import ResolvedQuery
from turret.service.versions.loaded_model import LoadedModel
from turret.tower.retrieval.retriever import Ranking
from turret.tower.times import Times

# How many of the newest history items are left out one by one, and how many of them are reported per item.
REMOVED, NAMED = 100, 3


def explain(
    model: LoadedModel,
    item_view: ItemView,
    query: ResolvedQuery,
    vector: NDArray[np.float32] | None,
    ranking: Ranking,
) -> dict[str, Any]:
    """Describe the plan and, for an answer of the towers with the user `vector` [D], the score of each item.

    `pulled_by` lists the history items whose removal, one at a time, lowers the item's score most, with the
    change (leave-one-out).
    """
    plan = ranking.plan
    explanation: dict[str, Any] = {
        "plan": {"kind": plan.kind, "allowed": plan.allowed, "fetched": plan.fetched}
    }
    if vector is None:
        return explanation
    vectors = item_view.vectors(ranking.rows)
    parts = _parts(model, vector, vectors)
    pulls = _pulls(model, item_view, query, vector, vectors)
    ids = [item_view.id(row) for row in ranking.rows.tolist()]
    explanation["items"] = [
        {"id": item, "score_parts": part, "pulled_by": pull}
        for item, part, pull in zip(ids, parts, pulls, strict=True)
    ]
    return explanation


def _parts(
    model: LoadedModel, user: NDArray[np.float32], items: NDArray[np.float32]
) -> list[dict[str, float | bool]]:
    """The inner product, temperature and bias, if any, of each of K items [K, D]."""
    scoring = model.bundle.manifest.scoring
    products = items @ user
    parts: list[dict[str, float | bool]] = []
    for position, product in enumerate(products.tolist()):
        part: dict[str, float | bool] = {"inner_product": product, "temperature": scoring.temperature}
        if scoring.item_bias:
            part["item_bias"] = float(items[position, -1] * user[-1])
        if scoring.absolute:
            part["without_sign"] = True
        parts.append(part)
    return parts


def _pulls(
    model: LoadedModel,
    item_view: ItemView,
    query: ResolvedQuery,
    vector: NDArray[np.float32],
    items: NDArray[np.float32],
) -> list[list[dict[str, Any]]]:
    """For each of K items, the history items that raise its score, strongest first."""
    rows = query.rows[-model.bundle.manifest.history_length :]
    removed = range(max(0, len(rows) - REMOVED), len(rows))
    if len(rows) < 2:  # without its only item, a history has no user vector to compare with
        return [[] for _ in items]
    shorter = [np.delete(rows, position) for position in removed]
    times = [_without(query.times, len(rows), position) for position in removed]
    users = item_view.encode(shorter, [query.query.request.features] * len(shorter), times)
    before, without = (_scores(model, vectors, items) for vectors in (vector[None], users))
    changes = before - without  # [removed, K]
    return [_strongest(item_view, rows, removed, changes[:, k]) for k in range(len(items))]


def _without(times: Times | None, count: int, position: int) -> Times | None:
    if times is None:
        return None
    return Times(np.delete(times.events[-count:], position), times.asked)


def _scores(
    model: LoadedModel, users: NDArray[np.float32], items: NDArray[np.float32]
) -> NDArray[np.float32]:
    scoring = model.bundle.manifest.scoring
    scores = users @ items.T / np.float32(scoring.temperature)
    return np.abs(scores) if scoring.absolute else scores


def _strongest(
    item_view: ItemView, rows: NDArray[np.int32], removed: range, changes: NDArray[np.float32]
) -> list[dict[str, Any]]:
    """The items whose removal lowers the score most, without those that raise it."""
    order = np.argsort(-changes, kind="stable")[:NAMED]
    return [
        {"id": item_view.id(int(rows[removed[index]])), "change": float(changes[index])}
        for index in order.tolist()
        if changes[index] > 0
    ]
