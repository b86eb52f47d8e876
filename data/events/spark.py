"""Preparation by Spark: rows validated by Polars, in Parquet, that Spark counts, joins and sorts."""

import os
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from turret.data.errors import DataError
from turret.data.events.event_arrays import Change, Events, user_blocks
from turret.data.events.events import VERDICT, Log
from turret.data.events.labels import LABEL
from turret.data.reading.tables import readable

# Hadoop and Spark raise these errors for a file that a process can't see to read or to write, and for a
# folder that another process wrote.
_NOT_SEEN = re.compile(
    r"FILE_NOT_EXIST|PATH_NOT_FOUND|FileNotFoundException: File |Mkdirs failed|UNABLE_TO_INFER_SCHEMA"
)
# Py4J raises these errors of Python once the driver's process is gone.
_GONE = (ConnectionRefusedError, ConnectionResetError)
_SETTINGS = {
    "spark.app.name": "turret data prepare",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
ORDER = "__order"
_USER, _ITEM, _BUCKET, _COUNT = "__user_row", "__item_row", "__bucket", "__count"


@contextmanager
def spark_session(engine: str) -> Iterator[SparkSession]:
    """Yield a session of the Spark master `engine`, such as `local` or `spark://host:7077`, and stop it.

    Memory, cores and connectors are settings of Spark itself (spark-defaults.conf, PYSPARK_SUBMIT_ARGS).
    Raises DataError without Java, for a session that does not start, and for a job that fails.
    """
    # pandas is not used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    if not engine.startswith("sc://"):
        _check_java()
    builder = SparkSession.builder
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    try:
        # `local` is one thread to Spark.
        if engine.startswith("sc://"):
            session = builder.remote(engine).getOrCreate()
        else:
            session = builder.master("local[*]" if engine == "local" else engine).getOrCreate()
    except Exception as error:
        raise DataError(f"Spark doesn't start on {engine}: {_first_line(error)}") from error
    try:
        with failed_jobs(engine):
            yield session
    finally:
        with suppress(Py4JNetworkError, *_GONE):  # a session whose driver has ended can't be stopped
            session.stop()


@contextmanager
def failed_jobs(engine: str) -> Iterator[None]:
    """Raise DataError for a job of the block that fails on `engine`, and for a driver that ends."""
    try:
        yield
    except (Py4JNetworkError, *_GONE) as error:
        raise DataError(
            f"the driver of Spark on {engine} has ended ({_first_line(error)}): its log says why; if it "
            'lacked memory, give it more by PYSPARK_SUBMIT_ARGS="--driver-memory 4g pyspark-shell"'
        ) from error
    # PySpark translates some errors of Java and leaves the others, such as that of a failed task.
    except (PySparkException, Py4JError) as error:
        sentence = f"a job of Spark on {engine} has failed: {_first_line(error)}"
        if _NOT_SEEN.search(str(error)):
            sentence = sentence.rstrip(".") + (
                "; this machine and all workers must see the parent folder of --to under the same path, and "
                "may write to it (docs/spark.md, Where files lie)"
            )
        raise DataError(sentence) from error


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise DataError(
            f"Spark needs Java 17 or 21, and there is no java {where}; install it "
            "(on Debian and Ubuntu: apt-get install openjdk-17-jre-headless)"
        )


def _first_line(error: Exception) -> str:
    # The text of Py4J begins with the Java call.
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java.toString())
    return text.strip().split("\n")[0]


def not_shared(folder: Path) -> DataError:
    """Return the error for workers that have written into a folder of their own."""
    return DataError(
        f"Spark has written {folder}, and not all of it is there: its workers have another file system; "
        "choose a folder with --to that this machine and all workers share"
    )


