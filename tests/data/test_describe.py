from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from turret.data.describe import describe, histogram
from turret.data.errors import DataError
from turret.data.prepared import PreparedData

EVENTS = "user_id,item_id,timestamp\n" + "".join(
    f"{u},{i},{978300760 + u + i}\n" for u in range(4) for i in range(3)
)


def test_the_description_says_what_is_there(prepared: Callable[..., PreparedData]) -> None:
    folder = prepared(EVENTS + "5,1,never\n", {"on_bad": "drop", "filters.duplicates": "first"}).folder
    text = describe(folder)
    for part in (
        "events         12",
        "users          4 (3.0 events each)",
        "items          3 (4.0 events each)",
        "density        100.000%",
        "repeats        0.0% of the events repeat an item of their user",
        "2000-12-31T22:12:40 to 2000-12-31T22:12:45 (UTC)",
        "train 4 events of 4 users; validation 4 events of 4 users; test 4 events of 4 users",
        "unreadable time: 1",
        "row 14, user_id 5, item_id 1, timestamp never",
        "filter duplicates = first: 0",
    ):
        assert part in text


def test_orders_without_times_are_named(prepared: Callable[..., PreparedData]) -> None:
    numbers = prepared("user_id,item_id,timestamp\n1,1,5\n1,2,7\n").folder
    assert "numbers from 5 to 7" in describe(numbers)
    positions = prepared("user_id,item_id\n1,1\n1,2\n", {"columns.in_file_order": True}).folder
    assert "positions in the file" in describe(positions)


def test_the_histogram_doubles_its_ranges_and_its_bars_are_in_proportion() -> None:
    lines = histogram(np.array([1, 2, 3, 3, 2, 8, 0]), "users")
    assert [line.split() for line in lines] == [
        ["1", "#" * 10, "1", "users"],
        ["2-3", "#" * 40, "4", "users"],
        ["4-7", "0", "users"],
        ["8-15", "#" * 10, "1", "users"],
    ]


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not prepared data"):
        describe(tmp_path)
