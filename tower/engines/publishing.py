"""A new version of a bundle whose index is a collection of a running engine, with tuned search efforts."""

from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import without_credentials
from turret.data.files import locked
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import check_golden
from turret.tower.bundle.publish import derived_version, new_target, publish_chosen, query_vectors
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.engines.access import Connection, current_access
from turret.tower.engines.collections import (
    NAMESPACE_FILE,
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
from turret.tower.tuning.choice import Chosen, Report
from turret.tower.tuning.recall import (
    KS,
    TUNED_KS,
    Truth,
    check_recall,
    check_requested,
    measure_recall,
    median_seconds,
    recall_of,
    smallest,
    split_queries,
    truths,
    with_margin,
)
from turret.tower.tuning.search_params import Task

# The shares of allowed items that are measured. Engines change their ways between a tenth and a hundredth.
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
# Larger margins follow where the efforts of one miss the recall on more queries.
_MARGINS = (0.2, 0.5, 0.8)
_TIMED = 20
# A search while the efforts are tuned may be broader than any that is served.
_LIMITS = Limits(search=30.0)


class Tuner:
    """Finds the efforts that search a loaded collection with the recall of `task`."""

    def __init__(self, task: Task, engine: Engine, collection: str, old: Bundle, report: Report) -> None:
        self.task = task
        self._engine = engine
        self._collection = collection
        self._catalog = old.catalog
        self._report = report
        absolute = task.scoring.absolute
        self._truths = list(truths(task.vectors, task.few, TUNED_KS, SHARES, absolute, self.mask))
        self.efforts: list[EngineEffort] = []
        self.subset_rows = 0
        self.words: list[str] = []

    def mask(self, selectivity: float) -> RowMask:
        """The rows of the first share of the draw, which the engine can filter by."""
        return Filter(Drawn(round(selectivity * len(self.task.vectors))), self._catalog).allowed()

    def tune(self, target: float) -> None:
        """Fill in `efforts`, `subset_rows` and a line of `words` for each share of the items.

        Raises BundleError where no effort reaches the target for all items: there nothing could be searched
        by the engine.
        """
        self.efforts, self.subset_rows, self.words = [], 0, []
        for truth in self._truths:
            efforts = [self._effort(truth, k, target) for k in truth.ks if k <= self._engine.most]
            if truth.allowed is None and (not efforts or efforts[0].breadth is None):
                raise BundleError(
                    f"the engine finds fewer than {target:g} of the true best {truth.ks[0]} at its largest "
                    "effort; nothing was published. Lower --recall"
                )
            self.efforts += efforts
            self.words.append(_described(truth.selectivity, efforts))
            self._report(self.words[-1])
            if truth.allowed is not None and not self.subset_rows and self._exact_is_better(truth, efforts):
                self.subset_rows = truth.allowed.count

    def _effort(self, truth: Truth, k: int, target: float) -> EngineEffort:
        """The least effort of the engine's own answers, of which short ones count as misses, by bisection."""
        task, breadths, recalls = self.task, list(self._engine.breadths(k)), dict[int, float]()

        def reaches(breadth: int) -> bool:
            find = partial(self._find, truth, k, breadth)
            recalls[breadth] = recall_of(find, task.vectors, task.some(k), truth, k, task.scoring.absolute)
            return recalls[breadth] >= target

        breadth = smallest(reaches, breadths)
        rows = len(task.vectors) if truth.allowed is None else truth.allowed.count
        return EngineEffort(rows=rows, k=k, breadth=breadth, recall=recalls[breadth or breadths[-1]])

    def _find(self, truth: Truth, k: int, breadth: int, query: NDArray[np.float32]) -> NDArray[np.int64]:
        where = None if truth.allowed is None else where_of(Drawn(truth.allowed.count), self._catalog)
        signs = (1, -1) if self.task.scoring.absolute else (1,)
        found = [self._engine.search(self._collection, sign * query, k, breadth, where) for sign in signs]
        rows = np.unique(np.concatenate(found))
        return rows if truth.allowed is None else rows[truth.allowed.mask[rows]]

    def _exact_is_better(self, truth: Truth, efforts: Sequence[EngineEffort]) -> bool:
        """Whether the exact search among the allowed rows is as fast as the engine's, or the only one."""
        if not efforts or efforts[0].breadth is None:
            return True
        k, few = efforts[0].k, self.task.few

        def exact(query: NDArray[np.float32]) -> object:
            return self.task.exact.nearest(query, k, None, truth.allowed)

        engine = partial(self._find, truth, k, efforts[0].breadth)
        return median_seconds(exact, few, _TIMED) <= median_seconds(engine, few, _TIMED)


def _described(selectivity: float, efforts: Sequence[EngineEffort]) -> str:
    told = [
        f"no effort for k = {one.k:,} (recall {one.recall:.4f} at the largest: searched exactly)"
        if one.breadth is None
        else f"effort {one.breadth:,} for k = {one.k:,} (recall {one.recall:.4f})"
        for one in efforts
    ]
    return f"where {selectivity:.2g} of the items are allowed: {', '.join(told) or 'searched exactly'}"


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
    by default the old one with the engine's name behind it. The `current` pointer doesn't move.

    Raises BundleError when the bundle fails a check or has too few items, the version exists, or the engine
    misses the recall; EngineError when the engine fails. Both leave no collection behind if the engine still
    answers.
    """
    check_requested(recall)
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
    with closing(open_engine(url, _LIMITS)) as engine:
        engine.check()
        namespace(bundles)
        with locked(bundles / NAMESPACE_FILE):
            try:
                for dropped in clear(bundles, engine):
                    report(f"dropped the collection {dropped}, which no version needs")
            except BundleError as error:
                report(f"no collection is dropped: {error}")
            collection = collection_name(bundles, target.name)
            try:
                publish_chosen(old, _loaded(old, target, engine, url, collection, recall, report), target)
            except BaseException:
                with suppress(EngineError):  # the next publication drops it
                    engine.drop(collection)
                raise
    return target


def _loaded(
    old: Bundle, target: Path, engine: Engine, url: str, collection: str, recall: float, report: Report
) -> Chosen:
    """Load the collection and tune its searches."""
    count, name, address = len(old.vectors), engine_name(url), without_credentials(url)
    report(f"loading {count:,} items into {address} as {collection} ...")
    engine.load(collection, EngineItems(old.vectors, engine_fields(old.catalog)))
    found = engine.count(collection)
    if found != count:
        raise EngineError(f"{address} holds {found} of {count} items after the load; publish again")
    report("tuning the search effort ...")
    queries = split_queries(query_vectors(old), count)[0]
    tuner = Tuner(Task(old.vectors, queries, old.manifest.scoring, recall), engine, collection, old, report)
    for margin in _MARGINS:
        tuner.tune(with_margin(recall, margin))
        settings = EngineSettings.model_validate(
            {
                "engine": name,
                "url": address,
                "collection": collection,
                "efforts": tuple(tuner.efforts),
                "subset_rows": tuner.subset_rows,
            }
        )
        index = EngineIndex(old.vectors, settings, Connection(url, current_access(), engine=engine))
        measured = _measured(index, tuner)
        missed = sum(cell.recall < recall for cell in measured)
        if not missed:
            break
        report(f"cells under {recall:g} on more queries: {missed}")
    check_recall(measured, recall, name)
    words = (
        f"{count:,} items of {old.manifest.dimension} numbers in {name}",
        f"up to {tuner.subset_rows:,} allowed items are searched exactly in the service",
        *tuner.words,
    )
    choice = IndexChoice(asked=name, recall=recall, queries=len(queries), words=words)
    return Chosen(index, measured, choice)


def _measured(index: EngineIndex, tuner: Tuner) -> tuple[MeasuredRecall, ...]:
    """The recall on all queries, as a service would search."""
    task = tuner.task
    return measure_recall(
        Planner(index, task.scoring),
        task.vectors,
        task.queries,
        selectivities=SHARES,
        absolute=task.scoring.absolute,
        masks=tuner.mask,
    )
