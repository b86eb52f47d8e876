"""Spark reads and sorts what Polars reads and sorts, value by value, and so does a real cluster."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.conftest import FAST_JAVA, FAST_SPARK, BothWays
from tests.data.test_fingerprints import tied_log
from tests.support.command_line import ROOT
from tests.support.ports import free_port
from tests.support.tools import require
from tests.support.until import until
from turret.data.configuration import load_configuration
from turret.data.errors import DataError
from turret.data.events.ids import id_key
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import NULLS, ColumnSettings, PrepareConfig
from turret.data.reading.times import TimeReader, choose_reader
from turret.data.spark.session import spark_session

# They need a session of Spark.
pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    "values",
    [
        pl.Series(["a", " b ", "", " ", "null", "-", " nan\u2003", "\u00a0", "NA", None, "007"]),
        pl.Series([1, -2, None], dtype=pl.Int8),
        pl.Series([2**32 - 1, None], dtype=pl.UInt32),
    ],
    ids=lambda values: str(values.dtype),
)
def test_keys(spark: Any, tmp_path: Path, values: pl.Series) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from turret.data.spark import expressions

    frame = pl.DataFrame({"raw": values, "number": range(len(values))})
    frame.write_parquet(tmp_path / "values.parquet")
    read = spark.read.parquet(str(tmp_path / "values.parquet")).orderBy("number")
    key = expressions.id_key(F.col("raw"), values.dtype, NULLS)
    found = [row[0] for row in read.select(key).collect()]
    assert found == frame.select(id_key("raw", values.dtype))["raw"].to_list()


DATES = """2024-05-01;2024-5-1;2024-05-01 12:30;2024-05-01T12:30:15Z;2024-05-01 12:30:15.9996
2024-05-01T12:30:15+02:00;2024-05-01T12:30:15-0330;2024-05-01 12:30:15.5+02;2024-13-01;2024-02-30;24-05-01
02024-05-01;  2024-05-01 ;2024-05-01 25:00;2024-05-01  12:30;2024-05-01 12:30:60;2024-05-01 12:60;0001-01-01
9999-12-31;1969-12-31 23:59:59.9999;2024-05-01 12:30:15.;2024-05-01 12:30:15.1234567891;2024-05-01Z;2024/05/01
2024-05-01 12:30:15+24:00;2024-05-01 12:30:15+02:60;+2024-05-01;2024-05-0\uff11;2024-05-01 12
2024-05-01TT12:30
2024-05-01 24:00:00;2024-05-0112:30;0000-01-01;2024-05-01 12:30:61;2024-05-01 12:30:15.5   +0200;x""".replace(
    "\n", ";"
).split(";")
NUMBERS = """1;+1;-1;1700000000;1700000000.5;1e9;1.7E+9; 1700000000 ;x;inf;-inf;nan;1d;1f;0x10
1_000;1e400;.5;5.;9223372036854775807;9223372036854775808;-;1e;1700000000.00025;-62135596801;253402300800;1,5;\uff11;007;--1
1700000000000001;-999;-1000""".replace("\n", ";").split(";")
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 5, 1, 1, 2, 3, 999_999),
    datetime(1, 1, 1),
]


def compare(spark: Any, folder: Path, values: pl.Series, **settings: Any) -> TimeReader:
    """Read `values` both ways, and return the reader."""
    from pyspark.sql import functions as F  # noqa: N812

    from turret.data.spark.times import can_read, time_value

    frame = pl.DataFrame({"raw_time": values, "number": range(len(values))})
    reader = choose_reader(frame.lazy(), "raw_time", "t", ColumnSettings(**settings))
    assert can_read(reader, values.dtype)
    frame.write_parquet(folder / "values.parquet")
    read = spark.read.parquet(str(folder / "values.parquet")).orderBy("number")
    found = [row[0] for row in read.select(time_value(reader, F.col("raw_time"), values.dtype)).collect()]
    expected = frame.select(reader.value.alias("time"))["time"].to_list()
    # repr: NaN is not equal to itself.
    assert [*map(repr, zip(values, found, strict=True))] == [*map(repr, zip(values, expected, strict=True))]
    assert {type(one) for one in found} == {type(one) for one in expected}
    return reader


@pytest.mark.parametrize(
    ("usual", "texts", "unit"),
    [
        ("2024-01-01", DATES, "auto"),
        ("13/02/2024", ["01/02/2024", "13/02/2024 10:11", "1/2/x", "31.12.2024", None], "auto"),
        ("1700000000", NUMBERS, "seconds"),
        ("1700000000.5", NUMBERS, "seconds"),
        ("1700000000000", NUMBERS, "milliseconds"),
        ("1700000000000000", NUMBERS, "microseconds"),
        ("5", NUMBERS, "auto"),
        ("5.5", NUMBERS, "auto"),
    ],
)
def test_texts(spark: Any, tmp_path: Path, usual: str, texts: list[str | None], unit: str) -> None:
    compare(spark, tmp_path, pl.Series([usual] * 400 + texts), time_unit=unit)


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([1_700_000_000, 1, -5, 2**62, None]),
        pl.Series([1_700_000_000.25, 1.5, float("inf"), float("nan"), 2e18, -0.0, 1_700_000_000.0005]),
        pl.Series([4.0, 1.5, float("inf"), 1e300]),
        pl.Series([4.0, 3.0, float("inf"), 1e300, 2.0**63, -(2.0**63)]),
        pl.Series([date(1, 1, 1), date(1500, 1, 1), date(2024, 1, 1)]),
        pl.Series(MOMENTS).cast(pl.Datetime("ms")),
        pl.Series(MOMENTS).cast(pl.Datetime("us")),
        pl.Series(MOMENTS).cast(pl.Datetime("us", "UTC")),
        pl.Series(MOMENTS).cast(pl.Datetime("us", "Europe/Paris")),
    ],
    ids=lambda values: f"{values.dtype} {values[0]}",
)
def test_typed_columns(spark: Any, tmp_path: Path, values: pl.Series) -> None:
    compare(spark, tmp_path, values)


def test_lines_are_numbered_over_many_blocks_of_a_file(
    tmp_path: Path, both_ways: BothWays, spark: Any
) -> None:
    """The order of the file decides between events of one time, and is all that sorts these."""
    rows = "".join(f"{row * 7919 % 13},{row}\n" for row in range(3000))
    (tmp_path / "long.csv").write_text(f"user,item\n{rows}", encoding="utf-8")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "3000")
    try:
        by_polars, by_spark = both_ways(source=tmp_path / "long.csv", columns={"in_file_order": True})
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert by_spark == by_polars


@pytest.mark.parametrize("name", ["log[1].csv", "log{a,b}.csv", "12:00.csv", "_log.csv"])
def test_a_file_of_any_name_is_read(tmp_path: Path, both_ways: BothWays, name: str) -> None:
    """Hadoop takes some names for patterns, hides others, and can't check those with a colon."""
    (tmp_path / name).write_text("user,item,time\na,x,1\na,y,2\na,z,3\n", encoding="utf-8")
    by_polars, by_spark = both_ways(source=tmp_path / name)
    assert by_spark == by_polars


