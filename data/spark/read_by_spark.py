"""Read a log by Spark: rows validated by Polars, in Parquet in one folder, with the distinct ids."""

from collections import Counter
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from turret.data.events.events import PART, VERDICT, Log
from turret.data.events.labels import LABEL
from turret.data.events.read_events import IngestedEvents
from turret.data.reading.tables import readable
from turret.data.spark.spark_events import ORDER, SparkEvents, counted


def read_by_spark(session: SparkSession, log: Log, work: Path) -> IngestedEvents:
    """Read `log` as `data.events.read_events.read_events` does, by the same rules: those of its frame.

    This process streams the rows through Polars into Parquet; Spark counts, joins and sorts them. `work` is a
    folder that all workers share with it. Raises DataError when they don't.
    """
    frame = _validated(session, log, work)
    counts: Counter[str] = Counter()
    labels: Counter[int] = Counter()
    groups = frame.groupBy(VERDICT, *([LABEL] if log.has_labels else [])).count().collect()
    for verdict, *label, count in groups:
        if verdict is not None:
            counts[verdict] += count
        elif label:
            labels[label[0]] += count
    events = sum(group["count"] for group in groups if group[VERDICT] is None)
    frame = frame.where(F.col(VERDICT).isNull()).drop(VERDICT)
    users, items = (counted(frame, role, work) for role in ("user", "item"))
    bad_rows, removed = log.dropped_rows(counts)
    rows = SparkEvents(session, frame, events, log.columns(), users, items)
    return IngestedEvents(rows, users["user"], items["item"], bad_rows, removed, labels)


def _validated(session: SparkSession, log: Log, work: Path) -> DataFrame:
    optional = [*(["weight"] if log.has_weights else []), *([LABEL] if log.has_labels else [])]
    target = work / "validated.parquet"
    rows = log.frame.select("user", "item", "time", PART, *optional, VERDICT).with_row_index(ORDER)
    with readable(log.path):
        rows.with_columns(pl.col(ORDER).cast(pl.Int64)).sink_parquet(target)
    return session.read.parquet(str(target.absolute()))
