"""Columns of items and users as features: read from texts, guessed, encoded, and stored."""

import json
import re
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.bounded import ending
from turret.data.errors import ColumnError, DataError
from turret.data.features.columns import Bag, Features
from turret.data.features.feature import Feature
from turret.data.features.texts import MOST_LEVELS, levels, trigrams
from turret.data.preparing.catalogs import EntityTable, fields, read_entity_table
from turret.data.preparing.encoding import (
    as_lists,
    days,
    encode,
    without_nulls,
)
from turret.data.preparing.feature_readings import Readings, field_values, read_features
from turret.data.reading.columns import Role
from turret.data.reading.numbers import numbers
from turret.data.reading.schema import FeatureColumns
from turret.data.reading.source_settings import FormatSettings
from turret.data.reading.tables import ROW, Malformed, Table


@pytest.mark.parametrize(
    ("texts", "decimal", "expected"),
    [
        (["1.5", "2", None], ".", [1.5, 2.0, None]),
        (["1.299,00 €", "15,90 €"], ",", [1299.0, 15.9]),
        (["$1,299.00", "$15.90"], ".", [1299.0, 15.9]),
        (["1,299", "12"], ".", [1299.0, 12.0]),
        (["1,299"], ",", [1.299]),
        (["1.299", "2.5"], ",", [1299.0, None]),
        (["1\u202f299,5"], ",", [1299.5]),
        (["CHF 1'299.50", "12"], ".", [1299.5, 12.0]),
        (["12 %", "-3%"], ".", [12.0, -3.0]),
        (["1e3"], ".", [1000.0]),
        (["12,34,5", "7", "big"], ".", [None, 7.0, None]),
    ],
)
def test_numbers_are_read_as_shops_write_them(
    texts: list[str | None], decimal: str, expected: list[float | None]
) -> None:
    assert numbers(pl.Series("price", texts), decimal).to_list() == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1970-01-03", None], [2.0, None]),
        (["03.01.1970", "31.01.1970"], [2.0, 30.0]),
        ([date(1970, 1, 2)], [1.0]),
        (["1970-01-03", "soon"], None),
        (["1/2/1970"], None),
        (["1999"], None),
        (["12.50"], None),
        ([timedelta(days=1)], None),
        ([5], None),
    ],
)
def test_dates_are_days_since_1970(values: list[object], expected: list[float] | None) -> None:
    """Of no column of which some are none, or whose day and month can't be told apart."""
    found = days(pl.Series(values))
    assert (None if found is None else found.to_list()) == expected


def test_a_path_is_guessed_read_by_levels_and_shown_as_it_is() -> None:
    texts = ["Women > Shoes > Boots", "Women > Bags", "Men > Shoes", "Men>Hats", None, "Men > Hats"]
    readings = _read(pl.DataFrame({"category": texts, "size": ["s", "m"] * 3}))
    assert readings.chosen.path == ("category",)
    features = _encoded(readings)
    (path,) = (one for one in features.features if one.kind == "path")
    rows = [[path.values[code - 1] for code in features.columns["category"].row(row)] for row in range(6)]  # type: ignore[union-attr]
    assert rows[0] == ["Women", "Women > Shoes", "Women > Shoes > Boots"]
    assert rows[3] == rows[5] == ["Men", "Men > Hats"]
    assert rows[4] == []
    assert readings.values["category"].to_list() == texts
    assert features.raw(0)["category"] == texts[0]
    with pytest.raises(DataError, match="give a text"):
        path.encode_one(["Women", "Shoes"])
    assert levels("a/" * 100) == levels("a/" * MOST_LEVELS)
    assert path.encode_one("Women/Shoes/Sandals") == path.encode_one("Women > Shoes")


def test_a_path_of_many_blanks_and_separators_takes_the_time_of_its_length() -> None:
    """A stored item or a filter may have it: steps of the square of its length would take hours."""
    with ending():
        assert levels(f"a{' ' * 1_000_000}b") == [f"a{' ' * 1_000_000}b"]
        assert levels(f"a{' >|/' * 300_000}b{' ' * 300_000}") == ["a", "a > b"]