HARD = """user_id,item_id,time,weight,label
"a, b","x""y",2024-05-01,1.5,1
"",z,2024-05-02,1,1
q,"",2024-05-03,1,1
 r , s ,2024-05-04, 2 ,0
,,,,
null,x,2024-05-05,1,1
k,x,2024-13-05,1,1

k,x,2024-05-06 1:2:3.4567+02:00,1e1,1
k,y,2024-05-06T01:02:03Z,1d,1
k,z,2024-05-06 12:30:60,-1,1
k,x,2024-05-07,inf,1
k,x,2024-05-08,.1,2
k,v,2024-05-08,.1,1.0
k,w,2024-05-08,1e-3,-0
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_hard_lines_are_read_alike(tmp_path: Path, both_ways: BothWays, newline: str) -> None:
    (tmp_path / "hard.csv").write_bytes(HARD.replace("\n", newline).encode())
    columns = {"weight": "weight", "label": "label"}
    by_polars, by_spark = both_ways(
        source=tmp_path / "hard.csv", columns=columns, filters={"min_weight": 0.1}, on_bad="drop=any"
    )
    assert len(by_polars["bad_rows"]) == 5
    assert by_spark == by_polars


@pytest.mark.parametrize("form", ["jsonl", "multiline.csv", "negatives.csv"])
def test_other_files_are_read_alike(tmp_path: Path, both_ways: BothWays, form: str) -> None:
    path, columns = tmp_path / f"events.{form}", {}
    if form == "jsonl":
        lines = [json.dumps({"user": row % 5, "item": row % 7, "time": row}) for row in range(50)]
        path.write_text("\n".join([*lines, "{broken"]), encoding="utf-8")
    elif form == "multiline.csv":
        path.write_text('user,item,time\n"a\nb",x,1\nc,d,2\nc,e,3\nc\n', encoding="utf-8")
    else:
        path.write_text("user,item,time,others\na,x,1,y|z\na,y,2,x\nb,x,1,\n", encoding="utf-8")
        columns = {"negatives": "others"}
    by_polars, by_spark = both_ways(source=path, columns=columns, on_bad="drop")
    assert by_spark == by_polars


@pytest.mark.parametrize("folder", ["sorted", "distinct_user"])
def test_workers_with_another_file_system_are_found_out(
    folder: str, tmp_path: Path, both_ways: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are not where this process looks for them."""
    (tmp_path / "events.csv").write_text("user,item,time\na,x,1\na,y,2\na,z,3\n", encoding="utf-8")
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: [] if folder in self.parts else list(glob(self, pattern))
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


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_does_not_answer(scheme: str) -> None:
    require("spark")
    engine = f"{scheme}://127.0.0.1:{free_port()}"
    with (
        pytest.raises(DataError, match=f"no Spark master answers at {engine} .*refused"),
        spark_session(engine),
    ):
        pass


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


@pytest.mark.parametrize("default", [None, "buy"])
def test_rows_without_a_kind(tmp_path: Path, both_ways: BothWays, default: str | None) -> None:
    kinds = ["buy", " buy ", "view", "", " ", "NULL", "share"]
    rows = "".join(f"{row % 2},{row},{row},{kind}\n" for row, kind in enumerate(kinds))
    (tmp_path / "log.csv").write_text(f"user,item,time,event\n{rows}", encoding="utf-8")
    filters = {"kind_weights": {"view": 1, "buy": 5}, "default_kind": default}
    by_polars, by_spark = both_ways(source=tmp_path / "log.csv", columns={"kind": "event"}, filters=filters)
    assert by_spark == by_polars
    assert {one["filter"]: one["events"] for one in by_spark["removed"]} == (
        {"kinds": 1} if default else {"kinds": 1, "missing kind": 3}
    )
