from pathlib import Path

import polars as pl

from benchmarks.time_to_quality import some_users


def test_a_quick_run_has_a_hundredth_of_the_users(tmp_path: Path) -> None:
    """With all of their events."""
    events = pl.DataFrame({"user_id": [user for user in range(300) for _ in range(5)], "item_id": 1})
    events.write_parquet(tmp_path / "all.parquet")
    some = pl.read_parquet(some_users(tmp_path / "all.parquet", tmp_path / "some.parquet"))
    assert some["user_id"].to_list() == [0] * 5 + [1] * 5 + [2] * 5
