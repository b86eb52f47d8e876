"""Sessions of Spark, and the errors of their jobs as sentences."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turret.data import errors
from turret.data.errors import DataError, TurretError

# Hadoop and Spark raise these errors for a file that a process can't see to read or to write, and for a
# folder that another process wrote.
_NOT_SEEN = re.compile(
    r"FILE_NOT_EXIST|PATH_NOT_FOUND|FileNotFoundException: File |Mkdirs failed|UNABLE_TO_INFER_SCHEMA"
)
_OF_PYTHON = "from the Python worker"  # begins the calls of an error on an executor
# Py4J raises these errors of Python once the driver's process is gone.
_GONE = (ConnectionRefusedError, ConnectionResetError)
# Java moves a few thousand packed values, so compiling and planning for speed take longer than they save.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.app.name": "turret data prepare",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": _QUICK_JAVA,
    "spark.executor.extraJavaOptions": _QUICK_JAVA,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# An executor raises an error of Turret, which Spark passes on as text, followed by the calls of Java.
_OF_TURRET = re.compile(
    r"^turret\.data\.errors\.(\w+): (.*?)\s*(?:\n SQLSTATE|\n\s+at |\n\nJVM stacktrace|\Z)",
    re.MULTILINE | re.DOTALL,
)


@contextmanager
def spark_session(engine: str) -> Iterator[SparkSession]:
    """Yield a session of the Spark master `engine`, such as `local` or `spark://host:7077`, and stop it.

    Memory, cores and connectors are settings of Spark itself (spark-defaults.conf, PYSPARK_SUBMIT_ARGS).
    Raises DataError without Java, for a session that does not start, and for a job that fails.
    """
    if not engine.startswith("sc://"):
        _check_java()
    if engine.startswith("local"):  # the executors are processes of this machine
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
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
        if (of_turret := _error_of_turret(str(error))) is not None:
            raise of_turret from None
        sentence = f"a job of Spark on {engine} has failed: {_first_line(error)}"
        if "No module named" in str(error):
            sentence = (
                f"the workers of Spark on {engine} lack {_missing(str(error))}: install turret[spark] there, "
                "and name their Python by PYSPARK_PYTHON (docs/spark.md, Engines)"
            )
        if _NOT_SEEN.search(str(error)):
            sentence = sentence.rstrip(".") + (
                "; this machine and all workers must see the parent folder of --to under the same path, and "
                "may write to it (docs/spark.md, Where files lie)"
            )
        raise DataError(sentence) from error


def _error_of_turret(text: str) -> TurretError | None:
    """Return the error of Turret that an executor has raised, from the text of Spark's error."""
    match = _OF_TURRET.search(text)
    kind = getattr(errors, match[1], DataError) if match else None
    return kind(match[2]) if match and kind is not None else None


def _missing(text: str) -> str:
    match = re.search(r"No module named '([^']+)'", text)
    return match[1] if match else "a module"


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
    of_python = re.findall(r"^(\w[\w.]*(?:Error|Exception): .*)$", str(error), re.MULTILINE)
    return str(of_python[-1] if _OF_PYTHON in text else text).strip().split("\n")[0]


def not_shared(folder: Path) -> DataError:
    """Return the error for workers that have written into a folder of their own."""
    return DataError(
        f"Spark has written {folder}, and not all of it is there: its workers have another file system; "
        "choose a folder with --to that this machine and all workers share"
    )
