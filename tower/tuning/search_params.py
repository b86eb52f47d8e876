"""The cheapest search parameters of an index that reach a recall, tuned on real user vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.config import ScoringConfig
from turret.tower.format.index_settings import ApproximateSettings, HnswSettings, SearchParams
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.index import ExactIndex
from turret.tower.index.planner import Planner
from turret.tower.tuning.recall import (
    MARGINS,
    TUNED_KS,
    USUAL,
    Truth,
    median_seconds,
    smallest,
    truths,
    with_margin,
)

_TUNED_ON = 300
_SMALL_K = 10
# The largest share is first: subsets begin at the first share at which the selector fails.
_SHARES = (0.95, 0.8, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
# The values of candidates / k to try.
_FACTORS = {"ivf": (1.2, 2), "ivf_pq": (1.5, 2, 2.5, 3, 4, 6, 10), "hnsw": (1,)}


@dataclass
class Task:
    """The goal of a tuning: `least_recall` on user vectors `queries` [Q, D] over `vectors` [N, D].

    `learnt`: user vectors that an index may learn from, disjoint from `queries`.
    `is_named`: the kind was requested by name, and is wanted even where exact search is faster. `margin`: see
    `with_margin`.
    """

    vectors: NDArray[np.float32]
    queries: NDArray[np.float32]
    scoring: ScoringConfig
    least_recall: float
    learnt: NDArray[np.float32] | None = None
    is_named: bool = False
    margin: float = MARGINS[0]

    @property
    def target(self) -> float:
        """The recall on the tuning set, with a margin for other queries."""
        return with_margin(self.least_recall, self.margin)

    @cached_property
    def few(self) -> NDArray[np.float32]:
        """The tuning set: some of the queries, spread over all."""
        positions = np.linspace(0, len(self.queries) - 1, min(_TUNED_ON, len(self.queries)))
        return np.ascontiguousarray(self.queries[positions.astype(np.int64)], dtype=np.float32)

    @cached_property
    def exact(self) -> Planner:
        """The exact search."""
        return Planner(ExactIndex(self.vectors), self.scoring)

    @cached_property
    def truth(self) -> Truth:
        """Ground truth among all rows."""
        (truth,) = truths(self.exact, self.few, TUNED_KS, (1.0,))
        return truth

    @cached_property
    def filtered(self) -> list[Truth]:
        """Ground truth among fewer rows, most rows first."""
        return list(truths(self.exact, self.few, TUNED_KS[:3], _SHARES))

    @cached_property
    def exact_seconds(self) -> dict[int, float]:
        """The median seconds of an exact search for each k."""
        return {k: self.seconds(self.exact, k) for k in self.truth.ks}

    def most(self, k: int) -> int:
        """The number of queries to search for `k`: longer answers need fewer for the same precision."""
        return len(self.few) if k <= _SMALL_K else max(1, len(self.few) // 3)

    def recall(self, planner: Planner, truth: Truth, k: int) -> float:
        """The mean recall of single searches."""
        return truth.planned(planner, k, self.most(k))

    def seconds(self, planner: Planner, k: int, allowed: RowMask | None = None) -> float:
        """The median time of single searches, one after the other on this thread."""
        return median_seconds(lambda query: planner.nearest(query, k, None, allowed), self.few)


def tuned(index: ApproximateIndex, task: Task, rival: float = np.inf) -> ApproximateIndex | None:
    """`index` with the cheapest search parameters that reach the recall, or None where it never pays.

    `rival`: the seconds of the best index so far for the smallest k; slower searches are given up early. A
    named kind without a rival always has parameters for the smallest k, if need be the broadest. From the
    first k on for which it misses the recall or exact search is as fast, searches are exact; so are searches
    among so few allowed rows that exact scores cost less or find more. A kind that wasn't named doesn't pay
    if a usual request is searched for exactly.
    """
    efforts: list[SearchParams] = []
    for k in task.truth.ks:
        effort = _cheapest(index, task, k, efforts, np.inf if efforts else rival)
        if effort is None:
            break
        efforts.append(effort)
    if not efforts:
        return None
    fitted = _with(index, efforts=tuple(efforts))
    if not task.is_named and not serves_usual(fitted):
        return None
    return _with(fitted, subset_rows=_subset_rows(fitted, task))


def serves_usual(index: ApproximateIndex) -> bool:
    """Whether an index answers a usual request itself, not by its exact search."""
    return index.search_params(min(USUAL, len(index))) is not None


def _breadths(settings: ApproximateSettings, k: int, least: int) -> list[int]:
    """The values of `SearchParams.breadth` to try for `k`, from `least` on, each a tenth more."""
    first, last = least, max(least, settings.lists)
    if isinstance(settings, HnswSettings):
        first, last = max(k, least), 8 * k + 1000
    steps = np.geomspace(first, last, 1 + int(np.log(last / first) / np.log(1.1)))
    return [int(step) for step in np.unique(steps.astype(int))]


def _cheapest(
    index: ApproximateIndex, task: Task, k: int, below: Sequence[SearchParams], rival: float
) -> SearchParams | None:
    """The fastest parameters for `k` that reach the recall, faster than exact search and `rival`."""
    is_needed = task.is_named and not below and rival == np.inf
    breadths = _breadths(index.settings, k, below[-1].breadth if below else 1)
    best, least = None, np.inf if is_needed else min(rival, task.exact_seconds[k])

    def planner(candidates: int, breadth: int) -> Planner:
        params = SearchParams(k=k, breadth=breadth, candidates=candidates)
        return Planner(_with(index, efforts=(params,), subset_rows=0), task.scoring)

    def is_slow(candidates: int, breadth: int) -> bool:
        return task.seconds(planner(candidates, breadth), k) >= least

    def reaches(candidates: int, breadth: int) -> bool:
        return task.recall(planner(candidates, breadth), task.truth, k) >= task.target

    for factor in _FACTORS[index.settings.kind]:
        candidates = min(len(index), int(np.ceil(factor * k)))
        # Timing a search takes less than measuring its recall.
        dearest = None if least == np.inf else smallest(partial(is_slow, candidates), breadths)
        affordable = [breadth for breadth in breadths if dearest is None or breadth < dearest]
        if not affordable:
            break
        breadth = smallest(partial(reaches, candidates), affordable)
        taken = np.inf if breadth is None else task.seconds(planner(candidates, breadth), k)
        if breadth is not None and taken < least:
            best, least = SearchParams(k=k, breadth=breadth, candidates=candidates), taken
    if best is None and is_needed:
        return SearchParams(k=k, breadth=breadths[-1], candidates=candidates)
    return best


def _subset_rows(index: ApproximateIndex, task: Task) -> int:
    """The number of allowed rows up to which exact scores are cheaper, or needed for the recall.

    The selector serves only the range of shares at which it was measured to be better.
    """
    planner = Planner(index, task.scoring)
    least = len(index)
    for truth in task.filtered:
        for k in truth.ks:
            if index.search_params(k) is None:
                continue
            selected = task.seconds(planner, k, truth.allowed)
            scored = task.seconds(task.exact, k, truth.allowed)
            if scored <= selected or task.recall(planner, truth, k) < task.target:
                return least
        least = round(truth.selectivity * len(index)) - 1
    return least


def _with(index: ApproximateIndex, **changes: Any) -> ApproximateIndex:
    return index.with_settings(index.settings.model_copy(update=changes))
