"""Recall of an index against exact search, measured through the planner that serves it, and its tuning."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.errors import BundleError
from turret.tower.format.manifest import MeasuredRecall
from turret.tower.index.planner import Planner

# A request for 10 that excludes seen items fetches 18 to 30.
USUAL = 32
KS, TUNED_KS = (10, 100, 1000), (10, USUAL, 100, 1000)
MARGINS = (0.2, 0.5, 0.8)
"""Margins of `with_margin`: the next is tried where efforts by one margin miss the recall on more queries."""
_LEAST_TIMED, _SECONDS = 10, 0.5
SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
# Two float32 sums of the same products differ by less; a neighbour that is truly further away, by more.
_ROUNDING = 1e-5
_BLOCK_SCORES = 2**24
# An exact index finds everything; a few queries confirm it.
EXACT_QUERIES = 64
# 1,000 user vectors estimate a recall of .99 to within .002; of a large catalog fewer are used, as each costs
# more.
_MOST_QUERIES, _LEAST_QUERIES, _QUERY_ITEMS = 1000, 100, 2 * 10**8

Vectors = NDArray[np.float32]


class Truth(NamedTuple):
    """Ground truth of searches for `queries` [Q, D] among the `allowed` rows of `vectors` [N, D].

    `enough` [Q, K] is the k-th best score of each query, for each of `ks`; `absolute` scores have no sign.
    """

    allowed: RowMask | None
    selectivity: float
    ks: tuple[int, ...]
    enough: Vectors
    vectors: Vectors
    queries: Vectors
    absolute: bool

    def recall(self, find: Callable[[Vectors], NDArray[np.int64]], k: int, most: int | None = None) -> float:
        """The mean share of the best k that `find` finds, over at most the first `most` queries."""
        shares = []
        for query, least in zip(self.queries[:most], self.enough[:, self.ks.index(k)], strict=False):
            scores = self.vectors[find(query)] @ query
            hits = int(np.count_nonzero((np.abs(scores) if self.absolute else scores) >= least))
            shares.append(min(hits, k) / k)
        return float(np.mean(shares))

    def planned(self, planner: Planner, k: int, most: int | None = None) -> float:
        """The recall of a planner's answers."""
        return self.recall(lambda query: planner.nearest(query, k, None, self.allowed).rows, k, most)


def split_queries(queries: Vectors, count: int) -> tuple[Vectors, Vectors]:
    """Split user vectors [Q, D] into those that measure a catalog of `count` items, and the others."""
    most = min(len(queries), _MOST_QUERIES, max(_LEAST_QUERIES, _QUERY_ITEMS // count))
    is_measured = np.zeros(len(queries), dtype=np.bool_)
    is_measured[np.linspace(0, len(queries) - 1, most).astype(np.int64)] = True
    return np.ascontiguousarray(queries[is_measured]), np.ascontiguousarray(queries[~is_measured])


def measure_recall(
    planner: Planner,
    queries: Vectors,
    selectivities: Sequence[float] = SELECTIVITIES,
    masks: Callable[[float], RowMask] | None = None,
) -> tuple[MeasuredRecall, ...]:
    """Compare the planner's answers with brute force for each of `KS` and queries [Q, D] over its vectors.

    For each selectivity the rows of its mask of `masks` are allowed, or else that share of the rows, drawn
    with a fixed seed. A k beyond the number of allowed rows is left out. Recall: share of the found items
    whose true score reaches the k-th best true score.
    """
    return tuple(
        MeasuredRecall(k=k, selectivity=truth.selectivity, recall=truth.planned(planner, k))
        for truth in truths(planner, queries, KS, selectivities, masks)
        for k in truth.ks
    )


def truths(
    planner: Planner,
    queries: Vectors,
    ks: Sequence[int],
    selectivities: Sequence[float],
    masks: Callable[[float], RowMask] | None = None,
) -> Iterator[Truth]:
    """Brute force over the vectors of a planner for each selectivity, a block of queries at a time."""
    vectors, absolute = planner.exact.vectors(), planner.absolute
    masks = masks or _draws(len(vectors))
    for selectivity in selectivities:
        mask = masks(selectivity)
        within = tuple(k for k in ks if k <= mask.count)
        allowed = mask if selectivity < 1.0 else None
        if within:
            some = vectors if allowed is None else vectors[allowed.rows]
            enough = _enough(some, queries, within, absolute)
            yield Truth(allowed, selectivity, within, enough, vectors, queries, absolute)


def _draws(count: int) -> Callable[[float], RowMask]:
    generator = np.random.default_rng(0)

    def draw(selectivity: float) -> RowMask:
        rows = generator.permutation(count)[: round(selectivity * count)]
        return RowMask(np.isin(np.arange(count), rows))

    return draw


def _enough(vectors: Vectors, queries: Vectors, ks: Sequence[int], absolute: bool) -> Vectors:
    enough = np.empty((len(queries), len(ks)), dtype=np.float32)
    block = max(1, _BLOCK_SCORES // len(vectors))
    positions = [len(vectors) - k for k in ks]
    for start in range(0, len(queries), block):
        scores = queries[start : start + block] @ vectors.T
        scores = np.abs(scores) if absolute else scores
        slack = _ROUNDING * np.abs(scores).max(axis=1, keepdims=True)
        scores.partition(sorted(set(positions)), axis=1)
        enough[start : start + block] = scores[:, positions] - slack
    return enough


def check_recall(measured: Sequence[MeasuredRecall], wanted: float, kind: str) -> None:
    """Raise BundleError naming the cell of the table that is furthest below the requested recall."""
    below = [cell for cell in measured if cell.recall < wanted]
    if below:
        worst = min(below, key=lambda cell: cell.recall)
        raise BundleError(
            f"the {kind} index finds {worst.recall:.4f} of the true best {worst.k} where "
            f"{worst.selectivity:g} of the items are allowed, and {wanted:g} was requested; nothing was "
            "published. Lower --recall, or use --kind auto (or flat, which misses nothing)",
            "recall",
        )


def check_requested(recall: float) -> None:
    """Raise BundleError unless a recall can be requested."""
    if not 0 < recall <= 1:
        raise BundleError(f"--recall {recall:g}: a recall is above 0 and at most 1, such as 0.99")


def with_margin(least_recall: float, margin: float) -> float:
    """The recall to reach on the tuning set: with other user vectors recall is slightly lower."""
    return least_recall + margin * (1 - least_recall)


def median_seconds(search: Callable[[Vectors], object], queries: Vectors, most: int = 100) -> float:
    """The median time of single searches, one after the other on this thread."""
    search(queries[0])
    taken: list[float] = []
    for query in queries[:most]:
        start = time.perf_counter()
        search(query)
        taken.append(time.perf_counter() - start)
        # An exact search of a million items takes as long as some hundreds of other searches.
        if len(taken) >= _LEAST_TIMED and sum(taken) > _SECONDS:
            break
    return float(np.median(taken))


def smallest(reaches: Callable[[int], bool], ascending: Sequence[int]) -> int | None:
    """The smallest value that `reaches`, by bisection, as larger values do, too; None if the last doesn't."""
    place = bisect_left(ascending, True, key=reaches)
    return ascending[place] if place < len(ascending) else None
