from pathlib import Path

import polars as pl
import pytest

from turret.data.errors import SourceError
from turret.data.events.buckets import LoggedEvents
from turret.data.events.event_arrays import Events
from turret.data.events.events import Log, validate
from turret.data.events.read_events import IngestedEvents, read_events
from turret.data.preparing.columns import choose_columns
from turret.data.reading.readers import scan
from turret.data.reading.schema import ColumnSettings, FilterSettings, FormatSettings


def _log(path: Path, frame: pl.DataFrame) -> Log:
    frame.write_parquet(path)
    return _scanned(path)


def _scanned(path: Path) -> Log:
    table = scan(path, FormatSettings(), path.parent)
    columns = choose_columns(ColumnSettings(), table.columns(), "log")
    return validate([(None, table)], columns, ColumnSettings(), FilterSettings(), None)


def _rows(found: IngestedEvents) -> list[tuple[object, object, object]]:
    assert isinstance(found.events, LoggedEvents)
    events = Events(**found.events.read(0, len(found.events)))
    users, items = found.users.gather(events.users), found.items.gather(events.items)
    return list(zip(users.to_list(), items.to_list(), events.times.tolist(), strict=True))


@pytest.mark.parametrize("piece", [1, 7, 1_000])
def test_events_are_read_in_the_order_of_the_source_and_bad_rows_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("turret.data.events.read_events.PIECE", piece)
    frame = pl.DataFrame(
        {
            "user": [row % 5 if row % 11 else None for row in range(90)],
            "item": [f"i{row * 7 % 13}" if row % 17 else "" for row in range(90)],
            "time": [row * 31 % 50 for row in range(90)],
        }
    )
    found = read_events(_log(tmp_path / "log.parquet", frame), tmp_path)
    good = [(user, item, time) for user, item, time in frame.rows() if user is not None and item]
    assert _rows(found) == good
    assert [(bad.kind, bad.count) for bad in found.bad_rows] == [("null item", 5), ("null user", 9)]
    assert [example["row"] for example in found.bad_rows[0].examples] == [18, 35, 52]
    assert found.removed == []


def test_what_is_kept_of_an_event_are_numbers(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["a"], "item": [5], "time": [0.5], "note": ["long"]})
    found = read_events(_log(tmp_path / "log.parquet", frame), tmp_path)
    assert isinstance(found.events, LoggedEvents)
    assert {name: column.dtype.name for name, column in found.events.read(0, 1).items()} == {
        "users": "int32",
        "items": "int32",
        "times": "float64",
    }
    assert (found.users.to_list(), found.items.to_list()) == (["a"], [5])


def test_a_source_that_breaks_off_is_refused_by_its_name(tmp_path: Path) -> None:
    """The index of a Parquet file is at its end: damage in the middle shows only on reading."""
    path = tmp_path / "log.parquet"
    frame = pl.DataFrame({"user": range(50_000), "item": range(50_000), "time": range(50_000)})
    frame.write_parquet(path, compression="zstd", row_group_size=10_000)
    log = _scanned(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 60_000] = bytes(60_000)
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"log\.parquet can't be read"):
        read_events(log, tmp_path)


def test_bad_rows_of_parts_are_named_by_their_file_and_its_rows(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for number, users in enumerate([[1, 2, 3], [4], [5, None]]):
        frame = pl.DataFrame(
            {"user": users, "item": users, "time": users}, schema_overrides={"user": pl.Int64}
        )
        frame.write_parquet(folder / f"part-{number}.parquet")
    (bad,) = read_events(_scanned(folder), tmp_path).bad_rows
    assert bad.examples == [{"file": "part-2.parquet", "row": 2, "user": None, "item": None, "time": None}]


def test_parts_of_different_columns_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for name in ("user", "client"):
        frame = pl.DataFrame({name: [1], "item": [1], "time": ["1"]})
        frame.write_parquet(folder / f"part-{name[::-1]}.parquet")
    with pytest.raises(SourceError, match="events can't be read"):
        read_events(_scanned(folder), tmp_path)
