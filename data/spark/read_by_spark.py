"""Read a log by Spark: events validated and counted, ids distinct, all in Parquet in one folder."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from turret.data.events.events import PART, VERDICT, Log
from turret.data.events.labels import LABEL
from turret.data.events.read_events import IngestedEvents
from turret.data.manifest import Columns
from turret.data.reading.schema import FilterSettings
from turret.data.reading.tables import EXAMPLES, ROW, readable
from turret.data.spark.exchange import taken
from turret.data.spark.raw_rows import raw_rows
from turret.data.spark.spark_events import SparkEvents, counted
from turret.data.spark.validation import ORDER, Rules, known_items

_VALIDATED = "validated"


def read_by_spark(
    session: SparkSession,
    log: Log,
    columns: Columns,
    filters: FilterSettings,
    catalog: pl.Series | None,
    nulls: Sequence[str],
    work: Path,
) -> IngestedEvents:
    """Read `log` as `data.events.read_events.read_events` does, with the arguments of its `validate`.

    Plain delimited text and Parquet are read by Spark. Other files, and columns of types that Spark reads
    otherwise than Polars, are first written as Parquet by this process. `work` is a folder that all workers
    share with it. Raises DataError when they don't.
    """
    rules = Rules(log, columns, filters, nulls)
    if rules.apply_here():
        frame = _validated(session, log, rules, catalog, work)
        first_rows = _FirstRows(frame, log, work)
    else:
        frame, first_rows = _staged(session, log, work), None
    counts: Counter[str] = Counter()
    labels: Counter[int] = Counter()
    groups = frame.groupBy(VERDICT, *([LABEL] if log.has_labels else [])).count().collect()
    for verdict, *label, count in groups:
        if verdict is not None:
            counts[verdict] += count
        elif label:
            labels[label[0]] += count
    events = sum(group["count"] for group in groups if group[VERDICT] is None)
    frame = frame.where(F.col(VERDICT).isNull()).select(
        *(name for name in frame.columns if name not in (VERDICT, ROW) and not name.startswith("raw_"))
    )
    users, items = (counted(frame, role, work) for role in ("user", "item"))
    bad_rows, removed = log.dropped_rows(counts, first_rows)
    rows = SparkEvents(session, frame, events, log.columns(), users, items)
    return IngestedEvents(rows, users["user"], items["item"], bad_rows, removed, labels)


def _validated(
    session: SparkSession, log: Log, rules: Rules, catalog: pl.Series | None, work: Path
) -> DataFrame:
    """Validate the source in place, and keep its rows as Parquet: each pass over the text is slow."""
    known = None if catalog is None else known_items(session, catalog, rules.keys["item"], work)
    rows = raw_rows(session, list(log.tables.items()), log.names, work)
    target = work / _VALIDATED
    rules.validated(rows, known).write.parquet(str(target.absolute()))
    return session.read.parquet(str(target.absolute()))


def _staged(session: SparkSession, log: Log, work: Path) -> DataFrame:
    """Validate the source by Polars in this process, and write its rows as Parquet."""
    optional = [*(["weight"] if log.has_weights else []), *([LABEL] if log.has_labels else [])]
    target = work / f"{_VALIDATED}.parquet"
    rows = log.frame.select("user", "item", "time", PART, *optional, VERDICT).with_row_index(ORDER)
    with readable(log.path):
        rows.with_columns(pl.col(ORDER).cast(pl.Int64)).sink_parquet(target)
    return session.read.parquet(str(target.absolute()))


class _FirstRows:
    """Finds the first rows of a verdict, with the types of the source."""

    def __init__(self, frame: DataFrame, log: Log, work: Path) -> None:
        schema = log.frame.collect_schema()
        self.frame, self.work = frame, work
        self.types = pl.Schema({name: schema[name] for name in (ROW, PART, *log.names)})

    def __call__(self, verdict: str) -> pl.DataFrame:
        first = self.frame.where(F.col(VERDICT) == verdict).orderBy(ORDER).limit(EXAMPLES)
        return taken(first.select(*self.types), self.work / "first" / verdict).cast(self.types)
