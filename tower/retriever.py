"""The one path from a question to ranked rows: export replays it, tests compare it, the service serves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tower.absolute_index import scored_index
from tower.encoder import Encoder
from tower.index import ExactIndex
from tower.manifest import Manifest
from tower.times import Times

Rows = NDArray[np.integer[Any]]
Allowed = NDArray[np.bool_] | None


@dataclass(frozen=True)
class Plan:
    """How items were found: by what kind of search, among how many allowed ones (None: all), of how many."""

    kind: Literal["index", "over_fetch", "selector", "subset", "popularity"]
    allowed: int | None
    fetched: int


class Ranking(NamedTuple):
    """Rows, best first, each once, with their scores, both of the same length; and how they were found."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    plan: Plan = Plan("index", None, 0)


class Retrievable(Protocol):
    """What a retriever needs of a bundle."""

    manifest: Manifest
    vectors: NDArray[np.float32]
    popularity: NDArray[np.int64]
    index: ExactIndex
    encoder: Encoder


class Retriever:
    """Answers questions from one bundle."""

    def __init__(self, bundle: Retrievable) -> None:
        self._bundle = bundle
        self._index = scored_index(bundle.index, bundle.manifest.scoring)
        self._temperature = bundle.manifest.scoring.temperature
        self._by_popularity = np.argsort(-bundle.popularity, kind="stable")

    def recommend(
        self,
        histories: Sequence[Rows],
        features: Sequence[Mapping[str, object]],
        k: int,
        excluded: Sequence[Rows],
        times: Sequence[Times | None] | None = None,
    ) -> list[Ranking]:
        """Rank the catalogue for each of B histories of rows (oldest first).

        `features` and `excluded` have one entry a history, and so have `times`, which say when its rows were
        used, or None. An answer is shorter than `k` only if fewer items are left. Score: inner product of the
        user and the item vector / temperature, without its sign where the scoring is absolute. Raises
        EncodingError as the encoder.
        """
        if not histories:
            return []
        vectors = self.encode(histories, features, times)
        return [self.nearest(vector, k, out) for vector, out in zip(vectors, excluded, strict=True)]

    def encode(
        self,
        histories: Sequence[Rows],
        features: Sequence[Mapping[str, object]],
        times: Sequence[Times | None] | None = None,
    ) -> NDArray[np.float32]:
        """The user vectors [B, D] of B histories; see `Encoder.encode`."""
        return self._bundle.encoder.encode(histories, features, times)

    def similar(self, row: int, k: int, excluded: Rows | None = None, allowed: Allowed = None) -> Ranking:
        """Rank the other items by their score with item `row`'s vector in place of a user's.

        Biases are left out: no item is more like another one for being popular.
        """
        vector = self._bundle.vectors[row]
        if self._bundle.manifest.scoring.item_bias:
            vector = np.append(vector[:-1], np.float32(0.0))
        out = np.array([row]) if excluded is None else np.append(excluded, row)
        return self.nearest(vector, k, out, allowed)

    def popular(self, k: int, excluded: Rows, allowed: Allowed = None) -> Ranking:
        """Rank by training events, most first, then lower rows first; the score is that count."""
        ordered = (
            self._by_popularity if allowed is None else self._by_popularity[allowed[self._by_popularity]]
        )
        candidates = ordered[: k + len(excluded)]
        rows = candidates[~np.isin(candidates, excluded)][:k]
        count = None if allowed is None else len(ordered)
        plan = Plan("popularity", count, len(candidates))
        return Ranking(rows, self._bundle.popularity[rows].astype(np.float32), plan)

    def nearest(
        self, vector: NDArray[np.float32], k: int, excluded: Rows, allowed: Allowed = None
    ) -> Ranking:
        """The k allowed rows that are not excluded and score best with a vector [D]."""
        excluded = np.unique(excluded)
        rows, products = self._index.search(vector[None], k + len(excluded), allowed)
        kept = ~np.isin(rows[0], excluded)
        plan = Plan("over_fetch", None, rows.shape[1])
        return Ranking(rows[0, kept][:k], products[0, kept][:k] / np.float32(self._temperature), plan)
