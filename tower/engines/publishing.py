"""A new version of a bundle whose index is a collection of a running engine, with tuned search efforts."""

import re
import uuid
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
from turret.tower.engines.access import Connection
from turret.tower.engines.engine import Engine, EngineItems, Limits, engine_name, open_engine
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.fields import Drawn, engine_fields, where_of
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.format.listing import versions
from turret.tower.format.manifest import IndexChoice, read_manifest
from turret.tower.index.planner import Planner
from turret.tower.tuning.choice import Chosen, Report
from turret.tower.tuning.recall import (
    KS,
    MARGINS,
    TUNED_KS,
    Truth,
    check_recall,
    check_requested,
    measure_recall,
    median_seconds,
    smallest,
    split_queries,
    truths,
    with_margin,
)
from turret.tower.tuning.search_params import Task

NAMESPACE_FILE = ".engine_namespace"
_NAMESPACE = re.compile("turret_[0-9a-f]{12}")
# Recall is measured for these shares of allowed items: engines change their kind of search between a tenth
# and a hundredth.
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
_TIMED = 20
# A search while the efforts are tuned may be broader than any search that is served.
_LIMITS = Limits(search=30.0)


def publish_to_engine(
    folder: Path,
    url: str,
    recall: float = 0.99,
    version: str | None = None,
    report: Report = lambda message: None,
) -> Path:
    """Load the bundle in `folder` into the engine at `url` and publish it once more, searched there.

    The collection holds vectors and filter fields; the search efforts reach `recall` at each k and
    selectivity. Collections of deleted versions and of publications that died are dropped. `version` is
    by default the old version with the engine's name behind it. The `current` pointer doesn't move.

    Raises BundleError when the bundle fails a check or has too few items, the version exists, or the engine
    misses the recall; EngineError when the engine fails. Neither error leaves a collection behind if the
    engine still answers.
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
                _load(old, engine, url, collection, report)
                tuner = _Tuner(old, engine, url, collection, recall, report)
                publish_chosen(old, tuner.chosen(), target)
            except BaseException:
                with suppress(EngineError):  # the next publication drops it
                    engine.drop(collection)
                raise
    return target


def _load(old: Bundle, engine: Engine, url: str, collection: str, report: Report) -> None:
    count, address = len(old.vectors), without_credentials(url)
    report(f"loading {count:,} items into {address} as {collection} ...")
    engine.load(collection, EngineItems(old.vectors, engine_fields(old.catalog)))
    loaded = engine.count(collection)
    if loaded != count:
        raise EngineError(f"{address} holds {loaded} of {count} items after the load; publish again")


class _Tuner:
    """Finds the efforts with which searches of a loaded collection reach a recall."""

    def __init__(
        self, old: Bundle, engine: Engine, url: str, collection: str, recall: float, report: Report
    ) -> None:
        queries = split_queries(query_vectors(old), len(old.vectors))[0]
        self._task = Task(old.vectors, queries, old.manifest.scoring, recall)
        self._url, self._report = url, report
        self._engine, self._collection, self._catalog = engine, collection, old.catalog
        self._truths = list(truths(self._task.exact, self._task.few, TUNED_KS, SHARES, self._mask))

    def chosen(self) -> Chosen:
        """The index with the least efforts that reach the recall on all queries, as a service would search.

        Raises BundleError where no margin is enough.
        """
        task, recall, name = self._task, self._task.least_recall, engine_name(self._url)
        count, dimension = task.vectors.shape
        self._report("tuning the search effort ...")
        for margin in MARGINS:
            index, words = self._index(with_margin(recall, margin))
            planner = Planner(index, task.scoring)
            measured = measure_recall(planner, task.queries, SHARES, self._mask)
            missed = sum(cell.recall < recall for cell in measured)
            if not missed:
                break
            self._report(f"cells under {recall:g} on more queries: {missed}")
        check_recall(measured, recall, name)
        described = (
            f"{count:,} items of {dimension} numbers in {name}",
            f"up to {index.settings.subset_rows:,} allowed items are searched exactly in the service",
            *words,
        )
        choice = IndexChoice(asked=name, recall=recall, queries=len(task.queries), words=described)
        return Chosen(index, measured, choice)

    def _mask(self, selectivity: float) -> RowMask:
        """The mask of a share of the rows: the first ones of the draw, by which the engine can filter."""
        return Filter(Drawn(round(selectivity * len(self._task.vectors))), self._catalog).allowed()

    def _index(self, target: float) -> tuple[EngineIndex, list[str]]:
        """The index with the efforts that reach `target`, and a line for each share of the items.

        Raises BundleError where no effort reaches the target for all items: then the engine could search
        nothing.
        """
        every: list[EngineEffort] = []
        words: list[str] = []
        subset_rows = 0
        for truth in self._truths:
            efforts = [self._effort(truth, k, target) for k in truth.ks if k <= self._engine.most]
            if truth.allowed is None and (not efforts or efforts[0].breadth is None):
                raise BundleError(
                    f"the engine finds fewer than {target:g} of the true best {truth.ks[0]} at its largest "
                    "effort; nothing was published. Lower --recall"
                )
            every += efforts
            words.append(_described(truth.selectivity, efforts))
            self._report(words[-1])
            if truth.allowed is not None and not subset_rows and self._exact_is_better(truth, efforts):
                subset_rows = truth.allowed.count
        settings = EngineSettings(
            engine=engine_name(self._url),
            collection=self._collection,
            efforts=tuple(every),
            subset_rows=subset_rows,
        )
        opened = Connection(self._url, engine=self._engine)
        return EngineIndex(self._task.vectors, settings, opened), words

    def _effort(self, truth: Truth, k: int, target: float) -> EngineEffort:
        """The least effort for `target`, by bisection; short answers of the engine itself count as misses."""
        task, breadths, recalls = self._task, list(self._engine.breadths(k)), dict[int, float]()

        def reaches(breadth: int) -> bool:
            recalls[breadth] = truth.recall(partial(self._find, truth, k, breadth), k, task.most(k))
            return recalls[breadth] >= target

        breadth = smallest(reaches, breadths)
        rows = len(task.vectors) if truth.allowed is None else truth.allowed.count
        return EngineEffort(rows=rows, k=k, breadth=breadth, recall=recalls[breadth or breadths[-1]])

    def _find(self, truth: Truth, k: int, breadth: int, query: NDArray[np.float32]) -> NDArray[np.int64]:
        where = None if truth.allowed is None else where_of(Drawn(truth.allowed.count), self._catalog)
        signs = (1, -1) if self._task.scoring.absolute else (1,)
        answers = [self._engine.search(self._collection, sign * query, k, breadth, where) for sign in signs]
        rows = np.unique(np.concatenate(answers))
        return rows if truth.allowed is None else rows[truth.allowed.mask[rows]]

    def _exact_is_better(self, truth: Truth, efforts: Sequence[EngineEffort]) -> bool:
        """Whether exact search among the allowed rows is as fast as the engine, or the only one possible."""
        if not efforts or efforts[0].breadth is None:
            return True
        k, few = efforts[0].k, self._task.few

        def exact(query: NDArray[np.float32]) -> object:
            return self._task.exact.nearest(query, k, None, truth.allowed)

        engine = partial(self._find, truth, k, efforts[0].breadth)
        return median_seconds(exact, few, _TIMED) <= median_seconds(engine, few, _TIMED)


def _described(selectivity: float, efforts: Sequence[EngineEffort]) -> str:
    by_k = [
        f"no effort for k = {effort.k:,} (recall {effort.recall:.4f} at the largest: searched exactly)"
        if effort.breadth is None
        else f"effort {effort.breadth:,} for k = {effort.k:,} (recall {effort.recall:.4f})"
        for effort in efforts
    ]
    return f"where {selectivity:.2g} of the items are allowed: {', '.join(by_k) or 'searched exactly'}"


def namespace(bundles: Path) -> str:
    """The prefix of the names of this folder's collections, drawn at random for the first collection.

    Folders that share an engine never touch each other's collections; a copy of a folder has to begin without
    the file, as each folder would drop collections that the other folder needs.
    """
    path = bundles / NAMESPACE_FILE
    if not path.exists():
        path.write_text(f"turret_{uuid.uuid4().hex[:12]}\n", encoding="ascii")
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not _NAMESPACE.fullmatch(text):
        raise BundleError(
            f"{path} holds {text[:50]!r}, which names no collections; write back its content, such as "
            "turret_0123456789ab, or delete it to begin with new collections"
        )
    return text


def collection_name(bundles: Path, version: str) -> str:
    """A new name for the collection of a version; a later version of this name gets another name."""
    readable = re.sub("[^A-Za-z0-9]", "_", version)
    return f"{namespace(bundles)}_{readable}_{uuid.uuid4().hex[:8]}"


def clear(bundles: Path, engine: Engine) -> list[str]:
    """Drop the collections of deleted versions and of publications that died, and return their names.

    The caller holds the folder's publication lock, so that no collection is being loaded. Raises BundleError
    where a manifest can't be read, since its version may need any collection.
    """
    indexes = [read_manifest(bundles / summary.version).index for summary in versions(bundles)]
    kept = {index.collection for index in indexes if isinstance(index, EngineSettings)}
    dropped = [name for name in engine.collections(f"{namespace(bundles)}_") if name not in kept]
    for name in dropped:
        engine.drop(name)
    return dropped
