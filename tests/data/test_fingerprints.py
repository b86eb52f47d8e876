"""The same log gives the same folder, byte for byte, in every version of this format.

The digests are those of the first version, which held all events in memory and sorted them at once.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from turret.data.configuration import load_configuration
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

ROWS = 2_500


def tied_log(rows: int = ROWS) -> pl.DataFrame:
    """Events of few users and items at few moments, in no order, with all sorts of ties."""
    row = pl.int_range(rows, dtype=pl.Int64, eager=True)
    one, other = row * 48_271 % 2_147_483_647 % 8_191, row * 69_621 % 2_147_483_647 % 4_093
    return pl.DataFrame(
        {
            "user_id": one * one // 500_000 - 20,
            "item_id": other * other // 90_000 * 1_000_003,
            "timestamp": 1_500_000_000 + row * 7_919 % 503 * 86_400,
            "stars": row * 11 % 9 - 1,
            "event": pl.Series(["view", "buy", "buy", "look"] * (rows // 4)),
        }
    )


def _texts(log: pl.DataFrame) -> pl.DataFrame:
    return log.with_columns(
        user_id=pl.format("ü{}", pl.col("user_id")), item_id=pl.format("{}th", pl.col("item_id"))
    )


def _gaps(log: pl.DataFrame) -> pl.DataFrame:
    """Each column has missing and unreadable values."""
    row = pl.int_range(pl.len())
    return log.with_columns(
        user_id=pl.when(row % 101 != 5).then(pl.col("user_id")),
        item_id=pl.when(row % 103 != 7).then(pl.col("item_id")),
        timestamp=pl.when(row % 107 != 9).then(pl.col("timestamp")),
    )


def _catalog(folder: Path, log: pl.DataFrame) -> dict[str, Any]:
    items = log.select("item_id").unique(maintain_order=True).head(50)
    items.with_columns(title=pl.format("Title {}", pl.col("item_id"))).write_csv(folder / "items.csv")
    return {"items": folder / "items.csv"}


def _parts(folder: Path, log: pl.DataFrame) -> dict[str, Any]:
    log.head(1_900).write_parquet(folder / "train.parquet")
    log.tail(600).write_parquet(folder / "test.parquet")
    files = {"train": folder / "train.parquet", "test": folder / "test.parquet"}
    return {"source": None, "split": {"kind": "files", **files}}


def _csv(folder: Path, log: pl.DataFrame) -> dict[str, Any]:
    log.write_csv(folder / "events.csv")
    return {"source": folder / "events.csv"}


CORE = {"min_user_events": 8, "min_item_events": 11}
BY_TIME = {"kind": "time", "validation_fraction": 0.15, "test_fraction": 0.1}
KINDS = {"buy": "target:3.5", "view": "target:0.5"}
STARS = {"weight": "stars", "kind": "event"}

Given = Callable[[Path, pl.DataFrame], dict[str, Any]]
CASES: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], Given | None, dict[str, Any], str]] = {
    "integers": (lambda log: log, None, {}, "02358e51bca4262d"),
    "integers as text": (lambda log: log, _csv, {}, "02358e51bca4262d"),
    "texts": (_texts, None, {}, "716f9310cd393785"),
    "texts in a text file": (_texts, _csv, {"split": BY_TIME}, "2606f9aa6945ce95"),
    "padded integers": (
        lambda log: log.with_columns(pl.col("user_id").abs().cast(pl.String).str.zfill(3)),
        _csv,
        {},
        "cb152df265c75793",
    ),
    "fractional numbers": (
        lambda log: _gaps(log).with_columns(pl.col("user_id", "item_id").cast(pl.Float64)),
        None,
        {"on_bad": "drop"},
        "88fe19888daf5d7b",
    ),
    "unsigned integers": (
        lambda log: log.with_columns(pl.col("user_id").abs().cast(pl.UInt64) + 2**63 - 4),
        None,
        {},
        "62628ac99e773714",
    ),
    "small integers": (
        lambda log: log.with_columns(pl.col("user_id").cast(pl.Int8), pl.col("item_id").cast(pl.UInt32)),
        None,
        {},
        "02358e51bca4262d",
    ),
    "gaps": (_gaps, None, {"on_bad": "drop"}, "cecf8d5914b6e244"),
    "gaps in a text file": (_gaps, _csv, {"on_bad": "drop", "filters": CORE}, "adad40a77f08a0dc"),
    "first uses": (lambda log: log, None, {"filters": {"duplicates": "first"}}, "d9aa57026b9e3857"),
    "last uses": (
        _texts,
        None,
        {"filters": {"duplicates": "last", "min_item_events": 9}, "split": BY_TIME},
        "b82c438e9a70a11e",
    ),
    "exact repeats": (
        lambda log: pl.concat([log, log]),
        None,
        {"filters": {"duplicates": "exact"}},
        "54c276acd731e1f3",
    ),
    "a core": (lambda log: log, None, {"filters": CORE}, "0c4193b0a05eef2a"),
    "weights": (
        lambda log: log,
        None,
        {"columns": STARS, "kinds": KINDS, "filters": {"min_weight": 1.0}, "on_bad": "drop"},
        "feb037759f9b6d81",
    ),
    "order of the file": (
        lambda log: log,
        None,
        {"columns": {"in_file_order": True}, "filters": CORE},
        "5b343f2d8e7eff47",
    ),
    "fractional times": (
        lambda log: log.with_columns(pl.col("timestamp") / 86_400_000),
        None,
        {"split": BY_TIME},
        "9a9f9ccb81ac53b8",
    ),
    "dates": (
        lambda log: log.with_columns(pl.from_epoch("timestamp").dt.strftime("%Y-%m-%d")),
        _csv,
        {},
        "4cd131d0ea3dcd2b",
    ),
    "a catalog": (lambda log: log, _catalog, {"on_bad": "drop"}, "efa8f92c89db991b"),
    "a catalog of texts": (_texts, _catalog, {"on_bad": "drop"}, "316757a41d8b7bb4"),
    "files": (lambda log: log, _parts, {}, "a67c84a9e47818e1"),
    "files in order, filtered": (
        _texts,
        _parts,
        {"columns": {"in_file_order": True}, "filters": CORE},
        "2fa152c0ac495590",
    ),
}


def given(folder: Path, case: str) -> dict[str, Any]:
    """Write the log of a case, and give the settings that prepare it."""
    change, give, settings, _ = CASES[case]
    log = change(tied_log())
    log.write_parquet(folder / "events.parquet")
    return {"source": folder / "events.parquet", **(give(folder, log) if give else {}), **settings}


@pytest.mark.parametrize("case", CASES)
def test_a_log_is_prepared_as_it_always_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """In pieces, of whose size the result does not depend: the first version had one."""
    for module in ("events.events", "events.event_arrays", "histories.histories"):
        monkeypatch.setattr(f"turret.data.{module}.PIECE", 97)
    config = load_configuration(PrepareConfig, overrides=given(tmp_path, case))
    prepare(config, tmp_path / "prepared")
    stated = json.loads((tmp_path / "prepared" / "manifest.json").read_text("utf-8"))
    # Paths, and a sentence.
    del stated["sources"], stated["split"]["rule"]
    stated["filters"] = stated.pop("settings")["filters"]
    # Measured since then: tests/data/test_preparing.py.
    assert 0 <= stated.pop("repeat_share") + stated.pop("visit_repeat_share") < 1
    stated.pop("catalog_time")
    # Named otherwise since then.
    kinds, stated["filters"]["kind_weights"] = stated.pop("kinds"), {}
    stated["filters"]["kinds"] = []
    if kinds:
        stated["filters"]["kind_weights"] = {name: kind["weight"] for name, kind in kinds.items()}
        assert stated["split"]["targets"] == stated["split"]["events"]
    del stated["split"]["targets"], stated["default_kind"]
    # Named since then, and absent in these logs.
    assert [stated.pop("negatives"), *map(stated["columns"].pop, ("label", "negatives", "session"))] == [
        None
    ] * 4
    absent = ("default_kind", "session_gap", "max_user_events")
    assert [*map(stated["filters"].pop, absent)] == [None] * 3
    content = json.dumps(stated, sort_keys=True)
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == CASES[case][-1]
