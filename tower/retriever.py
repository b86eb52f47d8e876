"""The one path from a question to ranked rows: export replays it, tests compare it, the service serves it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tower.absolute_index import scored_index
from tower.encoder import Encoder
from tower.index import ExactIndex
from tower.manifest import Manifest
from tower.times import Times

Rows = NDArray[np.integer[Any]]


class Ranking(NamedTuple):
    """Rows, best first, each once, with their scores; both of the same length."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


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
        vectors = self._bundle.encoder.encode(histories, features, times)
        return [self._nearest(vector, k, out) for vector, out in zip(vectors, excluded, strict=True)]

    def similar(self, row: int, k: int) -> Ranking:
        """Rank the other items by their score with item `row`'s vector in place of a user's.

        Biases are left out: no item is more like another one for being popular.
        """
        vector = self._bundle.vectors[row]
        if self._bundle.manifest.scoring.item_bias:
            vector = np.append(vector[:-1], np.float32(0.0))
        return self._nearest(vector, k, np.array([row]))

    def popular(self, k: int, excluded: Rows) -> Ranking:
        """Rank by training events, most first, then lower rows first; the score is that count."""
        candidates = self._by_popularity[: k + len(excluded)]
        rows = candidates[~np.isin(candidates, excluded)][:k]
        return Ranking(rows, self._bundle.popularity[rows].astype(np.float32))

    def _nearest(self, vector: NDArray[np.float32], k: int, excluded: Rows) -> Ranking:
        excluded = np.unique(excluded)
        rows, products = self._index.search(vector[None], k + len(excluded))
        kept = ~np.isin(rows[0], excluded)
        return Ranking(rows[0, kept][:k], products[0, kept][:k] / np.float32(self._temperature))