def test_what_changes_by_the_hour_is_a_field_and_no_feature() -> None:
    names = ("stock", "isAvailable", "stockLevel", "warehouseQuantity", "on_sale", "stocking", "stock_photo")
    frame = pl.DataFrame({name: [1, 2, 1, 2] for name in names})
    readings = _read(frame)
    assert readings.chosen.number == ("stocking", "stock_photo")
    assert "stock (it changes from day to day: a field for answers and filters)" in readings.notes[0]
    ids, stock = ["a", "b", "c", "d"], ["5.0", None, " 3", "1.5"]
    texts = pl.DataFrame({"item_id": ids, "stock": stock, "stock_code": ["5.0", "6", "7", "8"]})
    assert _shown_fields(_table(texts, is_text=True), ids) == {
        "stock": [5, None, 3, 1.5],
        "stock_code": ["5.0", "6", "7", "8"],
    }
    assert "stock" in _read(frame, FeatureColumns(number=("stock",))).chosen.number


def test_lists_in_json_or_of_python_are_parsed() -> None:
    texts = pl.Series(['["a", 2]', "['x, y', 'z']", "[]", None, "[broken]", "[1,]]", "[" * 10**5 + "]"])
    assert as_lists(texts, "").to_list() == [["a", "2"], ["x, y", "z"], [], [], [], [], []]


def test_texts_for_no_value_are_missing() -> None:
    assert without_nulls(pl.Series([" a ", "-", "", "NULL"]), ["-"]).to_list() == ["a", None, None, "NULL"]
    assert without_nulls(pl.Series([1, 2]), ["1", "x"]).to_list() == [None, 2]
    assert without_nulls(pl.Series([0.5, -1.0]), ["-1"]).to_list() == [0.5, None]


COUNT = 40


def _read(
    frame: pl.DataFrame,
    chosen: FeatureColumns = FeatureColumns(),  # noqa: B008
    role: Role = "item",
    **settings: Any,
) -> Readings:
    return read_features(frame, chosen, Path("shop/items.csv"), role, FormatSettings(**settings))


def _encoded(readings: Readings) -> Features:
    kinds = {name: kind for kind, name in readings.chosen.by_kind()}
    raw = {name: values.to_list() for name, values in readings.values.items()}
    return encode(raw, kinds, {}, len(next(iter(raw.values()))))


def _lists(readings: Readings) -> dict[str, list[Any]]:
    return {name: values.to_list() for name, values in readings.values.items()}


def _column(values: list[Any]) -> pl.DataFrame:
    """COUNT rows that repeat these values."""
    return pl.DataFrame({"column": (values * COUNT)[:COUNT]})


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (["red", "blue", "green"], [("category", "column")]),
        (["$1,299.00", "$15.90"], [("number", "column")]),
        ([1.5, 2.5], [("number", "column")]),
        ([True, False], [("category", "column")]),
        (["yes", "no"], [("category", "column")]),
        (["red|blue", "blue", "red"], [("multi", "column")]),
        (["Women > Shoes > Boots", "Women > Bags", "Men > Shoes", "Men>Hats", None], [("path", "column")]),
        (["women/shoes/boots", "women/bags", "men/hats", "men/belts"], [("path", "column")]),
        (["Women>Shoes", "Women>Bags", "Women>Hats", "Sale"], [("path", "column")]),
        (["img/a/1.png", "img/a/2.png", "img/b/1.png", "img/b/2.png"], [("category", "column")]),
        (["Action/Comedy", "Drama/Comedy", "Comedy/Action", "Action/Drama"], [("category", "column")]),
        (["https://a.org/x", "https://a.org/y", "https://a.org/z"], [("category", "column")]),
        (['["red"]', '["red", "blue"]'], [("multi", "column")]),
        ([["red"], ["blue"]], [("multi", "column")]),
        (["2024-01-05", "2024-06-01"], [("category", "column_month"), ("number", "column_days")]),
        ([date(2024, 1, 5), date(2024, 1, 6)], [("number", "column_days")]),
        (["True", "false", None], [("category", "column")]),
        (["0101", "0102"], [("category", "column")]),
        ([5, 5], "one value only"),
        ([5, None], "one value only"),
        (["sale", None], [("category", "column")]),
        ([[], ["red"]], [("multi", "column")]),
        ([[], []], "empty lists alone"),
        ([f"code {number}" for number in range(COUNT)], [("text", "column")]),
        ([f"AX-{number}" for number in range(COUNT)], "texts, nearly every row has another"),
        ([f"c{number}" for number in range(COUNT)], "texts, nearly every row has another"),
        ([f"https://shop.example/{number}" for number in range(COUNT)], "texts, nearly"),
        (list(range(COUNT)), "whole numbers, nearly every row has another"),
        ([str(number) for number in range(COUNT)], "whole numbers, nearly every row"),
        ([None], "no value"),
        ([b"x"], "values of the type Binary"),
        ([{"a": 1}], "nested records"),
    ],
)
def test_a_column_is_the_feature_that_its_values_suggest_or_left_out_for_a_reason(
    values: list[Any], kinds: list[tuple[str, str]] | str
) -> None:
    readings = _read(_column(values))
    if isinstance(kinds, list):
        assert readings.chosen.by_kind() == kinds
    else:
        assert readings.chosen.by_kind() == []
        assert f"left out: column ({kinds}" in readings.notes[0]


