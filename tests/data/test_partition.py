import numpy as np
import polars as pl
import pytest

from data.errors import ColumnError, ConfigurationError, EmptyDataError
from data.packing import Events
from data.partition import partition
from data.schema import FilesSplit, LastSplit, TimeSplit
from data.times import TimeReader, read_positions

OFFSETS = np.array([0, 4, 6])
NUMBERS = TimeReader("number", pl.col("t"), "")
TIMES = TimeReader("timestamp", pl.col("t"), "")


def _events(parts: list[int] | None = None) -> Events:
    return Events(
        users=np.array([0, 0, 0, 0, 1, 1], dtype=np.int32),
        items=np.arange(6, dtype=np.int32),
        times=np.array([10, 20, 30, 40, 15, 35]),
        parts=None if parts is None else np.array(parts, dtype=np.int8),
    )


def test_the_summary_counts_events_and_users_by_part() -> None:
    summary = partition(_events(), OFFSETS, LastSplit(), NUMBERS).summary
    assert summary.events == {"train": 4, "validation": 1, "test": 1}
    assert summary.users == {"train": 2, "validation": 1, "test": 1}
    assert "fewer than 3 events keep all in train" in summary.rule


def test_moments_and_fractions_cut_by_time() -> None:
    moments = TimeSplit(kind="time", validation_from=20, test_from=35)
    assert partition(_events(), OFFSETS, moments, NUMBERS).splits.tolist() == [[1, 3], [5, 5]]
    fractions = TimeSplit(kind="time", validation_fraction=0.3, test_fraction=0.3)
    assert partition(_events(), OFFSETS, fractions, NUMBERS).summary.events["test"] == 2


def test_dates_are_shown_in_the_rule() -> None:
    split = TimeSplit(kind="time", validation_from="1970-01-01", test_from="1970-01-02")
    with pytest.raises(
        EmptyDataError, match=r"no events for training: train is before 1970-01-01T00:00:00\.000"
    ):
        partition(_events(), OFFSETS, split, TIMES)


def test_a_split_by_time_needs_times_in_order() -> None:
    with pytest.raises(ConfigurationError, match="needs a column of times"):
        partition(_events(), OFFSETS, TimeSplit(kind="time"), read_positions("row"))
    with pytest.raises(ConfigurationError, match=r"validation_from = 9.* has to be before test_from = 8"):
        partition(_events(), OFFSETS, TimeSplit(kind="time", validation_from=9, test_from=8), NUMBERS)
    split = TimeSplit(kind="time", validation_from="2020-01-01", test_from="2020-01-02")
    with pytest.raises(ColumnError, match="give a number"):
        partition(_events(), OFFSETS, split, NUMBERS)


def test_files_give_the_parts_and_a_tail_stands_in_for_a_validation_file() -> None:
    events = _events([0, 0, 2, 2, 0, 2])
    split = FilesSplit.model_validate(
        {"kind": "files", "train": "a", "test": "b", "validation_fraction": 0.5}
    )
    assert partition(events, OFFSETS, split, NUMBERS).splits.tolist() == [[1, 2], [5, 5]]
    whole = split.model_copy(update={"validation_fraction": 0})
    assert partition(events, OFFSETS, whole, NUMBERS).splits.tolist() == [[2, 2], [5, 5]]
