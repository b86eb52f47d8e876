"""Ids and events: read from a source, checked row by row, numbered, and sorted."""

import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import Prepare
from turret.data.configuration import load_configuration
from turret.data.errors import ColumnError, SourceError
from turret.data.events.event_arrays import Events
from turret.data.events.events import read_events, validate
from turret.data.events.ids import IdColumn, IdInterner, as_keys, vocabulary
from turret.data.events.log import Log
from turret.data.kinds import Kind
from turret.data.manifest import BadRows, Removed
from turret.data.ranges import stable_order
from turret.data.reading.columns import choose_columns
from turret.data.reading.readers import scan
from turret.data.reading.schema import PrepareConfig
from turret.data.reading.source_settings import NULLS, FormatSettings, SourceSettings
from turret.data.reading.tables import ROW, LogSource, Table

EXPORTED = pl.Series(["NULL", "None", "nan", " - ", "NA", "Nullarbor", "x"])


@pytest.mark.parametrize(
    ("ids", "nulls", "texts"),
    [
        (pl.Series([7, -1, None]), NULLS, ["7", "-1", None]),
        (pl.Series([7.0, None, 2.5, math.nan, math.inf]), NULLS, ["7", None, None, None, None]),
        (pl.Series([Decimal("70.00"), None, Decimal("2.50")]), NULLS, ["70", None, None]),
        (pl.Series(["007", "", None, " "]), NULLS, ["007", None, None, None]),
        (pl.Series(["b", "a"], dtype=pl.Categorical()), NULLS, ["b", "a"]),
        # Larger floats don't tell neighbours apart.
        (pl.Series([2.0**53 - 1, 2.0**53, -(2.0**53)]), NULLS, ["9007199254740991", None, None]),
        (pl.Series([16_777_215, 16_777_216], dtype=pl.Float32), NULLS, ["16777215", None]),
        (EXPORTED, NULLS, [None, None, None, None, "NA", "Nullarbor", "x"]),
        (EXPORTED, ["x"], ["NULL", "None", "nan", "-", "NA", "Nullarbor", None]),
    ],
)
def test_ids_of_every_type_become_the_text_that_finds_them_again(
    ids: pl.Series, nulls: Sequence[str], texts: list[str | None]
) -> None:
    found = pl.DataFrame({"id": ids}).select(IdColumn("id", "id", ids.dtype, nulls).key().cast(pl.String))
    assert found.to_series().to_list() == texts


@pytest.mark.parametrize(
    ("texts", "is_numeric", "expected"),
    [
        (["10", "9"], True, [9, 10]),
        (["10", "9"], False, ["10", "9"]),
        (["10", "007"], True, ["007", "10"]),
        (["10", "x"], True, ["10", "x"]),
        (["9223372036854775807", "9"], True, [9, 2**63 - 1]),
        (["9223372036854775808", "9"], True, ["9", "9223372036854775808"]),
        (["-9223372036854775809", "9"], True, ["-9223372036854775809", "9"]),
    ],
)
def test_ids_come_back_as_they_went_in_and_sorted(
    texts: list[str], is_numeric: bool, expected: list[object]
) -> None:
    """Numbers are integers if every one is, within the 64 bits that the service can be asked about."""
    found, rows = vocabulary(pl.Series(texts), is_numeric)
    assert found.ids(range(len(texts))) == expected
    assert [str(outside_id) for outside_id in found.ids(rows)] == texts


def test_texts_of_a_typed_file_stay_texts(prepared: Prepare) -> None:
    log = pl.DataFrame({"user": ["10", "9"], "item": [1, 2], "time": [1, 2]})
    assert prepared(log).users.ids(range(2)) == ["10", "9"]


def test_texts_become_keys_only_where_an_integer_prints_like_them() -> None:
    texts = pl.Series(["7", "007", "-3", "+3", "-0", "x", "", "9223372036854775808", "7.0", " 7"])
    assert as_keys(texts, pl.Int64()).to_list() == [7, -3]
    assert as_keys(texts, pl.String()).to_list() == texts.to_list()