def test_a_stated_separator_parts_values_that_come_back() -> None:
    colours, titles = ["red, blue", "blue, green", "green, red"], ["Matrix, The", "Godfather, The", "Alien"]
    for values, kind in ((colours, "multi"), (titles, "category")):
        assert _read(_column(values), list_separator=",").chosen.by_kind() == [(kind, "column")]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["Drama, War", "War", "Drama, Art, War", "Art, Drama"], "multi"),
        (["S;M", "M;L", "L;S", "M"], "multi"),
        (["Matrix, The", "Godfather, The", "Alien"], "category"),
        (["Red, Large", "Blue, Large", "Red, Small", "Blue, Small"], "category"),  # two parts of each
        (["May 9, 2007", "May 9, 2008", "July", "July, 2007", "July, 2008"], "category"),
        (["1,2", "2,1", "1", "1,2,1"], "category"),
    ],
)
def test_lists_are_found_by_bars_semicolons_and_commas(values: list[Any], kind: str) -> None:
    """Under names of lists too, and in the fields of answers."""
    readings = _read(_column(values))
    assert readings.chosen.by_kind() == [(kind, "column")]
    if kind == "multi":
        parts = [re.split("[,;] *", text) for text in values]
        for read in (readings, _read(_column(values), FeatureColumns(multi=("column",)))):
            assert read.values["column"].to_list()[: len(values)] == parts
        assert field_values(pl.Series("column", values), FormatSettings()).to_list() == parts


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            ["5.99", "12", "$9.99 - $19.99", "7"],
            "is no number, as 10 of its 40 values are none, such as '$9.99",
        ),
        (
            ["5,99 €", "12", "auf Anfrage", "1.299,00 €"],
            "is no number, even with --decimal ',', as 10 of its 40 value",
        ),
        (
            [*map(str, range(COUNT - 1)), "?" * 10**6],
            "is no number, as 1 of its 40 values are none, such as '?",
        ),
        (["S", "M", "38", "L"], None),
        (["5.99", "12"], None),
    ],
)
def test_a_column_of_numbers_and_some_texts_is_named_with_these(values: list[Any], words: str | None) -> None:
    notes = _read(_column(values)).notes
    assert len(notes) == (1 if words is None else 2)
    if words is not None:
        assert notes[1].startswith(f"items.csv: column 'column' {words}")
        assert notes[1].endswith("or name texts for no value with --null column=TEXT")
        assert len(notes[1]) < 400


def test_an_age_in_years_is_a_number_and_a_genre_may_be_a_list() -> None:
    frame = pl.DataFrame(
        {
            "age": [str(20 + row % 30) for row in range(COUNT)],
            "genre": ["Drama", "War | Drama", "War", "Drama|Art"] * 10,
        }
    )
    readings = _read(frame)
    assert readings.chosen.by_kind() == [("multi", "genre"), ("number", "age")]
    assert readings.values["genre"][1].to_list() == ["War", "Drama"]


