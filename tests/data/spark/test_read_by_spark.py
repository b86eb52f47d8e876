"""Spark writes the same prepared data as Polars, file by file, with the same report of bad rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data.test_fingerprints import CASES, _log
from turret.data.configuration import load_configuration
from turret.data.errors import BadRowsError, SourceError
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise

# They need a session of Spark, and several jobs each.
pytestmark = pytest.mark.nightly

BothWays = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture
def staged(spark: object, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The reads of which Polars made the first step."""
    # Without PySpark the tests are skipped.
    from turret.data.spark import read_by_spark

    found: list[bool] = []
    stage = read_by_spark._staged

    def noted(*arguments: Any) -> Any:
        found.append(True)
        return stage(*arguments)

    monkeypatch.setattr(read_by_spark, "_staged", noted)
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_log_is_prepared_alike(
    tmp_path: Path, both_ways: BothWays, staged: list[bool], case: str
) -> None:
    change, give, settings, _ = CASES[case]
    log = change(_log())
    log.write_parquet(tmp_path / "events.parquet")
    given = {"source": tmp_path / "events.parquet", **(give(tmp_path, log) if give else {}), **settings}
    by_polars, by_spark = both_ways(**given)
    assert by_spark == by_polars
    assert bool(staged) == (case == "unsigned integers")


def test_a_shop_with_features_and_fields_is_prepared_alike(tmp_path: Path, both_ways: BothWays) -> None:
    synthesise(SyntheticConfig(users=60, items=600), tmp_path / "shop")
    features = {"text": ("title",), "multi": ("genres",)}
    by_polars, by_spark = both_ways(source=tmp_path / "shop", item_features=features, on_bad="drop")
    assert by_polars["item_features"]
    assert by_spark == by_polars


@pytest.mark.parametrize("form", ["jsonl", "multiline.csv", "negatives.csv"])
def test_other_files_are_staged(tmp_path: Path, both_ways: BothWays, staged: list[bool], form: str) -> None:
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
    assert staged


def test_bad_rows_are_refused_with_the_sentences_of_polars(tmp_path: Path, both_ways: BothWays) -> None:
    (tmp_path / "events.csv").write_text("user,item,time\na,x,1\n,y,2\na,,3\n", encoding="utf-8")
    settings = {"source": tmp_path / "events.csv"}
    config = load_configuration(PrepareConfig, overrides=settings)
    with pytest.raises(BadRowsError) as by_polars:
        prepare(config, tmp_path / "prepared")
    with pytest.raises(BadRowsError) as by_spark:
        prepare(config, tmp_path / "prepared", engine="local")
    assert str(by_spark.value) == str(by_polars.value)


def test_parts_without_a_column_are_refused_with_the_sentence_of_polars(
    tmp_path: Path, both_ways: BothWays
) -> None:
    """To Spark alone its values would be null."""
    folder = tmp_path / "log"
    folder.mkdir()
    log = _log(60)
    log.write_parquet(folder / "part-0.parquet")
    log.drop("stars").write_parquet(folder / "part-1.parquet")
    config = load_configuration(PrepareConfig, overrides={"source": folder, "columns": {"weight": "stars"}})
    for engine in (None, "local"):
        with pytest.raises(SourceError, match="can't be read: did not find column stars"):
            prepare(config, tmp_path / "prepared", engine=engine)
