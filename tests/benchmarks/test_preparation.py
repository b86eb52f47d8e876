from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks import preparation
from benchmarks.preparation import Size, check, measure, write_log
from benchmarks.preparation_turn import BARE, WAYS
from benchmarks.protocol import Options

SECONDS = {"prepare": 3.0, "sink_parquet": 4.0, "collect, in memory": 2.0, "collect, streaming": 5.0}


def test_a_log_is_parts_in_the_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "EVENTS_PER_PART", 2_000)
    write_log(tmp_path / "log", 5_000)
    parts = [pl.read_parquet(path) for path in sorted((tmp_path / "log").iterdir())]
    assert [part.height for part in parts] == [2_000, 2_000, 1_000]
    assert pl.concat(parts)["timestamp"].is_sorted()
    users = pl.concat(parts)["user_id"].value_counts()["count"]
    assert users.max() > 2 * users.mean()  # type: ignore[operator]


def test_both_sides_sort_the_same_and_a_difference_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn_here(way: str, log: Path, target: Path) -> None:
        WAYS[way](log, target)

    monkeypatch.setattr(preparation, "turn", turn_here)
    write_log(tmp_path / "log", 3_000)
    (tmp_path / "equal").mkdir()
    check(tmp_path / "log", tmp_path / "equal")
    (tmp_path / "other").mkdir()
    shifted = pl.scan_parquet(tmp_path / "log" / "*.parquet").with_columns(pl.col("timestamp") + 1)
    monkeypatch.setitem(WAYS, "sink_parquet", lambda _, target: shifted.sink_parquet(target))
    with pytest.raises(SystemExit, match="is not what the bare sort gives"):
        check(tmp_path / "log", tmp_path / "other")


def test_the_largest_log_is_compared_with_the_fastest_bare_way(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def turn(way: str, log: Path, target: Path) -> dict[str, float]:
        taken.append(way)
        target.write_text("")
        return {"seconds": SECONDS[way] * len(taken), "peak_gb": len(taken) / 10}

    monkeypatch.setattr(preparation, "SIZES", (Size(1_000, 1), Size(2_000_000, 2)))
    monkeypatch.setattr(preparation, "turn", turn)
    monkeypatch.setattr(preparation, "check", lambda *_: None)
    figures: dict[str, Any] = measure(Options(Path(), quick=False, as_json=False))
    assert taken == ["prepare", *BARE, *["prepare", "collect, in memory"] * 2]
    assert figures["bare_way"] == "collect, in memory"
    # Turns five to eight: 15 and 21 seconds against 12 and 16.
    assert figures["over_bare_2e6"] == 18 / 14
    assert (figures["over_bare_2e6_least"], figures["over_bare_2e6_greatest"]) == (15 / 12, 21 / 16)
    assert figures["peak_gb_2e6"] == 0.7
    assert figures["nanoseconds_per_event_2e6"] == pytest.approx(9_000)
    assert figures["cost_per_event_2e6_over_1e3"] == pytest.approx(9_000 / 3_000_000)


def test_sizes_are_called_by_their_power_of_ten() -> None:
    assert [Size(events, 1).label for events in (10**6, 3 * 10**6, 10**8)] == ["1e6", "3e6", "1e8"]