def test_a_column_that_is_named_or_ignored_leaves_the_guesses_of_the_others() -> None:
    frame = pl.DataFrame({"stock": [1, 2] * 20, "shelf": ["a", "b"] * 20, "year": [1999, 2001] * 20})
    chosen = FeatureColumns(category=("year",), ignore=("stock",))
    assert _read(frame, chosen).chosen.by_kind() == [("category", "year"), ("category", "shelf")]
    alone = FeatureColumns(category=("year",), ignore=("*",))
    assert _read(frame, alone).chosen.by_kind() == [("category", "year")]
    with pytest.raises(ColumnError, match=r"has no column 'stok' for the ignored feature"):
        _read(frame, FeatureColumns(ignore=("stok",)))


def test_named_numbers_are_read_from_dates_and_prices() -> None:
    frame = pl.DataFrame({"since": ["1970-01-02", "-"], "price": ["1,50 €", "NULL"]})
    readings = _read(frame, FeatureColumns(number=("since", "price")), decimal=",")
    assert _lists(readings) == {"since": [1.0, None], "price": [1.5, None]}


def test_texts_for_no_value_of_one_column_leave_the_others() -> None:
    frame = pl.DataFrame({"stock": ["0", "5", "-"], "size": ["0", "0", "4"]})
    chosen = FeatureColumns(number=("stock", "size"))
    everywhere, own = (_read(frame, chosen, nulls=nulls) for nulls in (("0", "-"), ("size=0",)))
    assert _lists(everywhere)["stock"] == [None, 5, None]
    assert _lists(own) == {"stock": [0, 5, None], "size": [None, None, 4]}


def test_a_column_that_is_called_like_an_id_is_guessed_as_a_category() -> None:
    frame = pl.DataFrame({name: [1, 2] * 20 for name in ("brand_id", "shelfCode", "grid", "width")})
    readings = _read(frame)
    assert readings.chosen.category == ("brand_id", "shelfCode")
    assert readings.chosen.number == ("grid", "width")
    many = pl.DataFrame({"supplier_id": [number // 1.5 for number in range(COUNT)]})
    assert _read(many).chosen.by_kind() == []


FRAME = pl.DataFrame(
    {
        "title": ["Good", None, "go"],
        "genre": ["b", None, "a"],
        "tags": ["x|y", "", " y |"],
        "year": ["2000", "", "2010"],
        "age": [25.0, None, 30.0],
    }
)


def _encode(frame: pl.DataFrame = FRAME, **chosen: tuple[str, ...]) -> Any:
    return _encoded(_read(frame, FeatureColumns(**chosen, ignore=("*",))))


def test_every_kind_is_encoded_by_row() -> None:
    features = _encode(category=("genre", "age"), multi=("tags",), text=("title",), number=("year",))
    columns = features.columns
    assert [feature.name for feature in features.features] == ["title", "genre", "age", "tags", "year"]
    assert columns["genre"].tolist() == [2, 0, 1]
    assert columns["age"].tolist() == [1, 0, 2]
    assert [columns["tags"].row(row).tolist() for row in range(3)] == [[1, 2], [], [2]]
    assert columns["year"].tolist() == [-1, 0, 1]


def test_whole_floats_and_truth_values_print_as_in_requests() -> None:
    frame = pl.DataFrame({"age": [25.0, 2.5], "member": [True, False], "ids": [[1, 2], None]})
    frame = frame.with_columns(size=pl.Series([Decimal("3.00"), Decimal("2.50")]))
    features = _encode(frame, category=("age", "member", "size"), multi=("ids",))
    assert [feature.values for feature in features.features] == [
        ("2.5", "25"),
        ("false", "true"),
        ("2.5", "3"),
        ("1", "2"),
    ]


def test_constant_and_missing_numbers_do_not_divide_by_zero() -> None:
    """Numbers that are not finite are missing."""
    features = _encode(pl.DataFrame({"a": [3.0, 3.0], "b": [None, float("nan")]}), number=("a", "b"))
    for column in features.columns.values():
        assert np.asarray(column).tolist() == [0, 0]
    prices = pl.DataFrame({"price": [1.5, float("inf"), float("-inf"), float("nan"), None]})
    found = _lists(_read(prices, FeatureColumns(number=("price",))))
    assert found == {"price": [1.5, None, None, None, None]}


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"text": ("nope",)}, r"items\.csv has no column 'nope' for the text feature; .*title, genre"),
        (
            {"number": ("genre",)},
            r"shop/items\.csv: column 'genre' holds 'b', which is not a number; .*--item-category.*--null",
        ),
        ({"category": ("labels",)}, "name it as a multi feature"),
    ],
)
def test_columns_that_can_not_be_features_are_refused(chosen: dict[str, Any], sentence: str) -> None:
    frame = FRAME.with_columns(labels=pl.lit(["a"]))
    with pytest.raises(ColumnError, match=sentence):
        _read(frame, FeatureColumns(**chosen))


