"""A new version of a bundle whose index is a collection of a running engine, with tuned search efforts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import without_credentials
from turret.data.files import locked
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import check_golden
from turret.tower.bundle.publish import derived_version, new_target, publish_chosen, query_vectors
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.engines.access import Connection
from turret.tower.engines.collections import (
    NAMESPACE_FILE,
    alias_name,
    clear,
    collection_name,
    namespace,
)
from turret.tower.engines.engine import Engine, EngineItems, Limits, engine_name, open_engine
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.fields import Drawn, engine_fields, where_of
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.format.manifest import IndexChoice, MeasuredRecall
from turret.tower.index.planner import Planner
from turret.tower.tuning.choice import Chosen
from turret.tower.tuning.recall import (
    KS,
    USUAL,
    Truth,
    check_recall,
    measure_recall,
    median_seconds,
    smallest,
    split_queries,
    truths,
)
from turret.tower.tuning.search_params import Task

# The shares of allowed items that are measured. Engines change their ways between a tenth and a hundredth.
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
_TIMED = 20
# An effort whose answers are shorter than that in more searches is too low: each is replaced by an exact one.
_MOST_SHORT = 0.01


@dataclass(kw_only=True)
class EngineTask(Task):
    """The measurement of a loaded collection; `report` receives a line for each selectivity."""

    engine: Engine
    collection: str
    catalog: Catalog
    report: Callable[[str], None]
    efforts: list[EngineEffort] = field(default_factory=list)
    subset_rows: int = 0

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
        efforts = [_effort(task, truth, k) for k in truth.ks if k <= task.engine.most]
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


def _effort(task: EngineTask, truth: Truth, k: int) -> EngineEffort:
    """The least effort that reaches the recall, by bisection."""
    rows = task.rows(truth.selectivity)
    breadths = list(task.engine.breadths(k))
    recalls: dict[int, float] = {}

    def reaches(breadth: int) -> bool:
        recalls[breadth], is_reached = _recall(task, truth, k, breadth)
        return is_reached

    breadth = smallest(reaches, breadths)
    return EngineEffort(rows=rows, k=k, breadth=breadth, recall=recalls[breadth or breadths[-1]])


def _recall(task: EngineTask, truth: Truth, k: int, breadth: int) -> tuple[float, bool]:
    """The recall of the engine's own answers; whether it reaches the target, and few answers are short."""
    some = len(task.few) if k <= USUAL else max(1, len(task.few) // 3)
    enough = truth.enough[:, truth.ks.index(k)]
    found, short = 0, 0
    for query, least in zip(task.few[:some], enough, strict=False):
        scores = _scores(task, truth, query, k, breadth)
        found += min(k, int(np.count_nonzero(scores >= least)))
        short += len(scores) < k
    recall = found / (k * some)
    return recall, recall >= task.target and short <= _MOST_SHORT * some


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


Report = Callable[[str], None]
# A search while the efforts are tuned may be broader than any that is served.
_LIMITS = Limits(search=30.0)


def publish_to_engine(
    folder: Path,
    url: str,
    recall: float = 0.99,
    version: str | None = None,
    report: Report = lambda message: None,
) -> Path:
    """Load the bundle in `folder` into the engine at `url` and publish it once more, searched there.

    The collection holds vectors and filter fields; the search efforts are those that reach `recall` at each k
    and selectivity. Collections of deleted versions and of publications that died are dropped. `version` is
    by default the old one with the engine's name behind it. Neither the `current` pointer nor the engine's
    alias moves.

    Raises BundleError when the bundle fails a check or has too few items, the version exists, or the engine
    misses the recall; EngineError when the engine fails. Both leave no collection behind if the engine still
    answers.
    """
    if not 0 < recall <= 1:
        raise BundleError(f"--recall {recall:g}: a recall is above 0 and at most 1, such as 0.99")
    name = engine_name(url)
    old = Bundle.open(folder)
    check_golden(old)
    if len(old.vectors) < KS[0]:
        raise BundleError(
            f"{old.manifest.version} has {len(old.vectors)} items; an engine's recall is measured for "
            f"the best {KS[0]}, so an engine takes no fewer. Serve it with the index that it has"
        )
    target = new_target(folder.parent, version or derived_version(old.manifest.version, name))
    bundles = folder.resolve().parent
    engine = open_engine(url, _LIMITS)
    try:
        engine.check()
        namespace(bundles)
        with locked(bundles / NAMESPACE_FILE):
            _clear(bundles, engine, report)
            collection = collection_name(bundles, target.name)
            try:
                _publish(old, target, engine, url, collection, recall, report)
            except BaseException:
                _drop(engine, collection)
                raise
    finally:
        engine.close()
    return target


def _publish(
    old: Bundle, target: Path, engine: Engine, url: str, collection: str, recall: float, report: Report
) -> None:
    report(f"loading {len(old.vectors):,} items into {without_credentials(url)} as {collection} ...")
    engine.load(collection, EngineItems(old.vectors, engine_fields(old.catalog)))
    found = engine.count(collection)
    if found != len(old.vectors):
        raise EngineError(
            f"{without_credentials(url)} holds {found} of {len(old.vectors)} items after the load; publish "
            "again"
        )
    report("tuning the search effort ...")
    queries = split_queries(query_vectors(old), len(old.vectors))[0]
    task = EngineTask(
        old.vectors,
        queries,
        old.manifest.scoring,
        recall,
        engine=engine,
        collection=collection,
        catalog=old.catalog,
        report=report,
    )
    tune(task)
    while True:
        index, measured = _measured(task, target, Connection.over(engine, url), url)
        missed = [cell for cell in measured if cell.recall < recall]
        if not missed or not raise_efforts(task, missed):
            break
        report(f"cells under {recall:g} on more queries: {len(missed)}; raising their effort ...")
    check_recall(measured, recall, engine_name(url))
    words = (
        f"{len(old.vectors):,} items of {old.manifest.dimension} numbers in {engine_name(url)}",
        f"up to {task.subset_rows:,} allowed items are searched exactly in the service",
        *described(task.efforts, len(old.vectors)),
    )
    choice = IndexChoice(asked=engine_name(url), recall=recall, queries=len(queries), words=words)
    publish_chosen(old, Chosen(index, measured, choice), target)


def _measured(
    task: EngineTask, target: Path, made: Connection, url: str
) -> tuple[EngineIndex, tuple[MeasuredRecall, ...]]:
    """The index with the efforts of the task, and its recall on all queries, as a service would search."""
    settings = EngineSettings.model_validate(
        {
            "engine": engine_name(url),
            "url": without_credentials(url),
            "collection": task.collection,
            "alias": alias_name(target.parent),
            "efforts": tuple(task.efforts),
            "subset_rows": task.subset_rows,
        }
    )
    index = EngineIndex(task.vectors, settings, made)
    planner, is_absolute = Planner(index, task.scoring), task.scoring.absolute
    measured = measure_recall(
        planner, task.vectors, task.queries, selectivities=SHARES, absolute=is_absolute, masks=task.mask
    )
    return index, measured


def _clear(bundles: Path, engine: Engine, report: Report) -> None:
    try:
        for name in clear(bundles, engine):
            report(f"dropped the collection {name}, which no version needs")
    except BundleError as error:
        report(f"no collection is dropped: {error}")


def _drop(engine: Engine, collection: str) -> None:
    """Drop the collection of a publication that failed; the next one drops it where that fails, too."""
    try:
        engine.drop(collection)
    except EngineError:
        return
