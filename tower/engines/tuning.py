"""The search efforts of an engine that reach a recall, measured for each selectivity and k."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.engines.engine import Engine
from turret.tower.engines.fields import Drawn, where_of
from turret.tower.errors import BundleError
from turret.tower.format.engine_settings import EngineEffort
from turret.tower.format.manifest import MeasuredRecall, Scoring
from turret.tower.index.index import ExactIndex
from turret.tower.index.planner import Planner
from turret.tower.tuning.recall import (
    KS,
    USUAL,
    Truth,
    median_seconds,
    smallest,
    truths,
    tuning_set,
    with_margin,
)

# The shares of allowed items that are measured. Engines change their ways between a tenth and a hundredth.
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
_TIMED = 20
# An effort whose answers are shorter than that in more searches is too low: each is replaced by an exact one.
_MOST_SHORT = 0.01


@dataclass
class EngineTask:
    """The measurement of a loaded collection: `least_recall` on user vectors `queries` [Q, D].

    `report` receives a line for each selectivity.
    """

    engine: Engine
    collection: str
    vectors: NDArray[np.float32]
    catalog: Catalog
    queries: NDArray[np.float32]
    scoring: Scoring
    least_recall: float
    report: Callable[[str], None]
    efforts: list[EngineEffort] = field(default_factory=list)
    subset_rows: int = 0

    def __post_init__(self) -> None:
        self.few = tuning_set(self.queries)
        self.exact = Planner(ExactIndex(self.vectors), self.scoring)

    def mask(self, selectivity: float) -> RowMask:
        """The rows of the first share of the draw, which the engine can filter by."""
        return Filter(Drawn(self.rows(selectivity)), self.catalog).allowed()

    def rows(self, selectivity: float) -> int:
        """The number of rows of a share."""
        return round(selectivity * len(self.vectors))


def tune(task: EngineTask) -> None:
    """Fill in `efforts` and `subset_rows` of the task.

    An effort is the least that reaches the recall with a margin. Raises BundleError, naming the cell, where
    no effort does for all items: there nothing could be searched by the engine.
    """
    ks = tuple(sorted({*KS, USUAL}))
    for truth in truths(task.vectors, task.few, ks, SHARES, task.scoring.absolute, task.mask):
        efforts = _rising([_effort(task, truth, k) for k in truth.ks if k <= task.engine.most])
        if truth.allowed is None and (not efforts or efforts[0].breadth is None):
            raise BundleError(
                f"the engine finds fewer than {task.least_recall:g} of the true best {truth.ks[0]} at its "
                "largest effort; nothing was published. Lower --recall"
            )
        task.efforts += efforts
        task.report(_described(truth.selectivity, efforts))
        if truth.allowed is not None and not task.subset_rows and _exact_is_better(task, truth, efforts):
            task.subset_rows = truth.allowed.count


def raise_efforts(task: EngineTask, missed: Sequence[MeasuredRecall]) -> bool:
    """Raise the efforts of cells that missed the recall on more queries; False where one can't be raised.

    The cell of a k is answered with the effort of the next k that was tuned, and so are the smaller ones.
    """
    raised = list(task.efforts)
    for cell in missed:
        for place, one in enumerate(raised):
            if one.rows != task.rows(cell.selectivity) or one.k < cell.k or one.breadth is None:
                continue
            broader = [breadth for breadth in task.engine.breadths(one.k) if breadth > one.breadth]
            if broader:
                raised[place] = one.model_copy(update={"breadth": broader[0]})
            break
    is_raised = raised != task.efforts
    task.efforts = raised
    return is_raised


def _rising(efforts: Sequence[EngineEffort]) -> list[EngineEffort]:
    """The efforts, never falling with k."""
    rising: list[EngineEffort] = []
    least = 1
    for one in efforts:
        if one.breadth is not None:
            least = max(least, one.breadth)
            one = one.model_copy(update={"breadth": least})
        rising.append(one)
    return rising


def _effort(task: EngineTask, truth: Truth, k: int) -> EngineEffort:
    """The least effort that reaches the recall, by bisection."""
    target, rows = with_margin(task.least_recall), task.rows(truth.selectivity)
    breadths = list(task.engine.breadths(k))
    recalls: dict[int, float] = {}

    def reaches(breadth: int) -> bool:
        recalls[breadth], is_reached = _recall(task, truth, k, breadth, target)
        return is_reached

    breadth = smallest(reaches, breadths)
    return EngineEffort(rows=rows, k=k, breadth=breadth, recall=recalls[breadth or breadths[-1]])


def _recall(task: EngineTask, truth: Truth, k: int, breadth: int, target: float) -> tuple[float, bool]:
    """The recall of the engine's own answers; whether it reaches the target, and few answers are short."""
    some = len(task.few) if k <= USUAL else max(1, len(task.few) // 3)
    enough = truth.enough[:, truth.ks.index(k)]
    found, short = 0, 0
    for query, least in zip(task.few[:some], enough, strict=False):
        scores = _scores(task, truth, query, k, breadth)
        found += min(k, int(np.count_nonzero(scores >= least)))
        short += len(scores) < k
    recall = found / (k * some)
    return recall, recall >= target and short <= _MOST_SHORT * some


def _scores(
    task: EngineTask, truth: Truth, query: NDArray[np.float32], k: int, breadth: int
) -> NDArray[np.float32]:
    signs = (1, -1) if task.scoring.absolute else (1,)
    rows = np.unique(np.concatenate([_search(task, truth, sign * query, k, breadth) for sign in signs]))
    scores: NDArray[np.float32] = task.vectors[rows] @ query
    return np.abs(scores) if task.scoring.absolute else scores


def _search(
    task: EngineTask, truth: Truth, query: NDArray[np.float32], k: int, breadth: int
) -> NDArray[np.int64]:
    where = None
    if truth.allowed is not None:
        where = where_of(Drawn(truth.allowed.count), task.catalog)
    rows = task.engine.search(task.collection, query, k, breadth, where)
    return rows if truth.allowed is None else rows[truth.allowed.mask[rows]]


def _exact_is_better(task: EngineTask, truth: Truth, efforts: Sequence[EngineEffort]) -> bool:
    """Whether the exact search among the allowed rows is as fast as the engine's, or the only one."""
    if not efforts or efforts[0].breadth is None:
        return True
    k, breadth = efforts[0].k, efforts[0].breadth

    def exact(query: NDArray[np.float32]) -> object:
        return task.exact.nearest(query, k, None, truth.allowed)

    def engine(query: NDArray[np.float32]) -> object:
        return _search(task, truth, query, k, breadth)

    return median_seconds(exact, task.few, _TIMED) <= median_seconds(engine, task.few, _TIMED)


def described(efforts: Sequence[EngineEffort], count: int) -> list[str]:
    """A line for each share of `count` items."""
    rows = sorted({one.rows for one in efforts}, reverse=True)
    return [_described(each / count, [one for one in efforts if one.rows == each]) for each in rows]


def _described(selectivity: float, efforts: Sequence[EngineEffort]) -> str:
    told = [
        f"no effort for k = {one.k:,} (recall {one.recall:.4f} at the largest: searched exactly)"
        if one.breadth is None
        else f"effort {one.breadth:,} for k = {one.k:,} (recall {one.recall:.4f})"
        for one in efforts
    ]
    return f"where {selectivity:.2g} of the items are allowed: {', '.join(told) or 'searched exactly'}"