NONE = FeatureColumns(ignore=("*",))


def _shown_fields(
    entries: EntityTable, ids: list[str], names: tuple[str, ...] | None = None, chosen: FeatureColumns = NONE
) -> dict[str, list[Any]]:
    frame = entries.aligned(ids)
    readings = read_features(frame, chosen, entries.path, "item", FormatSettings())
    return fields(frame, names, readings, entries, FormatSettings())


def _table(frame: pl.DataFrame, is_text: bool = False, malformed: Malformed | None = None) -> EntityTable:
    numbered = frame.with_row_index(ROW, offset=1).lazy()
    table = Table(numbered, Path("items.parquet"), is_text, malformed or Malformed())
    entries = read_entity_table(table, None, "item_id", "item")
    assert entries is not None
    return entries


def test_null_and_repeated_ids_and_malformed_lines_are_bad_and_the_first_row_of_an_id_stays() -> None:
    frame = pl.DataFrame({"item_id": ["a", None, "a"], "title": ["first", "none", "second"]})
    entries = _table(frame, malformed=Malformed(1, ({"row": 9},)))
    assert entries.aligned(["a"])["title"].to_list() == ["first"]
    assert [(bad.kind, bad.count, bad.examples) for bad in entries.bad_rows] == [
        ("items file: malformed line", 1, [{"row": 9}]),
        ("items file: null id", 1, [{"row": 2, "item_id": None}]),
        ("items file: repeated id", 1, [{"row": 3, "item_id": "a"}]),
    ]


def test_fields_are_all_columns_that_json_can_express() -> None:
    frame = pl.DataFrame(
        {
            "item_id": [1, 2],
            "title": ["é", None],
            "price": [1.5, float("nan")],
            "new": [True, None],
            "tags": [["a"], []],
            "since": [date(2020, 1, 2), None],
            "sold": [[date(2020, 1, 2), None], None],
            "sizes": [[1.5, float("nan")], []],
            "weight": [Decimal("2.50"), None],
            "blob": [b"x", None],
            "lasts": [timedelta(hours=1), None],
            "pauses": [[timedelta(hours=1)], None],
            "nested": [{"a": 1}, None],
        }
    )
    entries = _table(frame)
    found = _shown_fields(entries, ["1", "2"])
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "title": ["é", None],
        "price": [1.5, None],
        "new": [True, None],
        "tags": [["a"], []],
        "since": ["2020-01-02", None],
        "sold": [["2020-01-02", None], None],
        "sizes": [[1.5, None], []],
        "weight": ["2.50", None],
    }
    assert list(_shown_fields(entries, ["1"], ("price",))) == ["price"]


def test_texts_of_a_csv_file_become_what_they_were_meant_as() -> None:
    frame = pl.DataFrame(
        {
            "item_id": ["1"],
            "year": ["1999"],
            "code": ["007"],
            "genres": ["a|b"],
            "price": ["2.50"],
            "size": ["2.50"],
            "stock": ["253"],
            "number": ["9223372036854775808"],
            "new": ["True"],
        }
    )
    entries = _table(frame, is_text=True)
    chosen = FeatureColumns(multi=("genres",), number=("price", "stock"), ignore=("*",))
    found = _shown_fields(entries, ["1"], chosen=chosen)
    assert found == {
        "year": [1999],
        "code": ["007"],
        "genres": [["a", "b"]],
        "price": [2.5],
        "size": [2.5],
        "stock": [253],
        "number": ["9223372036854775808"],
        "new": [True],
    }
    assert list(map(type, found["stock"])) == [int]


