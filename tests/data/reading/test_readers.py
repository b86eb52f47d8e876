from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from turret.data.errors import SourceError
from turret.data.reading.readers import is_parts, scan, suffix
from turret.data.reading.schema import FormatSettings

FRAME = pl.DataFrame({"user": [1, 2], "tags": [["a"], []]})


def test_parquet_and_json_lines_keep_their_types(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "t.parquet")
    FRAME.write_ndjson(tmp_path / "t.jsonl")
    for name in ("t.parquet", "t.jsonl"):
        table = scan(tmp_path / name, FormatSettings(), tmp_path)
        assert table.frame.collect().rows() == [(1, 1, ["a"]), (2, 2, [])]
        assert not table.is_text


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_name_is_no_pattern(tmp_path: Path, ending: str) -> None:
    """Such as of a second download, beside the first."""
    write: dict[str, Callable[[Path], object]] = {
        "csv": FRAME.drop("tags").write_csv,
        "parquet": FRAME.write_parquet,
        "jsonl": FRAME.write_ndjson,
    }
    folder = tmp_path / "log [a-z]"
    folder.mkdir()
    write[ending](folder / f"events[1].{ending}")
    (folder / f"events1.{ending}").write_text("another file")
    table = scan(folder / f"events[1].{ending}", FormatSettings(), folder)
    assert table.frame.collect()["user"].cast(pl.Int64).to_list() == [1, 2]


def test_types_of_json_lines_come_from_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"item": 1}\n' * 200 + '{"item": "x"}\n')
    items = scan(tmp_path / "t.jsonl", FormatSettings(), tmp_path).frame.collect()["item"]
    assert items[0] == "1"
    assert items[-1] == "x"


def test_the_kind_can_be_named_where_the_file_does_not_say(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "events")
    with pytest.raises(
        SourceError, match=r"has none of the suffixes \.csv, .*; give its format with --format"
    ):
        scan(tmp_path / "events", FormatSettings(), tmp_path)
    assert scan(tmp_path / "events", FormatSettings(kind="parquet"), tmp_path).columns() == ["user", "tags"]


def test_missing_and_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no file .*none\.csv"):
        scan(tmp_path / "none.csv", FormatSettings(), tmp_path)
    (tmp_path / "t.parquet").write_text("text")
    with pytest.raises(SourceError, match="can't be read: "):
        scan(tmp_path / "t.parquet", FormatSettings(), tmp_path)


def test_the_longest_known_ending_counts() -> None:
    endings = [suffix(Path(name)) for name in ("a.csv", "a.csv.gz", "a.b.TSV", "A.CSV.GZ", "a.gz", "csv")]
    assert endings == [".csv", ".csv.gz", ".tsv", ".csv.gz", None, None]


def _in_parts(folder: Path) -> Path:
    folder.mkdir()
    for number, users in enumerate([[1, 2, 3], [4], [5, 6]]):
        pl.DataFrame({"user": users}).write_parquet(folder / f"part-{number:05}.parquet")
    (folder / "_SUCCESS").write_text("")
    return folder


def test_a_folder_of_parts_is_one_table_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = _in_parts(tmp_path / "events")
    table = scan(folder, FormatSettings(), tmp_path)
    assert table.frame.collect().rows() == [(row, row) for row in range(1, 7)]
    assert [file.name for file in table.files] == [f"part-0000{number}.parquet" for number in range(3)]
    assert is_parts(folder)
    assert not is_parts(tmp_path)


def test_a_row_is_found_in_its_part(tmp_path: Path) -> None:
    table = scan(_in_parts(tmp_path / "events"), FormatSettings(), tmp_path)
    found = [table.locate(row) for row in (1, 3, 4, 5, 6)]
    assert [(file.name[-9], row) for file, row in found] == [
        ("0", 1),
        ("0", 3),
        ("1", 1),
        ("2", 1),
        ("2", 2),
    ]


def test_a_column_that_only_later_parts_have_or_that_changes_its_type_stops_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    pl.DataFrame({"a": [1], "odd": [1]}).write_parquet(folder / "part-0.parquet")
    pl.DataFrame({"a": [2], "odd": ["x"], "more": [None]}).write_parquet(folder / "part-1.parquet")
    table = scan(folder, FormatSettings(), tmp_path)
    assert table.columns() == ["a", "odd"]
    assert table.frame.select("a").collect().rows() == [(1,), (2,)]
