"""Sources of events: which files are read, and delimited text, JSON lines and Parquet."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turret.data.configuration import load_configuration
from turret.data.errors import SourceError
from turret.data.reading.open_source import open_source
from turret.data.reading.readers import scan
from turret.data.reading.schema import PrepareConfig
from turret.data.reading.source_settings import FormatSettings
from turret.data.reading.tables import ROW, Source, Table


def _open_source(tmp_path: Path, **overrides: object) -> Source:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    config = load_configuration(PrepareConfig, overrides=named)
    return open_source(config, work, {})


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


def test_a_regular_csv_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item,time\n1,a,5\n")
    _open_source(tmp_path, source=tmp_path / "events.csv")
    assert not [*(tmp_path / "work").iterdir()]


def _zip(content: bytes, *names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return stream.getvalue()


def _zstandard(content: bytes) -> bytes:
    stream = io.BytesIO()
    lines = pl.DataFrame({"line": content.decode().splitlines()})
    lines.write_csv(stream, include_header=False, quote_style="never", separator="\x1f", compression="zstd")
    return stream.getvalue()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": _zstandard,
    "zip": lambda content: _zip(content, "log.txt", "__MACOSX/._log.txt"),
}


@pytest.mark.parametrize("compression", PACK)
def test_every_format_is_read_from_every_compression(tmp_path: Path, compression: str) -> None:
    parquet = io.BytesIO()
    pl.DataFrame({"a": ["1", "2"]}).write_parquet(parquet)
    contents = {"csv": b"a\n1\n2\n", "jsonl": b'{"a": "1"}\n{"a": "2"}\n', "parquet": parquet.getvalue()}
    if compression == "zst":  # polars unpacks it, as text
        del contents["parquet"]
    for kind, content in contents.items():
        packed = tmp_path / f"t.{kind}.{compression}"
        packed.write_bytes(PACK[compression](content))
        table = scan(packed, FormatSettings(), tmp_path)
        assert table.frame.select("a").collect().rows() == [("1",), ("2",)]
        assert (table.path, table.files) == (packed, (packed,))


def test_what_is_packed_is_seen_by_the_content_and_its_format_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "b.csv").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    (tmp_path / "c.zip").write_bytes(_zip(gzip.compress(b"a,b\n1,2\n"), "folder/c.csv.gz"))
    for name in ("a.csv.gz", "b.csv", "c.zip"):
        assert _rows(scan(tmp_path / name, FormatSettings(), tmp_path)) == [(2, "1", "2")]


LATIN = "a,b\n1,é\n".encode("latin-1")
WORKBOOK = _zip(b"", "[Content_Types].xml", "xl/workbook.xml")


@pytest.mark.parametrize(
    ("name", "content", "encoding", "sentence"),
    [
        ("none.csv", None, "utf-8", r"there is no file .*none\.csv"),
        ("t.parquet", b"text", "utf-8", "is no whole Parquet file; export it again"),
        ("log", b"a", "utf-8", r"none of the suffixes \.csv, .*; unpack .*give the format .* with --format"),
        (
            "t.csv.gz",
            gzip.compress(b"a,b\n", mtime=0)[:-3],
            "utf-8",
            "can't be decompressed: .*; fetch or export",
        ),
        ("t.zip", _zip(b"", "a.csv", "b.csv"), "utf-8", r"a zip of 2 files \(a\.csv, b\.csv\) .* unpack it"),
        ("t.xlsx", WORKBOOK, "utf-8", "is a workbook; save its sheet as CSV"),
        ("t.csv", LATIN, "utf-8", r"the encoding 'utf-8' \(line 2, byte 3\); try --encoding cp1252$"),
        ("t.csv", LATIN, "ascii", r"the encoding 'ascii' \(line 2, byte 3\); try --encoding cp1252$"),
        ("t.csv", LATIN, "klingon", r"unknown encoding 'klingon'; give one of Python, such as utf-8"),
        ("t.csv", "a,b\n".encode("utf-32-le"), "utf-8", "try --encoding utf-32-le$"),
    ],
)
def test_what_can_not_be_read_is_refused_with_what_to_do(
    tmp_path: Path, name: str, content: bytes | None, encoding: str, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=sentence):
        scan(tmp_path / name, FormatSettings(encoding=encoding), tmp_path)


def test_the_kind_can_be_named_where_the_file_does_not_say(tmp_path: Path) -> None:
    pl.DataFrame({"user": [1, 2], "tags": [["a"], []]}).write_parquet(tmp_path / "events")
    assert scan(tmp_path / "events", FormatSettings(kind="parquet"), tmp_path).columns == ["user", "tags"]


def _in_parts(folder: Path, *users: list[int], name: str = "part.{}.parquet") -> Path:
    for number, part in enumerate(users):
        path = folder / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = pl.DataFrame({"user": part, "day": [number] * len(part)})
        if path.suffix == ".parquet":
            frame.write_parquet(path)
        else:
            frame.write_csv(path)
    (folder / "_SUCCESS").write_text("")
    (folder / ".part.0.crc").write_text("")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "part.{}.parquet",
        "{:012}.parquet",
        "part-{}-0b1c.c000.snappy.parquet",
        "h={}/part-0.parquet",
        "log-{}.csv",
    ],
)
def test_the_parts_of_a_folder_are_one_table_in_the_order_of_their_numbers(tmp_path: Path, name: str) -> None:
    users = [[10 * part, 10 * part + 1] for part in range(12)]
    folder = _in_parts(tmp_path / "events", *users, name=name)
    table = scan(folder, FormatSettings(), tmp_path)
    frame = table.frame.sort(ROW).collect()
    assert frame["user"].cast(pl.Int64).to_list() == [user for part in users for user in part]
    assert frame[ROW].is_unique().all()
    assert [file.relative_to(folder).as_posix() for file in table.files] == [
        name.format(n) for n in range(12)
    ]
    row = frame.filter(pl.col("user").cast(pl.Int64) == 101)[ROW].item()
    number = 3 if name.endswith("csv") else 2
    assert table.place(row) == {"file": name.format(10), "row": number}


@pytest.mark.parametrize("name", ["day={}/part-0.parquet", "day={}/part-0.csv"])
def test_names_of_folders_such_as_day_1_are_a_column(tmp_path: Path, name: str) -> None:
    for number in (9, 10):
        path = tmp_path / "log" / name.format(number)
        path.parent.mkdir(parents=True)
        frame = pl.DataFrame({"user": [number]})
        frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)
    table = scan(tmp_path / "log", FormatSettings(), tmp_path)
    assert table.frame.select(pl.col("user", "day").cast(pl.Int64)).collect().rows() == [(9, 9), (10, 10)]


def test_json_parts_have_the_columns_of_all_and_count_their_broken_lines(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "1.json").write_text('{"a": 1, "b": "x"}\n{broken\n')
    (folder / "2.json").write_text('[{"a": 2, "c": true}]')
    table = scan(folder, FormatSettings(kind="jsonl"), tmp_path)
    assert table.frame.select("a", "b", "c").collect().rows() == [(1, "x", None), (2, None, True)]
    assert table.malformed.count == 1
    assert table.malformed.examples[0]["file"] == "1.json"


def test_files_that_are_no_parts_of_one_table_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "a.csv").write_text("user,item\n1,2\n")
    (folder / "b.csv").write_text("user,tag\n1,2\n")
    with pytest.raises(SourceError, match=r"b\.csv has no column item as a\.csv beside it has"):
        scan(folder, FormatSettings(), tmp_path)
    (folder / "b.csv").rename(folder / "b.jsonl")
    with pytest.raises(SourceError, match=r"holds a\.csv and b\.jsonl, which are no parts of one table"):
        scan(folder, FormatSettings(), tmp_path)


def test_a_column_that_only_later_parts_have_or_that_changes_its_type_stops_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    pl.DataFrame({"a": [1], "odd": [1]}).write_parquet(folder / "part-0.parquet")
    pl.DataFrame({"a": [2], "odd": ["x"], "more": [None]}).write_parquet(folder / "part-1.parquet")
    table = scan(folder, FormatSettings(), tmp_path)
    assert table.columns == ["a", "odd"]
    assert table.frame.select("a").collect().rows() == [(1,), (2,)]


def _scan_text(path: Path, content: str | bytes, **options: object) -> Table:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    work = path.parent / "work"
    work.mkdir(exist_ok=True)
    return scan(path, FormatSettings.model_validate({"kind": "csv", **options}), work)


def _rows(table: Table) -> list[tuple[object, ...]]:
    return table.frame.collect().rows()


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_the_commonest_delimiter_of_the_header_is_taken(tmp_path: Path, delimiter: str) -> None:
    table = _scan_text(tmp_path / "t.csv", "user,item\n1,a b\n2,\n".replace(",", delimiter))
    assert _rows(table) == [(2, "1", "a b"), (3, "2", None)]
    assert table.columns == ["user", "item"]
    stated_for_another_file = _scan_text(tmp_path / "t.csv", "user,item\n1,2\n", delimiter="::")
    assert stated_for_another_file.columns == ["user", "item"]


@pytest.mark.parametrize(
    ("encoding", "stated"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-8"),
        ("utf-16-le", "utf-16-le"),
        ("cp1252", "cp1252"),
        ("latin-1", "latin-1"),
        ("utf-8", "latin-1"),  # stated for another file
    ],
)
def test_every_encoding_gives_the_same_rows(tmp_path: Path, encoding: str, stated: str) -> None:
    table = _scan_text(tmp_path / "t.csv", "id,näme\n1,Amélie\n".encode(encoding), encoding=stated)
    assert (table.columns, _rows(table)) == (["id", "näme"], [(2, "1", "Amélie")])


def test_other_shapes_of_files_are_read(tmp_path: Path) -> None:
    assert _rows(_scan_text(tmp_path / "t.csv", "1::a::b\n", delimiter="::", has_header=False)) == [
        (1, "1", "a", "b")
    ]
    assert _rows(_scan_text(tmp_path / "t.csv", 'a,b\n1,say "hi"\n', quote="")) == [(2, "1", 'say "hi"')]
    assert _rows(_scan_text(tmp_path / "t.csv", "a,b\n1,'x,y'\n", quote="'")) == [(2, "1", "x,y")]
    assert _rows(_scan_text(tmp_path / "t.csv", "a,b\r\n1,2\r\n\r\n3,4")) == [(2, "1", "2"), (4, "3", "4")]
    assert _rows(_scan_text(tmp_path / "t.csv", "a,b\r1,2\r3,4")) == [(2, "1", "2"), (3, "3", "4")]
    assert _rows(_scan_text(tmp_path / "t.csv", "sep=;\r\na;b\r\n1,5;2\r\n")) == [(3, "1,5", "2")]
    assert _rows(_scan_text(tmp_path / "t.csv", '"a\nb",c\n1\n2,3\n')) == [(4, "2", "3")]


def test_blanks_around_names_and_behind_delimiters_belong_to_no_value(tmp_path: Path) -> None:
    table = _scan_text(tmp_path / "t.csv", 'a, b, c\n1, 2, "x, y"\n')
    assert (table.columns, _rows(table)) == (["a", "b", "c"], [(2, "1", "2", "x, y")])
    assert _scan_text(tmp_path / "t.csv", "a ,b\n1,2\n").columns == ["a", "b"]


def test_a_quote_behind_a_backslash_is_a_quote(tmp_path: Path) -> None:
    text = 'a,b\n"say \\"hi\\"",1\n"ends \\"",2\n"C:\\",3\n"two\nlines \\"x\\"",4\n'
    table = _scan_text(tmp_path / "t.csv", text)
    assert [row[1:] for row in _rows(table)] == [
        ('say "hi"', "1"),
        ('ends "', "2"),
        ("C:\\", "3"),
        ('two\nlines "x"', "4"),
    ]
    assert not table.malformed.count


@pytest.mark.parametrize("has_header", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_with_another_number_of_fields_leave_the_others_as_they_are(
    tmp_path: Path, has_header: bool, mark: str
) -> None:
    """Numbers of lines count blank ones; a quoted field may hold delimiters, but not in a malformed line."""
    text = mark + 'a,b\n1,"x, y"\n\n1,2,3\n  \nz\n4,\n'
    table = _scan_text(tmp_path / "t.csv", text, has_header=has_header)
    first = [] if has_header else [(1, "a", "b")]
    assert _rows(table) == [*first, (2, "1", "x, y"), (7, "4", None)]
    problems = ({"row": 4, "problem": "3 of 2 fields"}, {"row": 6, "problem": "1 of 2 fields"})
    assert (table.malformed.count, table.malformed.examples) == (2, problems)


def test_malformed_lines_are_counted_shown_and_left_out(tmp_path: Path) -> None:
    table = _scan_text(tmp_path / "t.csv", 'a,b\n1,2\n3\n4,5,6\n\n"7"8,9\n10,11\n12\n')
    assert _rows(table) == [(2, "1", "2"), (7, "10", "11")]
    assert table.malformed.count == 4
    assert table.malformed.examples == (
        {"row": 3, "problem": "1 of 2 fields"},
        {"row": 4, "problem": "3 of 2 fields"},
        {"row": 6, "problem": "a quote inside a field; --quote '' takes quotes as text"},
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('a,b\n1,2\n3,"4\n5,6\n7,8\n', "an unclosed quote"),
        ('a,b\n1,2\n3,"4\n5,6\n7,8"x\n', "a quote inside a field"),
    ],
)
def test_a_loose_quote_costs_its_own_line_alone(tmp_path: Path, text: str, problem: str) -> None:
    table = _scan_text(tmp_path / "t.csv", text)
    assert [row[1] for row in _rows(table)] == ["1", "5", "7"]
    assert table.malformed.examples == ({"row": 3, "problem": f"{problem}; --quote '' takes quotes as text"},)


def test_columns_of_one_name_are_told_apart_by_their_number(tmp_path: Path) -> None:
    table = _scan_text(tmp_path / "t.csv", b"a,b,a\n1,2,3\n")
    assert table.columns == ["a (column 1)", "b", "a (column 3)"]
    assert [row[1:] for row in _rows(table)] == [("1", "2", "3")]


FIELD = st.text(st.sampled_from('ab1 ,"\n;'), min_size=1, max_size=6)


@given(rows=st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=6))
def test_whatever_a_csv_writer_writes_is_read_back(tmp_path: Path, rows: list[tuple[str, str, str]]) -> None:
    with (tmp_path / "w.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("a", "b", "c"), *rows])
    table = _scan_text(tmp_path / "t.csv", (tmp_path / "w.csv").read_bytes())
    assert [row[1:] for row in _rows(table)] == rows
    assert not table.malformed.count
    assert ROW not in table.columns


def _scan_lines(tmp_path: Path, text: bytes) -> Table:
    return _scan_text(tmp_path / "log.jsonl", text, kind="auto")


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
    assert table.columns == ["a"]
    assert table.malformed.count == 1
    assert table.malformed.examples[0]["row"] == 3
    assert table.path == tmp_path / "log.jsonl"


def test_numbers_that_python_writes_for_none_are_missing_and_cost_no_line(tmp_path: Path) -> None:
    table = _scan_lines(tmp_path, b'{"a": 1, "b": NaN}\n{"a": -Infinity, "b": 2.5}\n{"a": 3, "b": "x"}\n')
    assert table.frame.select("a", "b").collect().rows() == [(1, None), (None, "2.5"), (3, "x")]
    assert table.malformed.count == 0


def test_a_column_of_mixed_types_makes_the_table_one_of_texts(tmp_path: Path) -> None:
    lines = [
        b'{"a": 1, "odd": 7, "n": 1}',
        b'{"a": 2, "odd": ["x", {"y": 1.5}], "n": 1.5}',
        b"{broken",
        b'{"a": 3, "odd": null}',
        '{"a": 4, "odd": "é"}'.encode(),
    ]
    table = _scan_lines(tmp_path, b"\n".join(lines) + b"\n")
    assert table.frame.select(ROW, "a", "odd", "n").collect().rows() == [
        (1, "1", "7", "1"),
        (2, "2", '["x", {"y": 1.5}]', "1.5"),
        (4, "3", None, None),
        (5, "4", "é", None),
    ]
    assert table.malformed.count == 1


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1, "b": "x"}, {"a": 2, "b": null}]',
        '[\n  {\n    "a": 1,\n    "b": "x"\n  },\n  {\n    "a": 2,\n    "b": null\n  }\n]\n',
        '[\n{"a": 1, "b": "x"},\n{"a": 2, "b": null}\n]',
        '{\n"a": 1,\n"b": "x"\n}\n{\n"a": 2,\n"b": null\n}\n',
        "{'a': 1, u'b': 'x'}\n{'a': 2, 'b': None}\n",
        '\ufeff{"a": 1, "b": "x"}\n{"a": 2, "b": null}\n',
    ],
)
def test_objects_are_read_from_arrays_over_several_lines_and_as_python_prints_them(
    tmp_path: Path, text: str
) -> None:
    table = _scan_lines(tmp_path, text.encode())
    assert table.frame.select(ROW, "a", "b").collect().rows() == [(1, 1, "x"), (2, 2, None)]
    assert not table.malformed.count


def test_an_array_longer_than_what_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turret.data.reading.json_lines._CHUNK", 7)
    table = _scan_lines(tmp_path, b'[{"a": [1, 2]}, {"a": []}, {"a": [333333333333]}]')
    assert table.frame.select("a").collect().rows() == [([1, 2],), ([],), ([333333333333],)]


@pytest.mark.parametrize("text", [b"user,item\n1,2\n", b"[1, 2]", b"[" * 9, b'{"a":' * 10_000, b'{"a":\n'])
def test_a_file_without_any_object_is_refused_with_its_first_line(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(SourceError, match=r"log\.jsonl holds no JSON object \(line 1: .*an array of objects"):
        _scan_lines(tmp_path, text)


def test_a_catalog_has_a_form_of_its_own(tmp_path: Path) -> None:
    """The suffix of its file wins over the format of the events, and `items_format` over both."""
    (tmp_path / "log.json").write_text('{"user": 1}\n')
    (tmp_path / "items.csv").write_text("id,name\n1,x\n")
    (tmp_path / "plain.csv").write_text("1,x\n")
    named = {"source": tmp_path / "log.json", "format__kind": "jsonl"}
    source = _open_source(tmp_path, **named, items=tmp_path / "items.csv")
    assert source.items is not None
    assert source.items.columns == ["id", "name"]
    source = _open_source(tmp_path, **named, items=tmp_path / "plain.csv", items_format__has_header=False)
    assert source.items is not None
    assert _rows(source.items) == [(1, "1", "x")]


def test_a_folder_without_named_events_has_them_in_all_its_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("2024-05-09.csv", "2024-05-10.csv.gz", "items.csv", "people.csv", "README.md"):
        (folder / name).write_text("a,b\n1,2\n")
    source = _open_source(tmp_path, source=folder, users=folder / "people.csv")
    assert [path.name for path in source.parts[0][1].files] == ["2024-05-09.csv", "2024-05-10.csv.gz"]
    assert source.items is not None
    assert [path.name for path in source.unread] == ["README.md"]