def test_whole_floats_are_integers_in_answers_as_before_their_column_lost_a_value() -> None:
    frame = pl.DataFrame({"item_id": [1, 2], "stock": [3.0, None], "huge": [1e300, 1.0], "price": [3.0, 2.5]})
    shown = _shown_fields(_table(frame), ["1", "2"])
    assert {name: list(map(type, values)) for name, values in shown.items()} == {
        "stock": [int, type(None)],
        "huge": [float, float],
        "price": [float, float],
    }


COUNTRY = Feature(name="country", kind="category", values=("nl", "2", "true"))
LIKES = Feature(name="likes", kind="multi", values=("drama", "war"))
TITLE = Feature(name="title", kind="text", values=("#a#", "#b#"))
AGE = Feature(name="age", kind="number", mean=40.0, deviation=10.0)


def test_known_values_have_codes_from_one_on_and_the_rest_is_zero() -> None:
    assert [COUNTRY.encode_one(raw) for raw in ("nl", 2, 2.0, True, "de", None, 2.5)] == [1, 2, 2, 3, 0, 0, 0]
    assert COUNTRY.size == 4


def test_unknown_values_of_lists_and_texts_are_left_out() -> None:
    """A value that a list repeats counts once; a text is the frequencies of its trigrams."""
    assert LIKES.encode_one(["war", "new", "drama", "war"]) == [2, 1]
    assert LIKES.encode_one([]) == LIKES.encode_one(None) == []
    assert TITLE.encode_one("B, a c a") == [2, 1, 1]


@pytest.mark.parametrize(
    ("feature", "raw", "fit"),
    [
        (AGE, "forty", "a finite number"),
        (AGE, True, "a finite number"),
        (AGE, float("nan"), "a finite number"),
        (COUNTRY, ["nl"], "one value"),
        (LIKES, "war", "a list of values"),
        (LIKES, [["war"]], "one value"),
        (TITLE, 5, "a text"),
    ],
)
def test_what_does_not_fit_is_refused_with_feature_value_and_remedy(
    feature: Feature, raw: object, fit: str
) -> None:
    with pytest.raises(DataError) as refusal:
        feature.encode_one(raw)
    for part in (repr(feature.name), fit, "null if unknown"):
        assert part in str(refusal.value)


def test_names_are_no_file_names(tmp_path: Path) -> None:
    name = "../../etc/passwd"
    feature = Feature(name=name, kind="number")
    Features(1, (feature,), {name: np.zeros(1, np.float32)}).save(tmp_path / "f")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert list(Features.open(tmp_path / "f").columns) == [name]


def test_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'age' has 2 rows instead of 3"):
        Features(3, (AGE,), {"age": np.zeros(2, np.float32)})
    bag = Bag(np.array([1, 2, 2], np.int32), np.array([0, 2, 2, 3]))
    Features(3, (LIKES,), {"likes": bag}).save(tmp_path / "f")
    for offsets in ([1, 2, 2, 3], [0, 2, 2, 9], [0, 3, 2, 3]):
        np.save(tmp_path / "f" / "0.offsets.npy", np.array(offsets))
        with pytest.raises(DataError, match=r"0\.offsets\.npy does not fit"):
            Features.open(tmp_path / "f")
    (tmp_path / "f" / "features.json").write_text('{"count": 3, "features": [{"name": "x"}]}')
    with pytest.raises(DataError, match="does not describe features"):
        Features.open(tmp_path / "f")


def test_words_are_marked_folded_and_cut_into_windows_of_three() -> None:
    assert trigrams("Good") == ["#go", "goo", "ood", "od#"]
    assert trigrams("a b-cd") == ["#a#", "#b#", "#cd", "cd#"]


def test_accents_digits_and_repeats_stay_and_marks_go() -> None:
    assert trigrams("Été, été!") == ["#ét", "été", "té#"] * 2
    assert trigrams("STRASSE") == trigrams("Straße")
    assert trigrams("") == trigrams(" :: '") == []
