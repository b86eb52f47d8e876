"""The plan of one query: by the index, by fetching more and dropping some, or exactly on a subset."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.config import ScoringConfig
from turret.tower.errors import EngineError
from turret.tower.index.faiss_calls import Found
from turret.tower.index.index import Index, ordered

Rows = NDArray[np.integer[Any]]
# Where rows are excluded, `_SPARE` more than k are fetched at first, and one more for each `_SPARE_SHARE` of
# them. In a bundle (19 to 60 recorded items, catalogs of 600 to 100,000), 1 to 3 items of a history are among
# the best 10, in nine of ten histories at most 6; fetching all 50 more costs an inverted file three times as
# much.
_SPARE, _SPARE_SHARE = 8, 16
# One in so many of these rows is searched for with the effort of the best k. With all of them, a search of
# 100,000 items takes a tenth longer, and finds .996 of the best 10 that are left instead of .993, where .99
# was requested.
_SURE_SHARE = 3
Kind = Literal["index", "over_fetch", "selector", "subset", "fallback", "popularity"]


class Plan(NamedTuple):
    """The way in which an answer was found.

    `kind`: `index` (nothing is left out), `over_fetch` (more were fetched, and excluded rows dropped),
    `selector` (the index searched among allowed rows only), `subset` (the allowed rows were all scored
    exactly), `fallback` (the same, as the engine of the index is unavailable) or `popularity` (no search).
    `allowed`: the number of rows that the filter allows, None without a filter. `fetched`: the number of
    rows that were ranked.
    """

    kind: Kind = "index"
    allowed: int | None = None
    fetched: int = 0


class Ranking(NamedTuple):
    """Distinct rows [k'], best first, with their scores (a planner's are inner products) and their plan."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    plan: Plan = Plan()


class _Query(NamedTuple):
    """A query before its search in `chosen`: `fetch` rows are searched for first, with the effort for `sure`.

    `most` rows suffice if the excluded ones, `out`, come first.
    """

    chosen: Index
    vector: NDArray[np.float32]
    k: int
    sure: int
    fetch: int
    most: int
    out: set[int]
    allowed: RowMask | None
    kind: Kind


def best_products(
    vectors: NDArray[np.float32], user: NDArray[np.float32], absolute: bool
) -> NDArray[np.float32]:
    """The inner products [K] of item vectors [K, D] with a user's [D], or the largest of several [V, D]."""
    products = vectors @ user.T
    products = np.abs(products) if absolute else products
    return products if user.ndim == 1 else products.max(axis=1)


