"""Logs prepared from text, by Polars or by Spark."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.support.tools import require
from turret.data.configuration import load_configuration
from turret.data.events.dropped_rows import PrepareReport
from turret.data.prepared import PreparedData
from turret.data.preparing import prepare as preparing
from turret.data.reading.schema import PrepareConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Prepare = Callable[..., PreparedData]


def prepare_as(target: Path, **settings: object) -> PrepareReport:
    """Prepare into a folder, which may exist, under settings by their names (`split__kind="time"`)."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return preparing.prepare(load_configuration(PrepareConfig, overrides=named), target, overwrite=True)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepare:
    """Prepare the text of a CSV file, or a frame, under overrides ("split.kind": "time"), and open it."""

    def make(log: str | pl.DataFrame, overrides: dict[str, object] | None = None) -> PreparedData:
        source = tmp_path / ("events.csv" if isinstance(log, str) else "events.parquet")
        source.write_text(log) if isinstance(log, str) else log.write_parquet(source)
        settings = {"source": source, **(overrides or {})}
        return PreparedData.open(prepare_as(tmp_path / "prepared", **settings).folder)

    return make


# Of tiny jobs, most of the time is planning and the compilation of code.
FAST_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# And the optimising compiler of Java works on code that runs once.
FAST_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

BothWays = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One session for all tests: its start takes ten seconds."""
    require("spark", "java")
    from turret.data.spark.session import spark_session

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**FAST_JAVA, "SPARK_LOCAL_IP": "127.0.0.1"}.items():
            patch.setenv(name, value)
        patch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.enabled=false pyspark-shell")
        with spark_session("local") as session:
            for name, value in FAST_SPARK.items():
                session.conf.set(name, value)
            yield session


@pytest.fixture
def both_ways(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BothWays:
    """Prepare by Polars and by Spark: the manifests, with the digests of all files, and the warnings."""
    monkeypatch.setattr("turret.data.spark.session.spark_session", lambda engine: nullcontext(spark))

    def prepare(**settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        config = load_configuration(PrepareConfig, overrides=settings)
        by_polars, by_spark = (
            preparing.prepare(config, tmp_path / f"by_{engine}", engine=engine) for engine in (None, "local")
        )
        return (
            {**by_polars.manifest.model_dump(), "warnings": by_polars.warnings},
            {**by_spark.manifest.model_dump(), "warnings": by_spark.warnings},
        )

    return prepare
