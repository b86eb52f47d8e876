"""The answers of a version to logged requests, beside the logged answers."""

import json
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import EmptyDataError
from turret.data.progress import progress
from turret.outcomes.attribution import attribute, distinct
from turret.outcomes.value import Logged
from turret.scoring.conditions import request_of
from turret.scoring.scorer import QueryBlock, Scorer
from turret.scoring.users import in_blocks
from turret.service.overlay.fresh import empty_overlay
from turret.service.ranking.query import NO_HISTORY, Query, make_query
from turret.service.settings import read_settings
from turret.service.stores.contract import History
from turret.tower.bundle.bundle import Bundle
from turret.tower.format.manifest import ModelCard

BLOCK = 4_096
_MOST_PLACES = 100
Floats = NDArray[np.float64]


def replay(
    bundle: Bundle,
    answers: pl.LazyFrame,
    events: pl.DataFrame,
    counted: pl.DataFrame,
    within: int,
    values: Mapping[str, float] | None = None,
) -> Logged:
    """Rank for the request of each logged recommendation to a user as the version would have.

    The history of a user are the `events` before the time of the answer, and the features are those of the
    answer's context that the version reads; stored rules are left out. Of the `counted` events, the outcomes
    are the rewards, worth the `values` of their items, or 1. Raises EmptyDataError where the log has no such
    answers, or none to a user of the events.
    """
    answers = distinct(answers).filter(pl.col("call") == "recommend", pl.col("visitor") != "")
    asked = answers.filter(pl.col("items").list.len() > 0).sort("time", "answer_id").collect()
    if not asked.height:
        raise EmptyDataError("the log has no recommendations to users of this time; name another time")
    if not events["visitor"].is_in(asked["visitor"].unique().to_list()).any():
        raise EmptyDataError(
            "the store has no event of a user whom the log has answers to; name the key that the service "
            "hashes users with by --key, and its store by --store"
        )
    places = min(asked.select(pl.col("places").list.max().max()).item() or 1, _MOST_PLACES)
    items, propensities = _logged_items(asked, places)
    version, scores, own = _ranked(bundle, asked, items, events)
    is_shown = items != ""
    worth = np.vectorize(lambda item: 1.0 if values is None else values.get(item, 0.0), otypes=[np.float64])
    outcomes = attribute(asked, counted, within)
    return Logged(
        users=asked["visitor"].rank("dense").to_numpy().astype(np.int64) - 1,
        is_shown=is_shown,
        propensities=propensities,
        rewards=_rewards(asked, outcomes, places) * worth(items),
        is_same=is_shown & (items == version),
        scores=scores,
        of_version=own,
        values=worth(items),
        values_of_version=worth(version),
    )


def _logged_items(asked: pl.DataFrame, places: int) -> tuple[NDArray[Any], Floats]:
    """The items [A, K] at each place, "" for none, and their propensities [A, K], 1 for none."""
    items = np.full((asked.height, places), "", dtype=object)
    propensities = np.ones((asked.height, places))
    rows = asked.with_row_index("row").select("row", "places", "items", "propensities")
    shown = rows.explode("places", "items", "propensities").filter(pl.col("places") <= places)
    at = shown["row"].to_numpy(), shown["places"].to_numpy().astype(np.int64) - 1
    items[at], propensities[at] = shown["items"].to_numpy(), shown["propensities"].to_numpy()
    return items, propensities


def _rewards(asked: pl.DataFrame, outcomes: pl.DataFrame, places: int) -> Floats:
    """The number of outcomes at each place [A, K]."""
    rewards = np.zeros((asked.height, places))
    rows = outcomes.join(asked.select("answer_id").with_row_index("row"), on="answer_id")
    rows = rows.filter(pl.col("place") <= places)
    np.add.at(rewards, (rows["row"].to_numpy(), rows["place"].to_numpy().astype(np.int64) - 1), 1.0)
    return rewards


def _ranked(
    bundle: Bundle, asked: pl.DataFrame, items: NDArray[Any], events: pl.DataFrame
) -> tuple[NDArray[Any], Floats, Floats]:
    """The version's items [A, K], its scores of the logged items, and its scores of its own items."""
    places, features = items.shape[1], [feature.name for feature in bundle.user_features]
    scorer, histories = Scorer(bundle, empty_overlay(bundle)), _Histories(events, places, bundle.manifest)
    version = np.full(items.shape, "", dtype=object)
    scores, own = np.full(items.shape, np.nan), np.full(items.shape, np.nan)
    names = scorer.items.cast(pl.String).to_numpy()
    rows_of = {name: row for row, name in enumerate(names[: len(bundle.vocabulary)].tolist())}
    columns = asked.select("visitor", pl.col("time").dt.epoch("ms"), "context").iter_rows()
    first = 0
    with progress("Ranking", asked.height) as advance:
        for rows in in_blocks(columns, BLOCK):
            queries = [histories.query(visitor, time, text, features) for visitor, time, text in rows]
            ranked = scorer.answers(QueryBlock([visitor for visitor, *_ in rows], queries)).rows
            chosen = slice(first, first + len(rows))
            best = np.full((len(rows), places), -1)
            best[:, : ranked.shape[1]] = ranked
            version[chosen] = np.where(best >= 0, names[best], "")
            logged = np.array([[rows_of.get(item, -1) for item in line] for line in items[chosen]])
            scores[chosen], own[chosen] = (_products(bundle, queries, each) for each in (logged, best))
            first += len(rows)
            advance(len(rows))
    return version, scores, own


def _products(bundle: Bundle, queries: list[Query], rows: NDArray[np.int64]) -> Floats:
    """The inner products of users and items [B, K], which a calibration scales.

    They are NaN for row -1, and for a user without a vector.
    """
    vectors = np.asarray(bundle.vectors)
    nobody = np.full(vectors.shape[1], np.nan, dtype=np.float32)
    users = np.array([nobody if query.vector is None else query.vector for query in queries])
    products = np.einsum("bkd,bd->bk", vectors[rows], users).astype(np.float64)
    return np.where(rows >= 0, products, np.nan)


class _Histories:
    """The events of each visitor, oldest first."""

    def __init__(self, events: pl.DataFrame, places: int, manifest: ModelCard) -> None:
        # Any user has a stored history; the name itself changes no answer.
        self._fields, self._manifest = {"user_id": "user", "k": places}, manifest
        self._request = request_of(self._fields)
        ordered = events.sort("time", maintain_order=True)
        lists = ordered.group_by("visitor").agg("item", pl.col("time").dt.epoch("ms"), "kind")
        self._of = {visitor: columns for visitor, *columns in lists.iter_rows()}
        self._limit = read_settings().stored_history_limit

    def query(self, visitor: str, time: int, context: str, features: list[str]) -> Query:
        """The query of a user before `time`, in milliseconds since 1970."""
        history = NO_HISTORY
        if (columns := self._of.get(visitor)) is not None:
            items, times, kinds = columns
            end = bisect_left(times, time)
            chosen = slice(max(end - self._limit, 0), end)
            known = kinds[chosen] if any(kinds[chosen]) else ()
            history = History(items[chosen], times[chosen], known)
        fields = json.loads(context) if features and context else {}
        given = {name: fields[name] for name in features if name in fields}
        request = self._request
        if given:
            request = request_of({**self._fields, **self._manifest.fields_of(given)})
        return make_query(request, history, (), time)