TEXTS = st.text(max_size=3)


@pytest.mark.parametrize(
    ("values", "dtype", "hash_of"),
    [
        (st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), pl.Int64(), None),
        (TEXTS, pl.String(), None),
        (TEXTS, pl.String(), lambda ids: ids.str.len_bytes().cast(pl.UInt64)),
    ],
    ids=["integers", "texts", "texts that share a hash"],
)
@given(data=st.data())
def test_ids_are_numbered_as_a_dictionary_would(
    data: st.DataObject, values: st.SearchStrategy[object], dtype: pl.DataType, hash_of: object
) -> None:
    """Each id keeps its number, and the numbers are 0, 1, ..."""
    # Hypothesis makes its first texts from the tables of all characters, which takes a second or two.
    columns = data.draw(st.lists(st.lists(values, max_size=30), max_size=6))
    made = IdInterner(dtype)
    known: dict[object, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        if hash_of is not None:
            patch.setattr(pl.Series, "hash", hash_of)
        for column in columns:
            numbers = made.numbers(pl.Series(column, dtype=dtype))
            assert numbers.dtype == np.int32
            for outside_id, number in zip(column, numbers.tolist(), strict=True):
                assert known.setdefault(outside_id, number) == number
    assert sorted(known.values()) == list(range(len(known)))
    assert [known[outside_id] for outside_id in made.ids.to_list()] == list(range(len(known)))


Columns = dict[str, Sequence[object] | pl.Series]


def _log(count: int, **columns: Sequence[object] | pl.Series) -> Columns:
    """So many rows of one user, or these columns."""
    numbers = [*range(1, count + 1)]
    return {"user": [1] * count, "item": numbers, "time": numbers, **columns}


def _table(columns: Columns, name: str = "log.csv") -> Table:
    frame = pl.DataFrame(columns, strict=False).with_row_index(ROW, offset=2)
    return Table(frame.with_columns(pl.col(ROW).cast(pl.Int64)).lazy(), Path(name), is_text=True)


PLAIN = PrepareConfig(source=Path("log.csv"))


def _validate(columns: Columns, catalog: list[str] | None = None, **settings: object) -> Log:
    config = load_configuration(PrepareConfig, overrides={"source": "log.csv", **settings})
    chosen = choose_columns(config.columns, list(columns), "log")
    settings_of = SourceSettings(format=config.format, columns=config.columns)
    source = LogSource(((None, _table(columns)),), chosen, settings_of)
    ids = None if catalog is None else pl.Series(catalog)
    return validate([source], config.kinds, config.filters, ids)


class Found(NamedTuple):
    users: pl.Series
    items: pl.Series
    bad_rows: list[BadRows]
    removed: list[Removed]


def _read(log: Log) -> tuple[Found, Events]:
    with TemporaryDirectory() as work:
        events, users, items, _, verdicts, _ = read_events(log, Path(work))
        return Found(users, items, *log.dropped_rows(verdicts)), Events(**events.read(0, len(events)))


EVENTS: Columns = {
    "user": ["a", None, "b", "a", "", "c", "a", "b"],
    "item": ["x", "x", None, "y", "x", "z", "y", "x"],
    "time": ["1", "2", "3", "soon", "5", None, "7", "8"],
    "stars": ["5", "5", "5", "5", "5", "5", "-2", "many"],
}
FIRST_REASONS = {
    "null user": 2,
    "null item": 1,
    "unreadable time": 1,
    "null time": 1,
    "weight not above 0": 1,
    "unreadable weight": 1,
}
CLOCKS = _log(42, time=[*range(1_700_000_000, 1_700_000_040), -2_000_000_000, 4_000_000_000])
WITH_KINDS = _log(6, event=["buy ", "see", None, "", " ", "NULL"])
BUY, BUY_AND_SEE = {"buy": Kind()}, {"buy": Kind(weight=2), "see": Kind(role="ignored")}
LONG = _log(3, user=["é" * 512, "u" * 513, "u"], item=["x", "x", "i" * 513])
RATED = _log(3, n=[-1, 6, 8])  # -1 stands for no rating in public logs
HUGE, HUGE_USER = "item too large for a float to hold exactly", "user too large for a float to hold exactly"


@pytest.mark.parametrize(
    ("columns", "settings", "bad", "removed"),
    [
        (EVENTS, {"columns.weight": "stars", "catalog": ["x", "y"]}, FIRST_REASONS, {}),
        (LONG, {}, {"id longer than 512 characters": 2}, {}),
        (_log(3, user=[1e16, 5.0, None]), {}, {HUGE_USER: 1, "null user": 1}, {}),
        (_log(2, item=["1e+17", "2.5e+18"]), {}, {HUGE: 2}, {}),
        (CLOCKS, {}, {"time before 1990 or in the future": 2}, {}),
        (CLOCKS, {"columns.time_unit": "seconds"}, {"time before 1990 or in the future": 1}, {}),
        *(
            (_log(2, user=ids, item=ids), {"format.nulls": ["user=0"]}, {"null user": 1}, {})
            for ids in (pl.Series([0, 7]), pl.Series([0.0, 7.0]), pl.Series([0, 7], dtype=pl.UInt64))
        ),
        *(
            (
                WITH_KINDS,
                {"kinds": kinds, "columns.kind": "event", "filters.default_kind": default},
                {},
                removed,
            )
            for kinds in (BUY, BUY_AND_SEE)
            for default, removed in (
                (None, {"kinds": 1, "missing kind": 4}),
                ("buy", {"kinds": 1}),
                ("see", {"kinds": 5}),
            )
        ),
        (RATED, {"columns.weight": "n", "filters.min_weight": 7}, {}, {"min_weight": 2}),
        # No quantity is no return: in a log of views and purchases, views have none.
        (_log(3, n=[2, 1.5, None]), {"columns.quantity": "n"}, {}, {}),
        (_log(3, n=[3, 0, -1]), {"columns.quantity": "n"}, {"return (quantity not above 0)": 2}, {}),
        (_log(3, n=["1", " ", "NULL"]), {"columns.quantity": "n"}, {}, {}),
        (_log(3, n=["1", "two", "-"]), {"columns.quantity": "n"}, {"unreadable quantity": 1}, {}),
    ],
)
def test_every_row_is_an_event_or_has_the_first_reason_why_it_is_none(
    columns: Columns, settings: dict[str, Any], bad: dict[str, int], removed: dict[str, int]
) -> None:
    found, events = _read(_validate(columns, **settings))
    assert {one.kind: one.count for one in found.bad_rows} == bad
    assert {one.filter: one.events for one in found.removed} == removed
    assert len(events) == len(columns["item"]) - sum(bad.values()) - sum(removed.values())


def test_examples_are_the_first_rows_by_their_numbers_and_the_sources_names() -> None:
    times = ["1", "2", "3", "4", "no", "no"]
    (bad,) = _read(_validate({"user_id": [1] * 6, "item": ["x"] * 6, "time": times}))[0].bad_rows
    assert bad.examples == [{"row": row, "user_id": "1", "item": "x", "time": "no"} for row in (6, 7)]
    (bad,) = _read(_validate(CLOCKS))[0].bad_rows
    shown = ["-2000000000 (1906-08-16)", "4000000000 (2096-10-02)"]
    assert [row["time"] for row in bad.examples] == shown


def test_texts_that_all_print_as_floats_are_whole_numbers() -> None:
    """As pandas writes integers beside missing values; other points belong to the id."""
    found, _ = _read(
        _validate(_log(4, user=["1000.0", "7", None, "1e+17"], item=["1.0", "07", "2.0", "3.0"]))
    )
    assert (found.users.to_list(), found.items.to_list()) == (["1000", "7"], ["1.0", "07"])
    assert [bad.kind for bad in found.bad_rows] == ["null user", HUGE_USER]


def test_decimal_numbers_are_numbers() -> None:
    """Databases export whole numbers as decimals."""
    one, other = [Decimal("7")], [Decimal("8.50")]
    columns: Columns = {"user": one, "item": one, "time": other, "n": other, "count": one}
    settings: dict[str, Any] = {"columns.weight": "n", "columns.quantity": "count"}
    found, events = _read(_validate(columns, **settings))
    assert (found.users.to_list(), found.items.to_list()) == (["7"], ["7"])
    assert events.weights is not None
    assert (events.times.tolist(), events.weights.tolist()) == ([8.5], [8.5])


def test_parts_keep_their_numbers_and_examples_name_the_file() -> None:
    train = _table({"user": [1], "item": [1], "time": [1]}, "train.csv")
    test = _table({"user": [1, None], "item": [2, 1], "time": [2, 1]}, "test.csv")
    columns = choose_columns(PLAIN.columns, ["user", "item", "time"], "log")
    source = LogSource(((0, train), (2, test)), columns, SourceSettings())
    log = validate([source], {}, PLAIN.filters)
    found, events = _read(log)
    assert events.parts is not None
    assert events.parts.tolist() == [0, 2]
    assert found.bad_rows[0].examples == [
        {"file": "test.csv", "row": 3, "user": None, "item": "1", "time": "1"}
    ]


def test_a_source_that_breaks_off_is_refused_by_its_name(tmp_path: Path) -> None:
    """The index of a Parquet file is at its end: damage in the middle shows only on reading."""
    path = tmp_path / "log.parquet"
    frame = pl.DataFrame({"user": range(50_000), "item": range(50_000), "time": range(50_000)})
    frame.write_parquet(path, compression="zstd", row_group_size=10_000)
    table = scan(path, FormatSettings(), tmp_path)
    columns = choose_columns(PLAIN.columns, table.columns, "log")
    log = validate([LogSource(((None, table),), columns, SourceSettings())], {}, PLAIN.filters)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 60_000] = bytes(60_000)
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"log\.parquet can't be read"):
        read_events(log, tmp_path)


