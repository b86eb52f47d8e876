"""A new version of a bundle whose index is a collection of a running engine."""

from collections.abc import Callable
from pathlib import Path

from turret.data.errors import without_credentials
from turret.data.files import locked
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import check_golden
from turret.tower.bundle.query_vectors import query_vectors
from turret.tower.bundle.reindex import derived_version, new_target, publish_chosen
from turret.tower.engines.access import Connection
from turret.tower.engines.collections import (
    NAMESPACE_FILE,
    alias_name,
    clear,
    collection_name,
    namespace,
)
from turret.tower.engines.engine import Engine, EngineItems
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.fields import engine_fields
from turret.tower.engines.opening import Limits, engine_name, open_engine
from turret.tower.engines.tuning import SHARES, EngineTask, described, raise_efforts, tune
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.engine_settings import EngineSettings
from turret.tower.format.manifest import IndexChoice, MeasuredRecall
from turret.tower.index.planner import Planner
from turret.tower.tuning.choice import Chosen
from turret.tower.tuning.recall import KS, check_recall, measure_recall, split_queries

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
    scoring = old.manifest.scoring
    task = EngineTask(engine, collection, old.vectors, old.catalog, queries, scoring, recall, report)
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
