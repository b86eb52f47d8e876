import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turret.data.configuration import load_configuration
from turret.data.preparing import prepare as preparing
from turret.data.reading.schema import PrepareConfig
from turret.data.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of tiny jobs, most of the time is planning and the compilation of code.
FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

# And the optimising compiler of Java works on code that runs once.
FAST_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

Prepared = dict[str, Any]


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One session for all tests: its start takes ten seconds."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'turret[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: apt-get install openjdk-17-jre-headless")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**FAST_JAVA, "SPARK_LOCAL_IP": "127.0.0.1"}.items():
            patch.setenv(name, value)
        patch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.enabled=false pyspark-shell")
        with spark_session("local") as session:
            for name, value in FAST.items():
                session.conf.set(name, value)
            yield session


@pytest.fixture
def both_ways(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Prepared, Prepared]]:
    """Prepare by Polars and by Spark: the manifests, with the digests of all files, and the warnings."""
    monkeypatch.setattr(preparing, "_session", lambda engine: nullcontext(spark if engine else None))

    def prepare(**settings: Any) -> tuple[Prepared, Prepared]:
        config = load_configuration(PrepareConfig, overrides=settings)
        polars, by_spark = (
            preparing.prepare(config, tmp_path / f"by_{engine}", engine=engine) for engine in (None, "local")
        )
        return tuple(  # type: ignore[return-value]
            {**report.manifest.model_dump(), "warnings": report.warnings} for report in (polars, by_spark)
        )

    return prepare