@pytest.mark.parametrize("other", [[1], {"seconds": 1}])
def test_parts_with_columns_of_different_types_are_refused(other: object) -> None:
    parts = [_table({"user": [1], "item": [1], "time": [time]}) for time in ("1", other)]
    columns = choose_columns(PLAIN.columns, ["user", "item", "time"], "log")
    source = LogSource(((0, parts[0]), (2, parts[1])), columns, SourceSettings())
    with pytest.raises(ColumnError, match=r"'time' differs in type between the parts: it holds String in"):
        validate([source], {}, PLAIN.filters)


FEW, WIDE = st.integers(-3, 3), st.sampled_from([-(2**63), -1, 0, 1, 2**40, 2**63 - 1])


@pytest.mark.parametrize(
    "row",
    [
        st.tuples(FEW, FEW, st.sampled_from([0, 2**59])),
        st.tuples(WIDE, WIDE),
        st.tuples(FEW, st.floats(-2, 2)),
    ],
    ids=["packed", "wide", "fractions"],
)
@given(data=st.data())
def test_rows_are_sorted_by_the_first_key_first_and_equal_ones_stay(
    data: st.DataObject, row: st.SearchStrategy[tuple[float, ...]]
) -> None:
    """Also numbers too wide to be packed, and fractions, of which minus zero equals zero."""
    rows = data.draw(st.lists(row, min_size=1, max_size=60))
    keys = [np.array(key) for key in zip(*rows, strict=True)]
    assert stable_order(keys).tolist() == sorted(range(len(rows)), key=rows.__getitem__)
