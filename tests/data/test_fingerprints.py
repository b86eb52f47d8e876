"""The same log gives the same folder, byte for byte, in every version of this format.

The digests are of what the first version wrote, which held all events in memory and sorted them at once.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.conftest import prepare_as

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


def _plain(log: pl.DataFrame) -> pl.DataFrame:
    return log


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


def _strangers(log: pl.DataFrame) -> pl.DataFrame:
    user = pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.col("user_id"))
    return log.with_columns(session=pl.col("item_id") % 13, user_id=user)


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


def _json(folder: Path, log: pl.DataFrame) -> dict[str, Any]:
    log.write_ndjson(folder / "events.jsonl")
    return {"source": folder / "events.jsonl"}


CORE = {"min_user_events": 8, "min_item_events": 11}
BY_TIME = {"kind": "time", "validation_fraction": 0.15, "test_fraction": 0.1}
KINDS = {"buy": "target:3.5", "view": "target:0.5"}
STARS = {"weight": "stars", "kind": "event"}

Given = Callable[[Path, pl.DataFrame], dict[str, Any]]
CASES: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], Given | None, dict[str, Any], str]] = {
    "integers": (_plain, None, {}, "8654c4ceefc523c4"),
    "integers as text": (_plain, _csv, {}, "8654c4ceefc523c4"),
    "integers in JSON lines": (_plain, _json, {}, "8654c4ceefc523c4"),
    "texts": (_texts, None, {}, "2674837cd011c481"),
    "texts in a text file": (_texts, _csv, {"split": BY_TIME}, "8b59891a639de801"),
    "fractional numbers": (
        lambda log: _gaps(log).with_columns(pl.col("user_id", "item_id").cast(pl.Float64)),
        None,
        {"on_bad": "drop"},
        "0eb0c1774e24104b",
    ),
    "small integers": (
        lambda log: log.with_columns(pl.col("user_id").cast(pl.Int8), pl.col("item_id").cast(pl.UInt32)),
        None,
        {},
        "8654c4ceefc523c4",
    ),
    "gaps": (_gaps, None, {"on_bad": "drop"}, "946d790ff4ac24cf"),
    "gaps in a text file": (_gaps, _csv, {"on_bad": "drop", "filters": CORE}, "a5397c6c5d618224"),
    "a core": (_plain, None, {"filters": CORE}, "f48a90b9bdaff452"),
    "weights": (
        _plain,
        None,
        {"columns": STARS, "kinds": KINDS, "filters": {"min_weight": 1.0}, "on_bad": "drop"},
        "74d651517524f0bc",
    ),
    "signals, negatives and strangers": (
        _strangers,
        None,
        {
            "columns": {"kind": "event", "session": "session"},
            "kinds": {"view": "signal", "buy": "target:2:consume", "look": "negative"},
            "filters": {"duplicates": "strongest", "session_gap": "90d", "max_user_events": 200},
        },
        "d422ba6f649f089a",
    ),
    "labels": (
        lambda log: log.with_columns(label=pl.col("stars") % 3 > 0),
        None,
        {"columns": {"label": "label"}, "filters": {"min_user_events": 4, "min_item_events": 4}},
        "550b87b444eff51b",
    ),
    "fractional times": (
        lambda log: log.with_columns(pl.col("timestamp") / 86_400_000),
        None,
        {"split": BY_TIME},
        "58a043c02b982d7b",
    ),
    "a catalog": (_plain, _catalog, {"on_bad": "drop"}, "8c66c65cb8a0d042"),
    "a catalog of texts": (_texts, _catalog, {"on_bad": "drop"}, "b1e7a57f842a6ff2"),
    "files": (_plain, _parts, {}, "58a8c480572d3356"),
    "files in order, filtered": (
        _texts,
        _parts,
        {"columns": {"in_file_order": True}, "filters": CORE},
        "75090568151213e2",
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
    for module in ("events.log", "events.event_arrays"):
        monkeypatch.setattr(f"turret.data.{module}.PIECE", 97)
    prepare_as(tmp_path / "prepared", **given(tmp_path, case))
    stated = json.loads((tmp_path / "prepared" / "manifest.json").read_text("utf-8"))
    del stated["split"]["rule"]  # a sentence
    stated["files"].pop("sessions.npy", None)  # the first version kept no sessions
    told = ("files", "counts", "bad_rows", "removed", "time", "split")
    content = json.dumps({name: stated[name] for name in told}, sort_keys=True)
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == CASES[case][-1]
