from pathlib import Path

import pytest

from benchmarks import history_load
from benchmarks.history_load import load_raw, measure_growth, measure_store, write_log, write_parts


@pytest.mark.nightly
def test_stores_and_growth_are_measured_on_a_log_of_which_all_is_checked(tmp_path: Path) -> None:
    write_log(tmp_path, 2_000)
    growth = measure_growth(tmp_path)
    assert {step: row["events"] for step, row in growth.items()} == {"prepare": 2_000, "append": 2_000}
    steps = measure_store(f"sqlite:///{tmp_path}/h.sqlite", tmp_path / "prepared", tmp_path, 2_000)
    assert [steps[step]["events"] for step in ("load", "again", "dump")] == [2_000, 0, 2_000]
    assert all(row["events_per_second"] > 0 and row["peak_mb"] > 10 for row in steps.values())


@pytest.mark.nightly
def test_a_long_log_of_several_files_is_loaded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_load, "PART", 300)
    write_parts(tmp_path / "log", 1_000)
    assert len(list((tmp_path / "log").iterdir())) == 4
    assert load_raw(tmp_path / "log", f"sqlite:///{tmp_path}/h.sqlite") == 1_000