@dataclass
class SparkEvents:
    """The events of a log as a frame of keys, read as `data.events.event_arrays.EventFiles` are.

    `users` and `items` have the distinct keys, whose positions are the numbers of users and items, and the
    number of events of each key.
    """

    session: SparkSession
    log: Log
    columns: dict[str, DTypeLike]
    count: int
    users: pl.DataFrame
    items: pl.DataFrame

    def __len__(self) -> int:
        return self.count

    def by_user(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, change: Change
    ) -> Iterator[Events]:
        """Yield the events sorted by user, part and time (stable), a bucket of users at a time.

        Raises DataError when the workers' files are not in the folder `work`.
        """
        target, read = work / "sorted", 0
        buckets = self._write_buckets(users, items, work, target)
        for bucket in range(buckets):
            files = list((target / f"{_BUCKET}={bucket}").glob("part-*.parquet"))
            if len(files) != 1:
                raise not_shared(target)
            rows = pl.read_parquet(files[0], glob=False)
            events = self.log.events(rows, rows[_USER].to_numpy(), rows[_ITEM].to_numpy())
            read += len(events)
            yield change(events)
            files[0].unlink()
        if read != self.count:
            raise not_shared(target)

    def _write_buckets(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, target: Path
    ) -> int:
        """Write a folder of one file for each bucket, and return their number."""
        order = np.argsort(users)
        totals = np.concatenate([[0], np.cumsum(self.users[_COUNT].to_numpy()[order])])
        first_users = user_blocks(totals)
        buckets = np.repeat(np.arange(len(first_users) - 1), np.diff(first_users))[users]
        user_rows = self.users.select("user", pl.Series(_USER, users), pl.Series(_BUCKET, buckets))
        item_rows = self.items.select("item", pl.Series(_ITEM, items))
        for name, rows in (("users", user_rows), ("items", item_rows)):
            # Spark's own `createDataFrame` starts Python on the workers.
            rows.write_parquet(work / f"{name}.parquet")
        sort = [_BUCKET, _USER, *(["parts"] if self.log.has_parts else []), "times", ORDER]
        (
            _read(self.session, work / "events.parquet")
            .where(F.col(VERDICT).isNull())
            .drop(VERDICT)
            .join(_read(self.session, work / "users.parquet"), "user")
            .join(_read(self.session, work / "items.parquet"), "item")
            # The rows of a bucket are in one partition, and so in one file.
            .repartition(_BUCKET)
            .sortWithinPartitions(*sort)
            .drop("user", "item", ORDER)
            .write.partitionBy(_BUCKET)
            .parquet(str(target.absolute()))
        )
        return len(first_users) - 1


def _read(session: SparkSession, path: Path) -> DataFrame:
    # Hadoop takes a path for a pattern.
    return session.read.parquet(re.sub(r"[\[\]{}*?\\]", r"\\\g<0>", str(path.absolute())))


def read_by_spark(
    session: SparkSession, log: Log, work: Path
) -> tuple[SparkEvents, pl.Series, pl.Series, Counter[str], Counter[int]]:
    """Read `log` as `data.events.events.read_events` does, by the same rules, which are those of its frame.

    This process streams the rows through Polars into Parquet; Spark joins and sorts them. `work` is a folder
    that all workers share with this process.
    """
    rows = log.rows().with_row_index(ORDER).with_columns(pl.col(ORDER).cast(pl.Int64))
    with readable(log.path):
        rows.sink_parquet(work / "events.parquet")
    written = pl.scan_parquet(work / "events.parquet", glob=False)
    labelled = [LABEL] if LABEL in written.collect_schema() else []
    counts, labels = Counter[str](), Counter[int]()
    groups = written.group_by(VERDICT, *labelled).len().collect(engine="streaming")
    for verdict, *label, count in groups.iter_rows():
        if verdict is not None:
            counts[verdict] += count
        elif label:
            labels[label[0]] += count
    events = written.filter(pl.col(VERDICT).is_null())
    users, items = (
        events.group_by(role).len(_COUNT).collect(engine="streaming") for role in ("user", "item")
    )
    unsorted = SparkEvents(session, log, log.columns(), int(users[_COUNT].sum()), users, items)
    return unsorted, users["user"], items["item"], counts, labels
