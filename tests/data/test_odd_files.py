"""Files as spreadsheets, warehouses and scripts leave them: read as meant, or refused with a remedy."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize

import numpy as np
import polars as pl
import pytest

from tests.data.conftest import Prepare, prepare_as
from tests.support.bounded import ending
from turret.data.configuration import load_configuration, parse_overrides
from turret.data.errors import BadRowsError, ColumnError, ConfigurationError, SourceError
from turret.data.prepared import PreparedData
from turret.data.preparing.feature_readings import field_values
from turret.data.preparing.vectors import file_vectors
from turret.data.reading.readers import scan
from turret.data.reading.schema import PrepareConfig
from turret.data.reading.source_settings import FormatSettings
from turret.data.reading.tables import ROW, Table
from turret.data.vocabulary import plain_id


def _scan(path: Path, **settings: str) -> Table:
    work = path.parent / "work"
    work.mkdir(exist_ok=True)
    return scan(path, FormatSettings.model_validate(settings), work)


@pytest.mark.parametrize("mark", ["_delta_log", ".hoodie", "metadata"])
def test_a_table_that_keeps_older_versions_is_refused_by_its_kind(tmp_path: Path, mark: str) -> None:
    table = tmp_path / "orders"
    (table / mark).mkdir(parents=True)
    (table / mark / "v1.metadata.json").touch()
    part = table / "day=2023-11-14" / "part-0.parquet"
    part.parent.mkdir()
    pl.DataFrame({"user": [1]}).write_parquet(part)
    for place in (table, tmp_path, part.parent, part):
        with pytest.raises(SourceError, match=r"orders is a (Delta|Hudi|Iceberg) table.*newest version"):
            _scan(place)


@pytest.mark.parametrize("again", ["user,item", '"user","item"', "User, ITEM ", '\ufeff"user" ,item'])
@pytest.mark.parametrize("item", ["4", '"a\nb"'])
def test_a_header_in_the_middle_is_no_row(tmp_path: Path, item: str, again: str) -> None:
    path = tmp_path / "joined.csv"
    path.write_text(f"user,item\n1,2\n{again}\n3,{item}\nuser,item\n")
    table = _scan(path)
    assert table.frame.select("user").collect()["user"].to_list() == ["1", "3"]
    assert table.malformed.count == 2
    assert table.malformed.examples[0] == {"row": 3, "problem": "the header again"}


@pytest.mark.parametrize("line", [" " * 300_000 + "x", "user" + " " * 300_000, "user," + '" ' * 150_000])
def test_a_line_of_many_blanks_is_compared_with_the_header_in_the_time_of_its_length(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "joined.csv"
    path.write_text(f'user,item\n1,2\n{line}\n3,"a\nb"\n')
    with ending():
        table = _scan(path)
        assert table.frame.select("user").collect()["user"].to_list()[:1] == ["1"]


def test_bytes_are_the_texts_that_they_are(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pl.DataFrame({"text": ["kü".encode(), None], "uuid": [b"\xff\xfe", b"a"]}).write_parquet(path)
    assert _scan(path).frame.select("text", "uuid").collect().to_dict(as_series=False) == {
        "text": ["kü", None],
        "uuid": [b"\xff\xfe", b"a"],
    }


def test_parts_of_parquet_get_common_types_and_the_names_of_the_first(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    first = pl.DataFrame({"user": [1], "time": [1]}, schema={"user": pl.Int32, "time": pl.Datetime("ms")})
    first.write_parquet(parts / "part-0.parquet")
    other = pl.DataFrame(
        {"USER": [2**40], "time": [1_000]}, schema={"USER": pl.Int64, "time": pl.Datetime("us")}
    )
    other.write_parquet(parts / "part-1.parquet")
    rows = _scan(parts).frame.collect()
    assert rows["user"].to_list() == [1, 2**40]
    assert rows["time"].dt.epoch("ms").to_list() == [1, 1]
    assert rows[ROW].to_list() == [1, 2]
    pl.DataFrame({"user": [[1]], "time": [1]}).write_parquet(parts / "part-2.parquet")
    with pytest.raises(SourceError, match=r"column 'user' of part-2\.parquet holds List"):
        _scan(parts)
    pl.DataFrame({"user": [1]}).write_parquet(parts / "part-2.parquet")
    with pytest.raises(SourceError, match=r"part-2\.parquet has no column time"):
        _scan(parts)


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("one", "other"), [("a", ["a"]), ("a", {"b": "a"}), (1, {"b": 1}), ([1.0], {"b": 1})]
)
def test_a_list_or_a_record_beside_others_in_a_part_is_refused(
    tmp_path: Path, ending: str, one: object, other: object
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, value in enumerate((None, one, None, other)):
        frame = pl.DataFrame({"user": [1], "item": [value]})
        path = parts / f"{number}.{ending}"
        frame.write_parquet(path) if ending == "parquet" else frame.write_ndjson(path)
    with pytest.raises(SourceError, match=rf"'item' of 3\.{ending} holds .*, and that of 1\.{ending} "):
        _scan(parts)


@pytest.mark.parametrize("name", ["events.csv", "events.jsonl"])
def test_a_broken_byte_costs_its_line_alone(tmp_path: Path, name: str) -> None:
    lines = ["user,item", "张伟,1", "李娜,2", "王芳,3"]
    if name == "events.jsonl":
        lines = [f'{{"user": "{line[:2]}", "item": {line[-1]}}}' for line in lines[1:]]
    content = "\n".join(lines).encode().replace("李".encode(), b"\xe6\x9d")
    (tmp_path / name).write_bytes(content)
    table = _scan(tmp_path / name)
    assert table.frame.collect()["user"].to_list() == ["张伟", "王芳"]
    assert table.malformed.count == 1
    assert table.malformed.examples[0]["row"] == content.split(b"\n").index(content.split(b"\n")[-2]) + 1


def test_a_broken_byte_of_a_header_or_in_an_array_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(b"us\xe9r,item\n" + "张伟,1\n李娜,2\n".encode())
    with pytest.raises(SourceError, match=r"line 1 of .*events\.csv: byte 3 is no UTF-8"):
        _scan(path)
    array, path = (
        '[{"user": "张伟"},\n{"user": "李娜"},\n{"user": "王芳"}]'.encode(),
        tmp_path / "events.jsonl",
    )
    path.write_bytes(array.replace("李".encode(), b"\xe6\x9d"))
    table = _scan(path)
    assert table.frame.collect()["user"].to_list() == ["张伟", "王芳"]
    assert table.malformed.examples == ({"row": 2, "problem": "byte 11 is no UTF-8"},)
    path.write_bytes(path.read_bytes().replace(b"\n", b""))
    with pytest.raises(SourceError, match=r"'utf-8' \(line 1, byte 31\); correct this byte"):
        _scan(path)


@pytest.mark.parametrize(
    ("encoding", "names"),
    [
        ("cp1252", ["Größe", "Jürgen \u2013 l\u2019été", "Æther"]),
        ("gbk", ["张伟", "李娜"]),
        ("big5", ["張偉", "王"]),
        ("cp1251", ["Иван", "Я"]),
        ("cp1250", ["Łódź", "Gdańsk", "żółw"]),
        ("cp1254", ["şeker", "doğa"]),
        ("mac-roman", ["Zoé", "Jürgen"]),
    ],
)
def test_an_encoding_is_advised_only_if_it_destroys_no_letter(
    tmp_path: Path, encoding: str, names: list[str]
) -> None:
    """Each of these decodes as latin-1, and most as cp1252."""
    (tmp_path / "events.csv").write_bytes(
        "\n".join(["user,item", *(f"{name},1" for name in names)]).encode(encoding)
    )
    advice = (
        "try --encoding cp1252$" if encoding == "cp1252" else "state its own with --encoding, such as gbk"
    )
    with pytest.raises(SourceError, match=rf"not text in the encoding 'utf-8' \(line 2, byte \d\); {advice}"):
        _scan(tmp_path / "events.csv")


def test_ids_have_no_blanks_around_them_and_one_form_of_each_letter(prepared: Prepare) -> None:
    plain, decomposed = "Café", normalize("NFD", "Café")
    data = prepared(f"user,item,time\nu1  ,{plain},1\nu1,{decomposed},2\n\u200b \u00a0u1\u200e,{plain} ,3\n")
    assert data.users.ids([0]) == ["u1"]
    assert data.item_ids.ids(range(len(data.item_ids))) == [plain]
    assert (plain_id("\u200b \u00a0u1\u200e "), plain_id(decomposed), plain_id("\u200b")) == (
        "u1",
        plain,
        "\u200b",
    )


def test_letters_with_more_signs_than_a_script_has_cost_no_quadratic_time() -> None:
    odd = "a" + "\u0301\u0316" * 255
    assert plain_id(odd) == odd


@pytest.mark.parametrize("number", ["8.71112E+12", "8.71112e+12", "8.71112E12", "8e+12"])
def test_numbers_that_a_spreadsheet_rounded_are_no_ids(
    prepared: Prepare, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.data.events.ids._SAMPLE", 1)
    head, rows = "user,item,time", ["u1,8711127345678,3", f"u1,{number},1", f"u2,{number},2"]
    with pytest.raises(BadRowsError, match="item rounded by a spreadsheet: 2"):
        prepared("\n".join([head, *rows]))
    with pytest.raises(BadRowsError, match="session rounded by a spreadsheet: 1"):
        prepared(f"session,item,time\n{number},a,1\n7,b,2\n", {"columns.session": "session"})
    with pytest.raises(BadRowsError, match="item rounded by a spreadsheet: 1"):
        prepared(f"{head},not\nu1,a,1,7\nu1,b,2,9|{number}\n", {"columns.negatives": "not"})


def test_numbers_with_all_their_digits_are_ids_whatever_their_form(prepared: Prepare) -> None:
    assert len(prepared("user,item,time\nu1,1.5E+1,1\nu1,7,2\nu1,1E5,3\nu1,77E2,4\n").item_ids) == 4
    assert prepared("user,item,time\nu1,1e+05,1\nu1,99999,2\n").item_ids.ids([0, 1]) == [99999, 100_000]


@pytest.mark.parametrize("time", ["1.70000E+12", "1.70000e+09"])
def test_times_that_a_spreadsheet_rounded_are_refused(prepared: Prepare, time: str) -> None:
    with pytest.raises(ColumnError, match=f"rounded by a spreadsheet, as {re.escape(time)};"):
        prepared(f"user,item,time\nu1,1,{time}\nu1,2,{time}\n")
    data = prepared("user,item,time\nu1,1,1.700000060E+09\nu1,2,1.7E+09\n")  # without zeros at the end
    assert data.times[:].tolist() == [1_700_000_000_000, 1_700_000_060_000]


@pytest.mark.parametrize("values", [[[1, 2]], [{"item": 1}]])
def test_a_row_of_several_events_is_refused_with_the_remedy(prepared: Prepare, values: list[object]) -> None:
    with pytest.raises(ColumnError, match="one row for each event"):
        prepared(pl.DataFrame({"user": [1], "item": values, "time": [1]}))


@pytest.mark.parametrize(
    ("texts", "decimal", "expected"),
    [
        (["5.99", None, "12"], ".", [5.99, None, 12.0]),
        (["1.006", "742"], ",", [1006.0, 742.0]),
        (["1.006", "742"], ".", ["1.006", "742"]),  # one thousand and six, or a little more than one
        (["1.006", "742.5"], ".", [1.006, 742.5]),
        (["Drama|Horror", "Drama", "Horror"], ".", [["Drama", "Horror"], ["Drama"], ["Horror"]]),
        (["true", "False"], ".", [True, False]),
        (["007", "012"], ".", ["007", "012"]),
    ],
)
def test_a_field_has_the_type_that_a_feature_of_its_values_has(
    texts: list[str | None], decimal: str, expected: list[object]
) -> None:
    settings = FormatSettings.model_validate({"decimal": decimal})
    assert field_values(pl.Series("field", texts), settings).to_list() == expected


def test_formats_of_times_that_come_late_are_looked_for_in_the_rows_that_fail(
    prepared: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.data.reading.times._SAMPLE", 3)
    days = [f"2024-01-0{n}" for n in range(1, 7)]
    others = ["07.01.2024", "08.01.2024 12:30", "1704844800", "1704931200000"]
    rows = [f"u{n % 2},i{n},{time}" for n, time in enumerate([*days, *others])]
    data = prepared("\n".join(["user,item,time", *rows]))
    assert len(data.times[:]) == len(rows)
    assert int(data.times[:].max()) == 1704931200000


def test_a_stated_format_adds_to_those_that_are_found(prepared: Prepare) -> None:
    log = "user,item,time\nu1,a,2024-01-01\nu1,b,1st of Feb 2024\nu1,c,2024-03-01\n"
    data = prepared(log, {"columns.time_format": ["1st of %b %Y"]})
    assert len(data.times[:]) == 3


def test_a_number_of_another_unit_than_the_stated_one_is_a_bad_row(prepared: Prepare) -> None:
    with pytest.raises(BadRowsError, match="unreadable time: 1"):
        prepared(f"{LOG}u2,b,1700000000000\n", {"columns.time_unit": "seconds"})


def test_a_stated_format_that_reads_times_of_the_future_makes_no_events(prepared: Prepare) -> None:
    with pytest.raises(BadRowsError, match="time before 1990 or in the future: 2"):
        prepared("user,item,time\nu1,a,1704067200000\nu1,b,1704067260000\n", {"columns.time_format": ["%s"]})


def test_a_target_kind_does_not_lose_most_of_its_rows_without_being_told(prepared: Prepare) -> None:
    views = [f"u{n % 4},i{n % 5},view,{1_700_000_000 + n}" for n in range(20)]
    bought = [f"u{n},i{n},purchase,{'soon' if n else 1_700_000_100}" for n in range(4)]
    settings = {"columns.kind": "kind", "kinds": {"purchase": "target", "view": "signal"}, "on_bad": "drop"}
    log = "\n".join(["user,item,kind,time", *views, *bought])
    reasons = (
        r"rows of the kind purchase: unreadable time: 3\n    row 23, user u1[\s\S]*"
        "--time-format[^;]*; correct them, or drop them with --on-bad drop=any"
    )
    with pytest.raises(BadRowsError, match=reasons):
        prepared(log, settings)
    prepared(log, {**settings, "on_bad": "drop=any"})


@pytest.mark.parametrize("name", ["*", "^a.*$"])
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_column_whose_name_is_a_pattern_of_polars_is_refused(
    tmp_path: Path, name: str, ending: str
) -> None:
    frame, path = pl.DataFrame({"user": [1], name: [2]}), tmp_path / f"events.{ending}"
    writers: dict[str, Callable[[Path], None]] = {
        "csv": frame.write_csv,
        "parquet": frame.write_parquet,
        "jsonl": frame.write_ndjson,
    }
    writers[ending](path)
    with pytest.raises(SourceError, match="form of a pattern; rename it"):
        _scan(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_name_of_a_file_that_is_not_utf_8_is_refused(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    path = folder / os.fsdecode(b"k\xe4ufe." + ending.encode())
    frame = pl.DataFrame({"user": [1]})
    plain = tmp_path / "plain"
    frame.write_csv(plain) if ending == "csv" else frame.write_parquet(plain)
    plain.rename(path)
    for place in (path, folder):
        with pytest.raises(SourceError, match="is not UTF-8; rename"):
            _scan(place)


def test_a_quote_of_several_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,title\n1,«a,b«\n2,c\n")
    rows = _scan(tmp_path / "events.csv", quote="«").frame.select("title").collect()
    assert rows["title"].to_list() == ["a,b", "c"]


def test_an_items_file_without_any_id_names_its_rows(prepared: Prepare, tmp_path: Path) -> None:
    path = tmp_path / "goods.csv"
    path.write_text("item,title\n,x\n")
    with pytest.raises(BadRowsError, match=r"null id: 1[\s\S]*no row of .*goods\.csv has an id"):
        prepared("user,item,time\nu1,a,1\n", {"items": path})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_that_no_feature_can_hold_are_refused(prepared: Prepare, tmp_path: Path, ending: str) -> None:
    items, path = pl.DataFrame({"item": ["a", "b"], "price": [1e308, 2.5]}), tmp_path / f"goods.{ending}"
    items.write_csv(path) if ending == "csv" else items.write_parquet(path)
    log = "user,item,time\nu1,a,1\nu1,b,2\n"
    with pytest.raises(ColumnError, match=r"'price' holds 1e\+308.*--item-ignore"):
        prepared(log, {"items": path})
    prepared(log, {"items": path, "item_features.ignore": ["price"]})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4', "])
def test_a_file_of_no_vectors_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    path, ids = tmp_path / "pictures.npy", tmp_path / "pictures.ids.npy"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"pictures\.npy can't be read"):
        file_vectors(path, ["a"], "item")
    np.save(path, np.ones((1, 2), dtype=np.float32))
    ids.write_bytes(content)
    with pytest.raises(SourceError, match=r"pictures\.ids\.npy can't be read"):
        file_vectors(path, ["a"], "item")


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000, "{a=" * 3000])
def test_settings_of_odd_forms_are_refused_in_a_short_sentence(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match="on_bad can't be") as refused:
        load_configuration(PrepareConfig, None, parse_overrides([f"on_bad={value}", "split.kind=last"]))
    assert len(str(refused.value)) < 200
    path = tmp_path / "settings.toml"
    path.write_text(f"on_bad = {value}")
    with pytest.raises(ConfigurationError, match="is not a TOML file"):
        load_configuration(PrepareConfig, path)


def test_settings_that_no_file_can_hold_are_refused() -> None:
    deep: object = "error"
    for _ in range(2000):
        deep = [deep]
    for value in (deep, "\ud800"):
        with pytest.raises(ConfigurationError, match="can't be written as JSON"):
            load_configuration(PrepareConfig, None, {"on_bad": value, "format.nulls": [value]})


def test_a_file_that_breaks_off_is_named(tmp_path: Path) -> None:
    memory = Path("/proc/self/mem")  # whose first byte no process may read
    with pytest.raises(SourceError, match=r"/proc/self/mem can't be read"):
        scan(memory, FormatSettings(kind="csv"), tmp_path)
    with pytest.raises(ConfigurationError, match=r"/proc/self/mem is not a TOML file"):
        load_configuration(PrepareConfig, memory)


@pytest.mark.parametrize("word", ["<NA>", "#N/A", "N/A", "undefined", "(not set)"])
def test_the_words_of_programs_for_no_value_are_no_ids(prepared: Prepare, word: str) -> None:
    with pytest.raises(
        BadRowsError, match=r"null user: 1[\s\S]*null item: 1|null item: 1[\s\S]*null user: 1"
    ):
        prepared(f"user,item,time\nu1,a,1\n{word},a,2\nu1,{word},3\n")


def test_rows_that_an_order_continues_are_refused_with_the_remedy(prepared: Prepare) -> None:
    with pytest.raises(BadRowsError, match="in its first row alone, fill the cells below"):
        prepared("user,item,time\nu1,a,1\n,b,\n")
    with pytest.raises(BadRowsError, match=r"--on-bad drop$"):
        prepared("user,item,time\nu1,a,1\n,b,2\nu1,c,3\n")


def test_ids_that_some_files_have_without_their_zeros_are_noted(tmp_path: Path) -> None:
    source = tmp_path / "events.csv"
    source.write_text("user,item,time\nu1,007,1\nu1,7,2\nu2,012,3\nu2,0,4\nu2,a,5\n")
    warnings = prepare_as(tmp_path / "prepared", source=source).warnings
    noted = [warning for warning in warnings if "zeros in front" in warning]
    assert len(noted) == 1
    assert "'item' has ids that differ in zeros in front alone (1), such as '007' and '7'" in noted[0]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_columns_may_have_any_name_but_those_that_are_added(tmp_path: Path, suffix: str) -> None:
    """Also those that a log and a catalog get while they are read."""
    names = ["__row", "__id", "__part", "__known", "raw_user", "user", "id", "line", "value", "kind", "label"]
    events = {"user_id": ["u1", "u1", "u2"], "item_id": ["a", "b", "a"], "timestamp": [1, 2, 3]}
    items = {"item_id": ["a", "b"], **{name: [1.5, 2.5] for name in names}}
    write = getattr(pl.DataFrame, {"jsonl": "write_ndjson"}.get(suffix, f"write_{suffix}"))
    log, catalog = tmp_path / f"events.{suffix}", tmp_path / f"items.{suffix}"
    write(pl.DataFrame(events | {name: [9, 8, 7] for name in names}), log)
    write(pl.DataFrame(items), catalog)
    data = PreparedData.open(prepare_as(tmp_path / "prepared", source=log, items=catalog).folder)
    assert data.users.ids([0, 1]) == ["u1", "u2"]
    assert data.fields == {name: [1.5, 2.5] for name in names}
    write(pl.DataFrame(events | {"__turret_id": [1, 2, 3]}), log)
    with pytest.raises(
        SourceError, match=r"'__turret_id' of .* begins like those that turret adds; rename it"
    ):
        _scan(log)


LOG = "user,item,time\nu1,a,1\nu1,b,2\nu2,a,3\n"


def _users(path: Path, **settings: str) -> list[str]:
    users: list[str] = _scan(path, **settings).frame.select("user").collect()["user"].to_list()
    return users


@pytest.mark.parametrize("text", [LOG, '{"user": "u1"}\n{"user": "u1"}\n{"user": "u2"}\n'])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_of_two_and_four_bytes_is_read_with_and_without_its_mark(
    tmp_path: Path, text: str, encoding: str
) -> None:
    path = tmp_path / ("log.csv" if text is LOG else "log.jsonl")
    path.write_bytes(text.encode(encoding))
    assert _users(path) == ["u1", "u1", "u2"]


def test_marks_inside_a_file_belong_to_no_id_and_no_header(prepared: Prepare) -> None:
    data = prepared(f"\ufeff{LOG}\ufeff{LOG}", {"on_bad": "drop"})
    assert data.users.ids(range(len(data.users))) == ["u1", "u2"]
    assert data.manifest.counts.events == 6
    assert plain_id("\ufeffu1") == "u1"


@pytest.mark.parametrize("blank", ["\n", "\r\n", "  \n\n", "\n" * 3])
@pytest.mark.parametrize("last", ["", "u1,c\n"], ids=["regular", "with a broken line"])
def test_blank_lines_are_no_rows(tmp_path: Path, blank: str, last: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(LOG.replace("\n", f"\n{blank}").encode() + last.encode())
    table = _scan(path)
    rows = table.frame.collect()
    assert rows["item"].drop_nulls().to_list() == ["a", "b", "a"]
    assert rows[ROW].to_list()[0] == 2 + blank.count("\n")
    assert table.malformed.count == bool(last)


def test_what_is_no_whole_file_is_refused_by_its_name(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    pl.DataFrame({"user": [1]}).write_parquet(parts / "part-0.parquet")
    whole = (parts / "part-0.parquet").read_bytes()
    for content in (whole[:-10], b"user\n1\n", b""):
        (parts / "part-1.parquet").write_bytes(content)
        with pytest.raises(SourceError, match=r"parts/part-1\.parquet is no whole Parquet file; export"):
            _scan(parts)
    for name in ("log.csv", "log.jsonl", "log.parquet", "log.csv.gz"):
        (tmp_path / name).touch()
        with pytest.raises(SourceError, match=f"{name} is empty; export it again"):
            _scan(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(SourceError, match=r"pipe\.csv is neither a file nor a folder; write its content"):
        _scan(tmp_path / "pipe.csv")
    pl.DataFrame().write_parquet(tmp_path / "log.parquet")
    with pytest.raises(ColumnError, match="for the user; it has no columns: name it with --user"):
        prepare_as(tmp_path / "prepared", source=tmp_path / "log.parquet")


def test_content_of_zstd_that_is_no_utf_8_is_refused_with_the_way_out(tmp_path: Path) -> None:
    content = LOG.replace("u2", "ü").encode("latin-1")
    head = b"\x28\xb5\x2f\xfd\x20" + bytes([len(content)])  # of a frame with one block, which is not packed
    (tmp_path / "log.csv.zst").write_bytes(head + (len(content) << 3 | 1).to_bytes(3, "little") + content)
    with pytest.raises(SourceError, match=r"log\.csv\.zst is no text in UTF-8.*zstd -d"):
        _scan(tmp_path / "log.csv.zst", encoding="latin-1")


def test_parts_with_a_name_in_two_cases_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({"item": [1]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"ITEM": [1], "Item": [2]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet has several columns for item, which a\.parquet has"):
        _scan(tmp_path)


@pytest.mark.parametrize(
    ("weights", "decimal", "expected"),
    [
        (["1.234,56 €", "12,50 €", "3"], ",", [1234.56, 12.5, 3]),
        (["$1,234.50", "USD 12.5", "50 %"], ".", [1234.5, 12.5, 50]),
        (["1\u00a0234,5", "1 000", "2.5"], ",", [1234.5, 1000, 2.5]),
    ],
)
def test_weights_are_read_as_shops_write_numbers(
    prepared: Prepare, weights: list[str], decimal: str, expected: list[float]
) -> None:
    rows = "".join(f"u1;{item};{item};{weight}\n" for item, weight in enumerate(weights))
    data = prepared(f"user;item;time;w\n{rows}", {"columns.weight": "w", "format.decimal": decimal})
    assert data.weights is not None
    assert data.weights.tolist() == pytest.approx(expected)


def test_a_number_of_another_mark_is_no_weight(prepared: Prepare) -> None:
    for weight in ("1,5", "1234,567", "1-2", "(3)", "2 pcs"):
        with pytest.raises(BadRowsError, match="unreadable weight: 1"):
            prepared(f"user;item;time;w\nu1;a;1;{weight}\nu1;b;2;1\n", {"columns.weight": "w"})


def test_days_of_a_spreadsheet_are_read_with_a_comma_and_hinted_at_without_hours(tmp_path: Path) -> None:
    source = tmp_path / "log.csv"
    rows = [f"u1;{number};{45_000 + number / 8}".replace(".", ",") for number in range(8)]
    source.write_text("user;item;time\n" + "\n".join(rows))
    report = prepare_as(tmp_path / "prepared", source=source, format__decimal=",")
    assert "'time' holds numbers that are dates as a spreadsheet counts them" in report.warnings[0]
    source.write_text("user;item;time\nu1;a;45000\nu1;b;45031\n")
    report = prepare_as(tmp_path / "prepared", source=source)
    assert (
        "if they are days as a spreadsheet counts them, here 2023-03-15 to 2023-04-15" in report.warnings[0]
    )
    source.write_text("user;item;pos\nu1;a;1\nu1;b;45031\n")
    assert "spreadsheet" not in "".join(prepare_as(tmp_path / "prepared", source=source).warnings)


def test_a_type_of_many_fields_is_named_by_its_beginning(prepared: Prepare) -> None:
    record = {f"field {number}": number for number in range(1000)}
    with pytest.raises(ColumnError, match=r"column 'time' holds Struct.{,70}\.\.\., which") as refused:
        prepared(pl.DataFrame({"user": [1], "item": [1], "time": [record]}))
    assert len(str(refused.value)) < 300


def test_ids_of_an_items_file_may_be_called_id(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "items.csv").write_text("id,title\na,A\nb,B\n")
    report = prepare_as(tmp_path / "prepared", source=tmp_path / "log.csv", items=tmp_path / "items.csv")
    assert PreparedData.open(report.folder).fields == {"title": ["A", "B"]}
