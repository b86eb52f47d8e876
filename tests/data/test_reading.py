"""Sources of events: which files are read, and delimited text, JSON lines and Parquet."""

import csv
import gzip
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turret.data.configuration import load_configuration
from turret.data.errors import SourceError
from turret.data.object_stores.local_copies import LocalCopies
from turret.data.reading.delimited import scan_delimited
from turret.data.reading.json_lines import scan_json_lines
from turret.data.reading.open_source import open_source
from turret.data.reading.readers import is_parts, scan
from turret.data.reading.schema import FormatSettings, PrepareConfig
from turret.data.reading.tables import ROW, Source, Table


def _open_source(tmp_path: Path, **overrides: object) -> Source:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    config = load_configuration(PrepareConfig, overrides=named)
    return open_source(config, work, LocalCopies(work))


def test_a_folder_of_events_items_and_users_is_opened_whole(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("events.csv", "items.jsonl"):
        (folder / name).write_text('{"item_id": 1}\n')
    source = _open_source(tmp_path, source=folder)
    assert source.items is not None
    assert source.users is None
    assert [path.name for path in source.files] == ["events.csv", "items.jsonl"]


def test_other_usual_names_are_found_unless_two_could_be_meant(tmp_path: Path) -> None:
    for name in ("transactions.csv", "products.csv", "customers.csv"):
        (tmp_path / name).write_text("a,b\n")
    source = _open_source(tmp_path, source=tmp_path)
    assert [path.name for path in source.files] == ["transactions.csv", "products.csv", "customers.csv"]
    (tmp_path / "clicks.tsv").write_text("a\tb\n")
    with pytest.raises(SourceError, match=r"clicks\.tsv and transactions\.csv"):
        _open_source(tmp_path, source=tmp_path)


def test_a_folder_without_events_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refusal:
        _open_source(tmp_path, source=tmp_path)
    for name in ("events", "transactions", ".csv", ".parquet", ".jsonl", "u.data", "ratings.dat", "--train"):
        assert name in str(refusal.value)
    with pytest.raises(SourceError, match="there is no file or folder"):
        _open_source(tmp_path, source=tmp_path / "none")


FRAME = pl.DataFrame({"user": [1, 2], "tags": [["a"], []]})


def test_parquet_and_json_lines_keep_their_types(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "t.parquet")
    FRAME.write_ndjson(tmp_path / "t.jsonl")
    for name in ("t.parquet", "t.jsonl"):
        table = scan(tmp_path / name, FormatSettings(), tmp_path)
        assert table.frame.collect().rows() == [(1, 1, ["a"]), (2, 2, [])]
        assert not table.is_text


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


def test_a_column_that_only_later_parts_have_or_that_changes_its_type_stops_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    pl.DataFrame({"a": [1], "odd": [1]}).write_parquet(folder / "part-0.parquet")
    pl.DataFrame({"a": [2], "odd": ["x"], "more": [None]}).write_parquet(folder / "part-1.parquet")
    table = scan(folder, FormatSettings(), tmp_path)
    assert table.columns() == ["a", "odd"]
    assert table.frame.select("a").collect().rows() == [(1,), (2,)]


def _scan_text(path: Path, content: str | bytes, **options: object) -> Table:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    work = path.parent / "work"
    work.mkdir(exist_ok=True)
    return scan_delimited(path, FormatSettings.model_validate(options), work)


def _rows(table: Table) -> list[tuple[object, ...]]:
    return table.frame.collect().rows()


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_the_commonest_delimiter_of_the_header_is_taken(tmp_path: Path, delimiter: str) -> None:
    table = _scan_text(tmp_path / "t.csv", "user,item\n1,a b\n2,\n".replace(",", delimiter))
    assert _rows(table) == [(2, "1", "a b"), (3, "2", None)]
    assert table.columns() == ["user", "item"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
def test_every_encoding_gives_the_same_rows(tmp_path: Path, encoding: str) -> None:
    content = "id,näme\n1,Amélie\n".encode(encoding)
    table = _scan_text(tmp_path / "t.csv", content, encoding="utf-8" if "8-sig" in encoding else encoding)
    assert (table.columns(), _rows(table)) == (["id", "näme"], [(2, "1", "Amélie")])


def test_other_shapes_of_files_are_read(tmp_path: Path) -> None:
    assert _rows(_scan_text(tmp_path / "t.csv", "1::a::b\n", delimiter="::", has_header=False)) == [
        (1, "1", "a", "b")
    ]
    assert _rows(_scan_text(tmp_path / "t.csv.gz", gzip.compress(b"a,b\n1,2\n"))) == [(2, "1", "2")]
    assert _rows(_scan_text(tmp_path / "t.csv", 'a,b\n1,say "hi"\n', quote="")) == [(2, "1", 'say "hi"')]
    assert _rows(_scan_text(tmp_path / "t.csv", "a,b\n1,'x,y'\n", quote="'")) == [(2, "1", "x,y")]
    assert _rows(_scan_text(tmp_path / "t.csv", "a,b\r\n1,2\r\n\r\n3,4")) == [(2, "1", "2"), (4, "3", "4")]


def test_malformed_lines_are_counted_shown_and_left_out(tmp_path: Path) -> None:
    table = _scan_text(tmp_path / "t.csv", 'a,b\n1,2\n3\n4,5,6\n\n"7"8,9\n10,11\n12\n')
    assert _rows(table) == [(2, "1", "2"), (7, "10", "11")]
    assert table.malformed.count == 4
    assert table.malformed.examples == (
        {"row": 3, "problem": "1 of 2 fields"},
        {"row": 4, "problem": "3 of 2 fields"},
        {"row": 6, "problem": "',' expected after '\"'"},
    )


def test_what_can_not_be_read_is_refused_with_what_to_try(tmp_path: Path) -> None:
    latin = "a,b\n1,é\n".encode("latin-1")
    for content, options, sentence in [
        (latin, {}, r"not text in the encoding 'utf-8'; try --encoding cp1252, latin-1"),
        (latin, {"encoding": "ascii"}, r"not text in the encoding 'ascii'; try --encoding utf-8"),
        (latin, {"encoding": "klingon"}, r"unknown encoding 'klingon'; try utf-8"),
        (b"", {}, "is empty"),
        (b'a,b\n1,"2\n3,4\n', {}, r"an unclosed quote.*--quote"),
    ]:
        with pytest.raises(SourceError, match=sentence):
            _scan_text(tmp_path / "t.csv", content, **options)
    with pytest.raises(SourceError, match="can't be decompressed"):
        _scan_text(tmp_path / "t.csv.gz", b"a,b\n")


def test_columns_of_one_name_are_told_apart_by_their_number(tmp_path: Path) -> None:
    table = _scan_text(tmp_path / "t.csv", b"a,b,a\n1,2,3\n")
    assert table.columns() == ["a (column 1)", "b", "a (column 3)"]
    assert [row[1:] for row in _rows(table)] == [("1", "2", "3")]


FIELD = st.text(st.sampled_from('ab1 ,"\n;'), min_size=1, max_size=6)


@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=6))
def test_whatever_a_csv_writer_writes_is_read_back(tmp_path: Path, rows: list[tuple[str, str, str]]) -> None:
    with (tmp_path / "w.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("a", "b", "c"), *rows])
    table = _scan_text(tmp_path / "t.csv", (tmp_path / "w.csv").read_bytes())
    assert [row[1:] for row in _rows(table)] == rows
    assert not table.malformed.count
    assert ROW not in table.columns()


def _scan_lines(tmp_path: Path, text: bytes) -> Table:
    path, work = tmp_path / "log.jsonl", tmp_path / "work"
    path.write_bytes(text)
    work.mkdir()
    return scan_json_lines(path, FormatSettings(), work)


@pytest.mark.parametrize(
    "broken",
    [
        b'{"a": ',
        b'{"a": 1} x',
        b"[1]",
        b"5",
        b'{"a": "\xe9"}',
        b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
    ],
    ids=str,
)
def test_a_broken_line_is_counted_with_its_number_and_the_others_are_read(
    tmp_path: Path, broken: bytes
) -> None:
    table = _scan_lines(tmp_path, b'{"a": 1}\n\n' + broken + b'\n{"a": 3}\n')
    assert table.frame.select(ROW, "a").collect().rows() == [(1, 1), (4, 3)]
    assert table.columns() == ["a"]
    assert table.malformed.count == 1
    assert table.malformed.examples[0]["row"] == 3
    assert table.path == tmp_path / "log.jsonl"


def test_numbers_that_python_writes_for_none_are_missing_and_cost_no_line(tmp_path: Path) -> None:
    table = _scan_lines(tmp_path, b'{"a": 1, "b": NaN}\n{"a": -Infinity, "b": 2.5}\n{"a": 3, "b": "x"}\n')
    assert table.frame.select("a", "b").collect().rows() == [(1, None), (None, "2.5"), (3, "x")]
    assert table.malformed.count == 0


def test_a_column_of_mixed_types_becomes_text_and_stops_no_other(tmp_path: Path) -> None:
    lines = [
        b'{"a": 1, "odd": 7, "n": 1}',
        b'{"a": 2, "odd": ["x", {"y": 1.5}], "n": 1.5}',
        b"{broken",
        b'{"a": 3, "odd": null}',
        '{"a": 4, "odd": "é"}'.encode(),
    ]
    table = _scan_lines(tmp_path, b"\n".join(lines) + b"\n")
    assert table.frame.select(ROW, "a", "odd", "n").collect().rows() == [
        (1, 1, "7", 1.0),
        (2, 2, '["x", {"y": 1.5}]', 1.5),
        (4, 3, None, None),
        (5, 4, "é", None),
    ]
    assert table.malformed.count == 1


def test_a_file_without_any_object_is_no_json_lines(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"log\.jsonl holds no JSON object"):
        _scan_lines(tmp_path, b"user,item\n1,2\n")
