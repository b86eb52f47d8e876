"""Spark writes the same prepared data as Polars, file by file, with the same report of bad rows."""

import builtins
from pathlib import Path

import pytest

from tests.data.conftest import BothWays
from tests.data.test_fingerprints import CASES, given
from tests.support.tools import require
from turret.data.errors import DataError
from turret.data.spark.session import failed_jobs, spark_session


@pytest.mark.process
@pytest.mark.parametrize("case", ["texts in a text file", "gaps", "files in order, filtered"])
def test_logs_are_prepared_alike(tmp_path: Path, both_ways: BothWays, case: str) -> None:
    by_polars, by_spark = both_ways(**given(tmp_path, case))
    assert by_spark == by_polars


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_every_log_is_prepared_alike(tmp_path: Path, both_ways: BothWays, case: str) -> None:
    by_polars, by_spark = both_ways(**given(tmp_path, case))
    assert by_spark == by_polars


def test_spark_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require("spark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"no java in JAVA_HOME .*openjdk"), spark_session("local"):
        pass


@pytest.mark.parametrize("kind", ["Py4JNetworkError", "ConnectionRefusedError"])
def test_a_driver_that_has_ended(kind: str) -> None:
    """Py4J raises the one or the other, by the call."""
    require("spark")
    from py4j import protocol

    error = getattr(protocol, kind, None) or getattr(builtins, kind)
    sentence = r"^the driver of Spark on local has ended \(nobody answers\): .*--driver-memory"
    with pytest.raises(DataError, match=sentence), failed_jobs("local"):
        raise error("nobody answers")