class Planner:
    """Chooses plans by the measured selectivity, so that k rows come back whenever k are left.

    With `scoring.absolute` it ranks by the absolute value of the inner products.
    """

    def __init__(self, index: Index, scoring: ScoringConfig) -> None:
        self._count = len(index)
        self._index, self.exact = index, index.exact
        # Up to so many allowed rows exact search is at least as good, as measured with the index.
        self._subset_rows: int = getattr(index.settings, "subset_rows", self._count)
        self.absolute = scoring.absolute

    def __len__(self) -> int:
        return self._count

    def nearest(
        self,
        vector: NDArray[np.float32],
        k: int,
        excluded: Rows | None = None,
        allowed: RowMask | None = None,
    ) -> Ranking:
        """Find the `k` best of the rows that `allowed` allows (None: all), without those of `excluded`.

        `vector` is float32 [D], or [V, D] for a user of several interests: a row counts by its largest inner
        product. `excluded` may repeat rows, or hold rows that don't exist. Fewer than k rows come only if
        fewer are left. Where the engine of the index fails, the exact search answers. Raises ValueError for a
        k below 1 and a vector that isn't finite.
        """
        return self._planned(self._query(vector, k, excluded, allowed))

    def products(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The exact inner products of a user's vector [D], or the largest of several [V, D], with `rows`."""
        vector = np.ascontiguousarray(np.atleast_2d(vector), dtype=np.float32)
        products = np.stack([self.exact.scores(each, rows) for each in vector])
        best: NDArray[np.float32] = (np.abs(products) if self.absolute else products).max(axis=0)
        return best

    def nearest_of_each(
        self, vectors: NDArray[np.float32], ks: Sequence[int], excluded: Sequence[Rows | None]
    ) -> list[Ranking]:
        """`nearest` for each of B users by `vectors` [B, D], or [B, V, D] of several each: the same answers.

        Queries that fetch equally many rows are searched for in one call: among 27,000 items, eight queries
        take 70 % of the time that they take one by one.
        """
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        queries = [self._query(*each, None) for each in zip(vectors, ks, excluded, strict=True)]
        if self.absolute or self._index.settings.is_remote:
            return [self._planned(query) for query in queries]
        together: dict[tuple[int, int], list[int]] = {}
        step, several = self._index.fetch_step, vectors.shape[1] if vectors.ndim == 3 else 1
        for position, query in enumerate(queries):
            sure, fetch = (-(-rows // step) * step for rows in (query.sure, query.fetch))
            together.setdefault((sure, fetch), []).append(position)
        planned: dict[int, Ranking] = {}
        for (sure, fetch), positions in together.items():
            searched = vectors[positions].reshape(-1, vectors.shape[-1])
            answers = self._index.nearest_of_each(searched, sure, fetch - sure)
            for number, position in enumerate(positions):
                wanted, first = queries[position].fetch, number * several
                rows, products = self._merged(answers[first : first + several], wanted)
                planned[position] = self._planned(queries[position], (rows[:wanted], products[:wanted]))
        return [planned[position] for position in range(len(queries))]

    def _planned(self, query: _Query, answer: Found | None = None) -> Ranking:
        """Search until k rows are left; `answer` is the result of the first search, if it was made."""
        index, sure, fetch, kind, allowed = query.chosen, query.sure, query.fetch, query.kind, query.allowed
        while True:
            try:
                if answer is not None:
                    rows, products = answer
                elif query.vector.ndim == 1:
                    rows, products = index.nearest(query.vector, sure, allowed, fetch - sure)
                else:
                    rows, products = self._of_several(index, query.vector, sure, allowed, fetch - sure)
            except EngineError:
                index, kind = self.exact, "fallback"
                continue
            if query.out:
                left = [place for place, row in enumerate(rows.tolist()) if row not in query.out]
                places = np.array(left[: query.k], dtype=np.int64)
                rows, products = rows[places], products[places]
            if len(rows) >= query.k or fetch >= query.most:
                return Ranking(rows, products, Plan(kind, None if allowed is None else allowed.count, fetch))
            sure = fetch = min(query.most, 4 * fetch)
            answer = None

    def _of_several(
        self, index: Index, vectors: NDArray[np.float32], k: int, allowed: RowMask | None, spare: int
    ) -> Found:
        """The best rows of several vectors [V, D], each once, by the largest of its products."""
        return self._merged([index.nearest(vector, k, allowed, spare) for vector in vectors], k + spare)

    def _merged(self, answers: Sequence[Found], count: int) -> Found:
        """The best `count` rows of the answers to several vectors, each once, by the largest of its products.

        A row among the best n by its largest product is among the best n of the vector that it has it with.
        So answers of n rows hold them all, ties included, as far as each search is exact.
        """
        if len(answers) == 1:
            return answers[0]
        rows, products = map(np.concatenate, zip(*answers, strict=True))
        rows, products = ordered(rows, np.abs(products) if self.absolute else products, len(rows))
        first = np.sort(np.unique(rows, return_index=True)[1])[:count]
        return rows[first], products[first]

    def _query(
        self, vector: NDArray[np.float32], k: int, excluded: Rows | None, allowed: RowMask | None
    ) -> _Query:
        """Choose the index to search, and how many rows to fetch: few of many excluded rows come first."""
        vector = np.ascontiguousarray(vector, dtype=np.float32)
        if not np.isfinite(vector).all():
            raise ValueError(f"a search needs a finite vector, not {vector!r}")
        if k < 1:
            raise ValueError(f"a search needs k >= 1, not {k}")
        if self.absolute:
            # A row among the best k by |<h, w>| is also among the best k by <h, w> or by <-h, w>, so two
            # searches of k find them all, ties included (Blanc & Rendle 2018, eq. 11).
            vector = np.vstack([vector, -vector])
        out = set() if excluded is None or not len(excluded) else set(excluded.tolist())
        index, count = self._index, self._count
        kind: Kind = "over_fetch" if out else "index"
        if allowed is not None:
            if len(allowed.mask) != count:
                raise ValueError(f"the filter has {len(allowed.mask)} rows where the index has {count}")
            kind, count = "selector", allowed.count
            if count <= self._subset_rows:
                kind, index = "subset", self.exact
        most = min(k + len(out), count)
        fetch = min(most, k + _SPARE + len(out) // _SPARE_SHARE)
        return _Query(index, vector, k, k + (fetch - k) // _SURE_SHARE, fetch, most, out, allowed, kind)
