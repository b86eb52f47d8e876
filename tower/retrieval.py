"""The one path from a query to ranked rows, for export, tests and the service; and diversity among them."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.columns import Coded, grouped
from turret.tower.catalog.masks import RowMask
from turret.tower.format.manifest import Manifest
from turret.tower.index.index import Index, ordered
from turret.tower.index.planner import Plan as Plan
from turret.tower.index.planner import Planner
from turret.tower.index.planner import Ranking as Ranking
from turret.tower.index.planner import best_products as best_products
from turret.tower.inference.encoder import Encoder, Kinds
from turret.tower.repeats import Bonus, ItemUse
from turret.tower.times import Times


def marginal_relevance(
    scores: NDArray[np.float32],
    vectors: NDArray[np.float32],
    k: int,
    weight: float,
    cap: "Cap | None" = None,
) -> NDArray[np.int64]:
    """Choose k of P candidates by maximal marginal relevance (Carbonell & Goldstein 1998, section 2).

    Each choice maximises (1 - weight) relevance - weight max_j cos(candidate, chosen_j). Relevance is the
    score between the worst (0) and the best (1) of the candidates, so that temperatures and lengths of
    vectors don't matter; cosines are between -1 and 1. Equal candidates are taken in the given order.

    Args:
        scores: float32 [P], best first.
        vectors: float32 [P, D], the candidates' item vectors without their biases.
        k: the largest number of choices.
        weight: 0 keeps the order of the scores, 1 looks at likeness alone.
        cap: takes each choice, and closes candidates whose values are used up.

    Returns:
        int64 [k or fewer]: places of the candidates in the order of choice.
    """
    spread = float(np.ptp(scores)) if len(scores) else 0.0
    relevance = (scores - scores.min()) / spread if spread else np.ones_like(scores)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    cap = cap or Cap(len(scores), ())
    is_open = cap.is_open[: len(scores)]
    by_score = (1.0 - weight) * relevance
    marginal = by_score + weight  # before the first choice, every cosine counts as -1
    chosen: list[int] = []
    while len(chosen) < k and is_open.any():
        marginal[~is_open] = -np.inf
        best = int(np.argmax(marginal))
        cap.take(best)
        chosen.append(best)
        np.minimum(marginal, by_score - directions @ (weight * directions[best]), out=marginal)
    return np.array(chosen, dtype=np.int64)


MOST_COUNTED = 1e38  # a score that float32 can have, and 1 over it


def boosted_counts(
    counts: NDArray[np.int64] | NDArray[np.float64], boosts: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """The numbers of events [M] times e^boost: their logarithms float64 [M], and float32 [M] up to 1e38.

    A boost adds to the logarithm of an item's probability by the softmax of the scores, so the probability by
    popularity, which is in proportion to the number of events, is multiplied. The logarithms are the order:
    e^1000 is no float.
    """
    with np.errstate(divide="ignore"):  # -inf for no event
        logarithms = np.log(counts.astype(np.float64)) + boosts.astype(np.float64)
    bounded = np.clip(np.exp(np.clip(logarithms, -700.0, 700.0)), 1.0 / MOST_COUNTED, MOST_COUNTED)
    return logarithms, np.where(counts > 0, bounded, 0.0).astype(np.float32)


class Cap:
    """Limits how often each value of some fields is among the items that are taken from a ranking of P.

    `is_open` [P] marks the places that can be taken: a value that is taken as often as it may be closes all
    its places at once, so places that are not taken cost nothing. An item of several values (genres, say)
    counts for each of them. An item without a value is not limited.
    """

    def __init__(self, count: int, fields: Iterable[tuple[int, Coded]]) -> None:
        """Make a cap of `count` places from the limit and the values of each field."""
        self.is_open = np.ones(count, dtype=np.bool_)
        empty = np.empty(0, dtype=np.int64)
        left, places, codes = [empty], [empty], [empty]
        for limit, coded in fields:
            distinct, positions = np.unique(coded.codes, return_inverse=True)
            codes.append(positions + sum(map(len, left)))
            places.append(coded.places)
            left.append(np.full(len(distinct), limit))
        self._left, of_values, of_places = (np.concatenate(each) for each in (left, codes, places))
        self._values, self._starts = grouped(of_values, of_places, count)
        self._places, self._value_starts = grouped(of_places, of_values, len(self._left))

    def take(self, place: int) -> None:
        """Take the item at an open place."""
        self.is_open[place] = False
        values = self._values[self._starts[place] : self._starts[place + 1]]
        self._left[values] -= 1
        for value in values[self._left[values] == 0].tolist():
            self.is_open[self._places[self._value_starts[value] : self._value_starts[value + 1]]] = False

    def take_from(self, start: int) -> Iterator[int]:
        """Take the open places from `start` on, in their order."""
        for place in range(start, len(self.is_open)):
            if self.is_open[place]:
                self.take(place)
                yield place


Rows = NDArray[np.integer[Any]]
Vectors = NDArray[np.float32]
NOTHING = Ranking(np.empty(0, np.int64), np.empty(0, np.float32), Plan("subset"))


class Retrievable(Protocol):
    """The parts of a bundle that a retriever needs."""

    manifest: Manifest
    vectors: NDArray[np.float32]
    popularity: NDArray[np.int64]
    item_weights: NDArray[np.float64] | NDArray[np.int64]
    usual_gaps: NDArray[np.float32]
    index: Index
    encoder: Encoder


class Retriever:
    """Answers queries from one bundle, by its index or another index over its vectors."""

    def __init__(self, bundle: Retrievable, index: Index | None = None) -> None:
        scoring = bundle.manifest.scoring
        self._bundle = bundle
        self.planner = Planner(index or bundle.index, scoring)
        self._temperature = np.float32(scoring.temperature)
        self._by_popularity = np.argsort(-bundle.item_weights, kind="stable")
        self.encode = bundle.encoder.encode

    def recommend(
        self,
        histories: Sequence[Rows],
        features: Sequence[Mapping[str, object]],
        k: int,
        excluded: Sequence[Rows],
        times: Sequence[Times | None] | None = None,
        allowed: RowMask | None = None,
        kinds: Sequence[Kinds | None] | None = None,
    ) -> list[Ranking]:
        """Rank the catalog for each of B histories of rows (oldest first).

        `features` and `excluded` have one entry a history, and so have `times` and `kinds`, which say when
        its rows were used and the codes of their kinds, or None. An answer is shorter than `k` only if fewer
        items are left. Score: inner product of the user and the item vector / temperature, without its sign
        where the scoring is absolute; the best of several interests; plus the gain of items of the history
        by a repeat term. Raises EncodingError as the encoder does.
        """
        if not histories:
            return []
        vectors = self.encode(histories, features, times, kinds=kinds)
        queries = zip(vectors, excluded, self.bonus_of_each(histories, times, kinds), strict=True)
        return [self.nearest(vector, k, out, allowed, bonus) for vector, out, bonus in queries]

    def bonus_of_each(
        self,
        histories: Sequence[Rows],
        times: Sequence[Times | None] | None = None,
        kinds: Sequence[Kinds | None] | None = None,
    ) -> list[Bonus | None]:
        """The gains of the items of each history; None for a bundle without a repeat term."""
        manifest, items = self._bundle.manifest, ItemUse(self._bundle.popularity, self._bundle.usual_gaps)
        term, merging = manifest.repeats, manifest.merging
        if term is None:
            return [None] * len(histories)
        times, kinds = times or [None] * len(histories), kinds or [None] * len(histories)
        each = zip(histories, times, kinds, strict=True)
        return [term.bonus(rows, items, when, codes, merging) for rows, when, codes in each]

    def nearest(
        self,
        vector: Vectors,
        k: int,
        excluded: Rows | None = None,
        allowed: RowMask | None = None,
        bonus: Bonus | None = None,
        only: NDArray[np.int64] | None = None,
        boosts: NDArray[np.float32] | None = None,
    ) -> Ranking:
        """Rank the catalog for one user's vector [D], or several [V, D]; raises as `Planner.nearest`.

        Items with a `bonus` are scored exactly, and merged with the best of the others. The distinct rows
        `only`, if given, are ranked alone, all by their exact scores. With `boosts` [N or more], which are
        added to the scores, every item is scored: an index can't tell which items a boost lifts.
        """
        if only is None and boosts is not None:
            only = np.arange(len(self.planner)) if allowed is None else allowed.rows
        if only is not None:
            nothing = NOTHING._replace(plan=Plan("subset", None if allowed is None else allowed.count))
            return self._scored(nothing, vector, k, excluded, allowed, bonus, only, boosts)
        if bonus is None:
            ranking = self.planner.nearest(vector, k, excluded, allowed)
            return Ranking(ranking.rows, ranking.scores / self._temperature, ranking.plan)
        out = bonus.rows if excluded is None else np.concatenate([excluded, bonus.rows])
        ranking = self.planner.nearest(vector, k, out, allowed)
        return self._scored(ranking, vector, k, excluded, allowed, bonus)

    def nearest_of_each(
        self,
        vectors: Vectors,
        ks: Sequence[int],
        excluded: Sequence[Rows],
        bonuses: Sequence[Bonus | None] | None = None,
    ) -> list[Ranking]:
        """`nearest` for each of B users by `vectors` [B, D] or [B, V, D], in fewer calls of the index."""
        bonuses = bonuses or [None] * len(ks)
        outs = [
            rows if bonus is None else np.concatenate([rows, bonus.rows])
            for rows, bonus in zip(excluded, bonuses, strict=True)
        ]
        rankings = self.planner.nearest_of_each(vectors, ks, outs)
        queries = zip(rankings, vectors, ks, excluded, bonuses, strict=True)
        return [
            self._scored(ranking, vector, k, out, None, bonus) for ranking, vector, k, out, bonus in queries
        ]

    def _scored(
        self,
        ranking: Ranking,
        vector: Vectors,
        k: int,
        excluded: Rows | None,
        allowed: RowMask | None,
        bonus: Bonus | None,
        only: NDArray[np.int64] | None = None,
        boosts: NDArray[np.float32] | None = None,
    ) -> Ranking:
        """`ranking` merged with the rows `only`, or with the rows of a bonus, as far as they are allowed."""
        others = ranking._replace(scores=ranking.scores / self._temperature)
        added = bonus.rows if only is None and bonus is not None else only
        if added is None or not len(added):
            return others
        keep = added < len(self.planner)
        if excluded is not None and len(excluded):
            keep &= ~np.isin(added, excluded)
        if allowed is not None:
            keep[keep] = allowed.mask[added[keep]]
        added = added[keep]
        scores = self.planner.products(vector, added) / self._temperature
        if bonus is not None:
            scores += bonus.gains(added, scores)
        if boosts is not None:
            scores += boosts[added]
        rows, both = np.concatenate([others.rows, added]), np.concatenate([others.scores, scores])
        plan = others.plan._replace(fetched=others.plan.fetched + len(added))
        return Ranking(*ordered(rows, both, k), plan)

    def similar(self, row: int, k: int) -> Ranking:
        """Rank the other items by their score with item `row`'s vector in place of a user's.

        Biases are left out: popularity is no similarity.
        """
        vector = self._bundle.vectors[row]
        if self._bundle.manifest.scoring.item_bias:
            vector = np.append(vector[:-1], np.float32(0.0))
        return self.nearest(vector, k, np.array([row]))

    def popularity_rank(self, row: int) -> int:
        """The rank of an item by the weights of its events, from 1; items of equal weights share a rank."""
        weights = self._bundle.item_weights
        return 1 + bisect_left(self._by_popularity, -weights[row], key=lambda other: -weights[other])

    def popular(
        self,
        k: int,
        excluded: Rows | None = None,
        allowed: RowMask | None = None,
        boosts: NDArray[np.float32] | None = None,
    ) -> Ranking:
        """Rank by the weights of training events, most first, then lower rows first; they are the score.

        A weight is 1, unless events weigh less with their age.
        With `boosts`, the score is that of `boosted_counts`.
        """
        out = np.empty(0, dtype=np.int64) if excluded is None else excluded
        if boosts is not None:
            rows = np.arange(len(self.planner)) if allowed is None else allowed.rows
            rows = rows[~np.isin(rows, out)]
            plan = Plan("popularity", None if allowed is None else allowed.count, len(rows))
            logarithms, scores = boosted_counts(self._bundle.item_weights[rows], boosts[rows])
            order = np.lexsort((rows, -logarithms))[:k]
            return Ranking(rows[order], scores[order], plan)
        looked = k + len(out)
        while True:
            candidates = self._by_popularity[:looked]
            rows = candidates[~np.isin(candidates, out)]
            if allowed is not None:
                rows = rows[allowed.mask[rows]]
            if len(rows) >= k or looked >= len(self._by_popularity):
                break
            looked *= 8
        rows = rows[:k]
        plan = Plan(
            "popularity", None if allowed is None else allowed.count, min(looked, len(self._by_popularity))
        )
        return Ranking(rows, self._bundle.item_weights[rows].astype(np.float32), plan)
