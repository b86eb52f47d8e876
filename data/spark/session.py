"""Spark sessions on the engine that the command line names."""

import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from turret.data.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = "local, local[THREADS], spark://HOST:PORT, sc://HOST:PORT (Spark Connect), yarn or k8s://URL"
_KNOWN = re.compile(r"local(\[(\d+|\*)\])?|yarn|(spark|sc|k8s)://.+")
# Hadoop and Spark of files that a process can't see: to read, to write, and of a folder that another wrote.
_NOT_SEEN = re.compile(
    r"FILE_NOT_EXIST|PATH_NOT_FOUND|FileNotFoundException: File |Mkdirs failed|UNABLE_TO_INFER_SCHEMA"
)
# Py4J raises these of Python once the driver's process is gone.
_GONE = (ConnectionRefusedError, ConnectionResetError)
_SETTINGS = {
    "spark.app.name": "turret data prepare",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
_SQL_SETTINGS = {
    # Times without a zone are UTC.
    "spark.sql.session.timeZone": "UTC",
    # A file may have the columns `time` and `Time`.
    "spark.sql.caseSensitive": "true",
    # Each pass divides a file into the same blocks, however many executors there are at the time.
    "spark.sql.files.minPartitionNum": "256",
}


@contextmanager
def spark_session(engine: str) -> Iterator["SparkSession"]:
    """Yield a session of the Spark master `engine`, such as `local` or `spark://host:7077`; stop it after.

    Memory, cores and connectors are settings of Spark itself (spark-defaults.conf, PYSPARK_SUBMIT_ARGS).
    Raises ConfigurationError for an engine of another form, ModuleNotFoundError without PySpark, and
    DataError without Java, for a session that does not start, and for a job that fails.
    """
    if not _KNOWN.fullmatch(engine):
        raise ConfigurationError(f"--engine {engine!r} is no Spark master; give {ENGINES}")
    # pandas is not used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    from py4j.protocol import Py4JNetworkError
    from pyspark.sql import SparkSession

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
            for name, value in _SQL_SETTINGS.items():
                session.conf.set(name, value)
            yield session
    finally:
        with suppress(Py4JNetworkError, *_GONE):  # a session whose driver has ended can't be stopped
            session.stop()


@contextmanager
def failed_jobs(engine: str) -> Iterator[None]:
    """Raise DataError for a job of the block that fails on `engine`, and for a driver that ends."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JNetworkError, *_GONE) as error:
        raise DataError(
            f"the driver of Spark on {engine} has ended ({_first_line(error)}): its log says why; if it "
            'lacked memory, give it more by PYSPARK_SUBMIT_ARGS="--driver-memory 4g pyspark-shell"'
        ) from error
    # PySpark translates some classes of Java and leaves the others, a failed task among them.
    except (PySparkException, Py4JError) as error:
        sentence = f"a job of Spark on {engine} has failed: {_first_line(error)}"
        if _NOT_SEEN.search(str(error)):
            sentence = sentence.rstrip(".") + (
                "; this machine and all workers must see the source and the parent folder of --to under the "
                "same paths, and may write to the latter (docs/spark.md, Where files lie)"
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
