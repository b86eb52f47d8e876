"""One search for all users of a block, where the conditions on their items are the same."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.versions.record import Rule
from turret.tower.catalog.masks import RowMask
from turret.tower.counted_kinds import CountedKinds
from turret.tower.index.blocked import BlockedIndex
from turret.tower.index.faiss_calls import one_thread
from turret.tower.retrieval import Ranking, Retriever


class Pairs(NamedTuple):
    """P users and an item of each: places in a block, ascending, and rows of items, both int64 [P]."""

    owners: NDArray[np.int64]
    rows: NDArray[np.int64]


class Encoded(NamedTuple):
    """The users of a block with a known item: their places int64 [K], and their vectors float32 [K, D].

    `out` are the items that the answer of each user of the block leaves out.
    """

    places: NDArray[np.int64]
    vectors: NDArray[np.float32]
    out: Pairs


class Answers(NamedTuple):
    """The items of B users, best first: rows [B, k], -1 beyond the last one, and scores [B, k]."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    are_popular: NDArray[np.bool_]

    @classmethod
    def of(cls, rankings: Sequence[Ranking]) -> "Answers":
        """The answers with the ranking of each user."""
        width = max((len(ranking.rows) for ranking in rankings), default=0)
        answers = cls.none(len(rankings), width)
        for place, ranking in enumerate(rankings):
            answers.put(place, ranking)
        return answers

    @classmethod
    def none(cls, count: int, k: int) -> "Answers":
        """Answers without items."""
        return cls(np.full((count, k), -1), np.zeros((count, k), np.float32), np.zeros(count, np.bool_))

    def put(self, place: int, ranking: Ranking) -> None:
        """Set the answer to a user."""
        self.rows[place, : len(ranking.rows)] = ranking.rows
        self.scores[place, : len(ranking.rows)] = ranking.scores
        self.are_popular[place] = ranking.plan.kind == "popularity"


def are_shared(query: Query, rules: Mapping[str, Rule], view: ItemView) -> bool:
    """Whether all users have the same conditions but for their history, and the score is a product alone.

    `query` is one without a history, resolved with the `rules` that the run has chosen.
    """
    request, manifest = query.request, view.bundle.manifest
    for_some = any(
        rule.share < 1 or rule.from_ is not None or rule.until is not None for rule in rules.values()
    )
    gains = manifest.repeats is not None and not CountedKinds(manifest, request.exclude_seen).leaves_out_all
    is_plain = query.is_plain and request.among == "all" and not request.explain
    is_product = manifest.interests == 1 and not (gains or manifest.scoring.absolute)
    return is_plain and is_product and not (for_some or len(view.fresh))


class SharedSearch:
    """Answers the users of a block by one product with the items that the conditions of all allow."""

    def __init__(self, query: Query, view: ItemView, retriever: Retriever) -> None:
        bundle = view.bundle
        self._k, self._retriever = query.request.k, retriever
        self._temperature = np.float32(bundle.manifest.scoring.temperature)
        self._allowed: RowMask | None = None
        vectors, count = bundle.vectors, len(bundle.vocabulary)
        self._rows = np.arange(count)
        withdrawn = view.fresh.withdrawn
        if query.filtering is not None or query.request.exclude or len(withdrawn):
            mask = np.ones(count, dtype=np.bool_)
            if query.filtering is not None:
                mask &= view.fresh.allowed(query.filtering).mask
            mask[withdrawn] = False
            mask[query.excluded] = False  # the request excludes these, as `query` has no history
            self._allowed, self._rows = RowMask(mask), np.flatnonzero(mask)
            vectors = vectors[self._rows]
        self._places = np.full(count, -1)
        self._places[self._rows] = np.arange(len(self._rows))
        self._index = BlockedIndex(vectors)

    def answers(self, count: int, encoded: Encoded) -> Answers:
        """The answers to a block of `count` users."""
        answers, numbers = Answers.none(count, self._k), np.full(count, -1)
        numbers[encoded.places] = np.arange(len(encoded.places))
        owners, out = numbers[encoded.out.owners], self._places[encoded.out.rows]
        are_ranked = (owners >= 0) & (out >= 0)
        with one_thread():  # other threads rank other blocks
            nearest, products = self._index.nearest_without(
                encoded.vectors, self._k, owners[are_ranked], out[are_ranked]
            )
        answers.rows[encoded.places] = np.where(nearest >= 0, np.append(self._rows, -1)[nearest], -1)
        answers.scores[encoded.places] = products / self._temperature
        bounds = np.searchsorted(encoded.out.owners, np.arange(count + 1))
        for place in np.flatnonzero(numbers < 0).tolist():
            rows = encoded.out.rows[bounds[place] : bounds[place + 1]]
            answers.put(place, self._retriever.popular(self._k, rows, self._allowed))
        return answers
