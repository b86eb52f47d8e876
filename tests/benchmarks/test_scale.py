"""The measurements of sizes on small ones."""

import sys
from pathlib import Path

import pytest

from benchmarks.command_cost import command_cost
from benchmarks.scale_histories import Stored, made_events, measure_sqlite
from benchmarks.scale_preparation import Log, measure_log
from benchmarks.scale_training import Shape, log_of
from turret.data.prepared import PreparedData


def test_the_cost_of_a_command_is_that_of_its_own_process() -> None:
    """Its peak holds what it allocates, and not what this process holds."""
    ours = bytearray(300_000_000)
    cost = command_cost(sys.executable, "-c", "x = bytearray(10**8)")
    assert 100 < cost.peak_mb < 250
    assert cost.processor_seconds > 0
    assert len(ours) == 300_000_000


def test_the_events_of_users_are_stored_in_turns() -> None:
    events = [event for portion in made_events(Stored(3, 2)) for event in portion]
    assert [event.user for event in events] == ["u000000", "u000001", "u000002"] * 2
    assert len({event.event_id for event in events}) == 6


def test_the_bytes_of_sqlite_grow_with_the_events() -> None:
    few, many = measure_sqlite(Stored(50, 2)), measure_sqlite(Stored(50, 200))
    assert 5 * few < many < 5


@pytest.mark.nightly
def test_prepared_logs_have_the_measured_sizes(tmp_path: Path) -> None:
    row = measure_log(Log(2_000, 40, 10), tmp_path / "log")
    assert (row["events"], row["users"], row["items"]) == (2_000, 40, 10)
    data = PreparedData.open(tmp_path / "log" / "work" / "prepared")
    assert {one.name for one in data.item_features.features} >= {"title", "genres", "price"}
    assert 0 < row["prepared_mb"] <= row["work_mb"] < 1
    prepared = log_of(Shape(items=390, dimension=8, history=20), tmp_path, least_events=400)
    data = PreparedData.open(prepared)
    assert set(data.offsets[1:] - data.offsets[:-1]) == {20}
