"""Tables in memory: what the command line reads from files, the Python API takes from any Arrow table."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import turret
from tests.support.tools import require
from tests.turret.conftest import stored
from turret.data.prepared import PreparedData

EVENTS = pl.DataFrame(
    {
        "user_id": [f"u{number % 7}" for number in range(84)],
        "item_id": [f"i{number % 12}" for number in range(84)],
        "timestamp": range(1_700_000_000, 1_700_000_000 + 84 * 60, 60),
    }
)
ITEMS = pl.DataFrame(
    {
        "item_id": [f"i{number}" for number in range(12)],
        "genres": [["drama"], ["war", "drama"], []] * 4,
        "released": [datetime(2020, 1 + number, 2) for number in range(12)],  # pandas has no dates
    }
)


class ArrowTable:
    """A table of which only the Arrow PyCapsule interface is known."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def pandas_frame(frame: pl.DataFrame) -> Any:
    require("pandas")
    return frame.to_pandas()


def pyarrow_table(frame: pl.DataFrame) -> Any:
    require("pandas")
    return frame.to_arrow()


@pytest.fixture(params=[ArrowTable, pandas_frame, pyarrow_table], ids=["arrow", "pandas", "pyarrow"])
def make(request: pytest.FixtureRequest) -> Callable[[pl.DataFrame], Any]:
    """Make a table of each kind; those of libraries that are not installed are skipped."""
    made: Callable[[pl.DataFrame], Any] = request.param
    return made


def assert_same(one: PreparedData, other: PreparedData) -> None:
    assert one.fingerprint == other.fingerprint
    assert one.fields == other.fields
    assert [feature.name for feature in one.item_features.features] == [
        feature.name for feature in other.item_features.features
    ]
    np.testing.assert_array_equal(one.event_items, other.event_items)


def test_a_table_of_any_library_is_prepared_and_appended_as_files_are(
    make: Callable[[pl.DataFrame], Any], tmp_path: Path
) -> None:
    EVENTS.write_parquet(tmp_path / "events.parquet")
    ITEMS.write_parquet(tmp_path / "items.parquet")
    files = turret.prepare(tmp_path / "events.parquet", tmp_path / "files", items=tmp_path / "items.parquet")
    first, second = EVENTS[:60], EVENTS[50:]
    tables = turret.prepare(make(first), tmp_path / "tables", items=make(ITEMS))
    assert tables.manifest.counts.events == 60
    tables = turret.append(make(second), tmp_path / "tables", items=make(ITEMS))
    assert_same(tables, files)


def test_a_table_that_its_library_can_not_export_names_the_extra(tmp_path: Path) -> None:
    """Pandas does it by PyArrow, and raises an ImportError without a name."""

    class Unexportable(ArrowTable):
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            raise ImportError("Missing optional dependency 'pyarrow'.")

    with pytest.raises(turret.MissingExtraError, match=r"events can't be .* run: pip install .*\[pandas\]'"):
        turret.prepare(Unexportable(EVENTS), tmp_path / "prepared")


def test_a_table_of_any_library_fills_a_store(make: Callable[[pl.DataFrame], Any], tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/history.sqlite"
    report = turret.load_histories(make(EVENTS), address)
    assert (report.stored, report.users) == (84, 7)
    expected = EVENTS.filter(user_id="u3").sort("timestamp")
    times = [1000 * time for time in expected["timestamp"]]
    found = [(event.item, event.time) for event in stored(address, "u3")]
    assert found == list(zip(expected["item_id"], times, strict=True))
    again = turret.load_histories(make(EVENTS), address)
    assert (again.kept, again.stored) == (84, 0)


def test_a_store_is_filled_from_prepared_data_its_folder_or_a_file(tmp_path: Path) -> None:
    renamed = EVENTS.rename({"user_id": "customer", "item_id": "sku"})
    renamed.write_csv(tmp_path / "log.csv")
    data = turret.prepare(EVENTS, tmp_path / "prepared")
    address = f"sqlite:///{tmp_path}/history.sqlite"
    assert turret.load_histories(data, address).stored == 84
    assert turret.load_histories(tmp_path / "prepared", address).stored == 0
    assert turret.load_histories(tmp_path / "log.csv", address, user="customer", item="sku").stored == 0


def test_a_store_is_filled_where_an_event_loop_runs(tmp_path: Path) -> None:
    """As in a notebook."""
    address = f"sqlite:///{tmp_path}/history.sqlite"

    async def cell() -> int:
        return turret.load_histories(EVENTS, address).stored

    assert asyncio.run(cell()) == 84


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: turret.append(EVENTS, path / "none"), "is not prepared data"),
        (lambda path: turret.append([1], path), "events can't be read from a list"),  # type: ignore[arg-type]
        (lambda path: turret.load_histories(EVENTS, "memory://"), "--store"),
        (lambda path: turret.load_histories(None, "memory://"), "events can't be read from a NoneType"),  # type: ignore[arg-type]
        (lambda path: turret.load_histories(path / "none.csv", "redis:///x"), "none.csv"),
        (lambda path: turret.load_histories(EVENTS, "ftp://x"), "sqlite:///"),
        (lambda path: turret.load_histories(EVENTS.drop("item_id"), "redis:///x"), "--item"),
    ],
)
def test_errors_name_the_option(call: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(turret.TurretError, match=message):
        call(tmp_path)


def test_items_that_were_a_table_have_to_be_given_again(tmp_path: Path) -> None:
    """Their file was temporary."""
    turret.prepare(EVENTS, tmp_path / "prepared", items=ITEMS)
    with pytest.raises(turret.TurretError, match="--items"):
        turret.append(EVENTS, tmp_path / "prepared")
