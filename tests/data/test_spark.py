"""Spark writes the same prepared data as Polars, file by file, with the same report of bad rows."""

import builtins
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.data.conftest import FAST_JAVA, FAST_SPARK, BothWays
from tests.data.test_fingerprints import CASES, given, tied_log
from tests.data.test_places import write_log
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.tools import require
from tests.support.until import until
from turret.data.configuration import load_configuration
from turret.data.errors import DataError, SourceError
from turret.data.preparing import prepare as preparing
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = ("texts in a text file", "gaps", "files in order, filtered", "signals, negatives and strangers")
TIERS = [
    pytest.param(case, marks=pytest.mark.process if case in FEW else pytest.mark.nightly) for case in CASES
]


@pytest.mark.parametrize("case", TIERS)
def test_logs_are_prepared_alike(
    tmp_path: Path, both_ways: BothWays, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr("turret.data.spark.engine.PIECE", 700)  # the log has four pieces
    by_polars, by_spark = both_ways(**given(tmp_path, case))
    assert by_spark == by_polars


@pytest.mark.nightly
def test_places_of_answers_are_joined_alike(
    tmp_path: Path, both_ways: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece of the log names a third of the answers."""
    monkeypatch.setattr("turret.data.spark.engine.PIECE", 700)
    names = [f"answer {number}" for number in range(3)]
    write_log(tmp_path / "answers", [(name, ["1000003", "2000006"], [0.5, 0.25]) for name in names])
    log = tied_log()
    log = log.with_columns(answer_id=pl.Series(names * 900).head(log.height))
    log.write_parquet(tmp_path / "events.parquet")
    by_polars, by_spark = both_ways(source=tmp_path / "events.parquet", answers=tmp_path / "answers")
    assert by_spark == by_polars
    assert {"places.npy", "propensities.npy"} <= by_spark["files"].keys()


@pytest.mark.nightly
def test_a_folder_of_broken_texts_is_read_alike(tmp_path: Path, both_ways: BothWays) -> None:
    """Executors look for the lines that are no rows, and the first such lines are the examples."""
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(3):
        rows = [f"{user},i{user * number % 7},{1_600_000_000 + user}\n" for user in range(40)]
        rows[number] = "1,2\n"
        (folder / f"part-{number}.csv").write_text("user,item,time\n" + "".join(rows), encoding="utf-8")
    by_polars, by_spark = both_ways(source=folder, on_bad="drop")
    assert by_spark == by_polars
    assert by_spark["bad_rows"][0]["count"] == 3


@pytest.mark.nightly
def test_a_later_format_of_times_is_read_alike(tmp_path: Path, both_ways: BothWays) -> None:
    """The first rows do not show it, so the log is read a second time."""
    days = [f"2024-05-{day % 28 + 1:02}" for day in range(10_001)] + ["13.06.2024", "14.06.2024"]
    rows = [f"{row % 50},i{row % 30},{day}" for row, day in enumerate(days)]
    (tmp_path / "events.csv").write_text("\n".join(["user,item,time", *rows, ""]), encoding="utf-8")
    by_polars, by_spark = both_ways(source=tmp_path / "events.csv")
    assert by_spark == by_polars
    assert not by_spark["bad_rows"]


@pytest.mark.nightly
def test_a_table_of_a_catalog_is_prepared_as_its_rows(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    tied_log(1000).write_parquet(tmp_path / "log.parquet")
    spark.read.parquet(str(tmp_path / "log.parquet")).createOrReplaceTempView("clicks")
    monkeypatch.setattr("turret.data.spark.session.spark_session", lambda engine: nullcontext(spark))
    by_spark = preparing.prepare(
        PrepareConfig(source="table://clicks"), tmp_path / "by_spark", engine="local"
    )
    by_polars = preparing.prepare(PrepareConfig(source=tmp_path / "log.parquet"), tmp_path / "by_polars")
    assert by_spark.manifest.fingerprint == by_polars.manifest.fingerprint
    assert all(name.startswith("table://clicks/") for name in by_spark.manifest.sources)


def test_a_table_of_a_catalog_needs_spark(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"table://clicks is a table of a catalog.*--engine"):
        prepare(PrepareConfig(source="table://clicks"), tmp_path / "prepared")


def test_an_error_of_turret_on_an_executor_is_the_error_of_the_command() -> None:
    require("spark")
    from pyspark.errors import PySparkException

    from turret.data.spark.session import failed_jobs

    calls = 'Traceback (most recent call last):\n  File "x.py", line 1\n'
    broken = "turret.data.errors.SourceError: /log/a can't be read: it ends\n SQLSTATE: 38000\n\tat org.x"
    with (
        pytest.raises(SourceError, match=r"^/log/a can't be read: it ends$"),
        failed_jobs("local"),
    ):
        raise PySparkException(f"An exception was thrown from the Python worker: {calls}{broken}")
    absent = "ModuleNotFoundError: No module named 'turret'"
    with (
        pytest.raises(DataError, match=r"workers of Spark on yarn lack turret: .*PYSPARK_PYTHON"),
        failed_jobs("yarn"),
    ):
        raise PySparkException(f"An exception was thrown from the Python worker: {calls}{absent}")


def test_spark_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require("spark")
    from turret.data.spark.session import spark_session

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"no java in JAVA_HOME .*openjdk"), spark_session("local"):
        pass


@pytest.mark.parametrize("kind", ["Py4JNetworkError", "ConnectionRefusedError"])
def test_a_driver_that_has_ended(kind: str) -> None:
    """Py4J raises the one or the other, by the call."""
    require("spark")
    from py4j import protocol

    from turret.data.spark.session import failed_jobs

    error = getattr(protocol, kind, None) or getattr(builtins, kind)
    sentence = r"^the driver of Spark on local has ended \(nobody answers\): .*--driver-memory"
    with pytest.raises(DataError, match=sentence), failed_jobs("local"):
        raise error("nobody answers")


@pytest.mark.nightly
def test_workers_with_another_file_system_are_found_out(
    tmp_path: Path, both_ways: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are not where this process looks for them."""
    (tmp_path / "events.csv").write_text("user,item,time\na,x,1\na,y,2\na,z,3\n", encoding="utf-8")
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: [] if "sorted" in self.parts else list(glob(self, pattern))
    )
    config = load_configuration(PrepareConfig, overrides={"source": tmp_path / "events.csv"})
    with pytest.raises(DataError, match="its workers have another file system; choose a folder with --to"):
        prepare(config, tmp_path / "prepared", engine="local")
    assert not (tmp_path / "prepared").exists()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone master and two workers of one core, on the loopback."""
    require("spark", "java")
    import pyspark

    home, port = Path(pyspark.__file__).parent, free_port()
    own = {
        **FAST_JAVA,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    master = f"spark://127.0.0.1:{port}"
    usual = ("--host", "127.0.0.1", "--webui-port", "0")
    commands: list[tuple[str, ...]] = [("master.Master", "--port", str(port), *usual)]
    for number in (1, 2):
        work = ("--work-dir", str(folder / f"worker_{number}"))
        commands.append(("worker.Worker", "--cores", "1", "--memory", "1g", *work, *usual, master))

    def is_listening() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    with ExitStack() as stack:
        for number, (name, *arguments) in enumerate(commands):
            log = stack.enter_context((folder / f"{number}.log").open("w"))
            command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
            process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            if number == 0:
                until(is_listening, "the master listens")
        yield master


@pytest.mark.nightly
def test_a_cluster_of_two_workers_prepares_alike(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(4):
        part = tied_log(1000).with_columns(pl.col("user_id") + number)
        part.write_parquet(folder / f"part-{number}.parquet")
    prepare(PrepareConfig(source=folder), tmp_path / "by_polars")
    with cluster(tmp_path) as master:
        command = [sys.executable, "-m", "turret", "data", "prepare", str(folder), "--engine", master]
        confs = {**FAST_SPARK, "spark.ui.enabled": "false", "spark.executor.memory": "512m"}
        settings = " ".join([*(f"--conf {name}={value}" for name, value in confs.items()), "pyspark-shell"])
        done = subprocess.run(
            [*command, "--to", str(tmp_path / "by_spark")],
            env=os.environ | FAST_JAVA | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": settings},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        executors = [path for number in (1, 2) for path in (tmp_path / f"worker_{number}").glob("*/*")]
    assert len(executors) == 2
    ours, theirs = (
        json.loads((tmp_path / name / "manifest.json").read_text("utf-8"))
        for name in ("by_spark", "by_polars")
    )
    assert ours == theirs
