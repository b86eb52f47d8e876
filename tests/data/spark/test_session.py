"""Masters that are none, or do not answer, end in a sentence; a real cluster prepares alike."""

import builtins
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl
import pytest

from tests.data.spark.conftest import FAST, FAST_JAVA
from tests.data.test_fingerprints import _log
from tests.support.command_line import ROOT
from tests.support.ports import free_port
from turret.data.errors import ConfigurationError, DataError
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.spark.session import failed_jobs, spark_session


@pytest.mark.parametrize("engine", ["", "spark", "spark://", "local[x]", "http://127.0.0.1", "polars"])
def test_other_engines_are_refused(engine: str) -> None:
    with pytest.raises(ConfigurationError, match="is no Spark master; give local, "), spark_session(engine):
        pass


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_does_not_answer(scheme: str) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'turret[spark]'")
    engine = f"{scheme}://127.0.0.1:{free_port()}"
    with (
        pytest.raises(DataError, match=f"no Spark master answers at {engine} .*refused"),
        spark_session(engine),
    ):
        pass


def test_spark_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'turret[spark]'")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"no java in JAVA_HOME .*openjdk"), spark_session("local"):
        pass


@pytest.mark.parametrize("kind", ["Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError"])
def test_a_driver_that_has_ended(kind: str) -> None:
    """Py4J raises the one or the others, by the call."""
    protocol = pytest.importorskip("py4j.protocol", reason="PySpark is not installed")
    error = getattr(protocol, kind, None) or getattr(builtins, kind)
    sentence = r"^the driver of Spark on local has ended \(nobody answers\): .*--driver-memory"
    with pytest.raises(DataError, match=sentence), failed_jobs("local"):
        raise error("nobody answers")


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone master and two workers of one core, on the loopback."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'turret[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: apt-get install openjdk-17-jre-headless")
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
    with ExitStack() as stack:
        for number, (name, *arguments) in enumerate(commands):
            log = stack.enter_context((folder / f"{number}.log").open("w"))
            command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
            process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            if number == 0:
                _wait_for(port)
        yield master


def _wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as client:
            client.settimeout(0.2)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the master has not begun to listen")


@pytest.mark.nightly  # four processes of Java
def test_a_cluster_of_two_workers_prepares_alike(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(4):
        part = _log(1000).with_columns(pl.col("user_id") + number)
        part.write_parquet(folder / f"part-{number}.parquet")
    prepare(PrepareConfig(source=folder), tmp_path / "by_polars")
    with cluster(tmp_path) as master:
        command = [sys.executable, "-m", "turret", "data", "prepare", str(folder), "--engine", master]
        confs = {**FAST, "spark.ui.enabled": "false", "spark.executor.memory": "512m"}
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
