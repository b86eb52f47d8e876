from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from turret.data.errors import ColumnError
from turret.data.preparing.columns import Role
from turret.data.preparing.feature_readings import FeatureReadings, read_features
from turret.data.reading.schema import FeatureColumns, FormatSettings

COUNT = 40


def _read(
    frame: pl.DataFrame,
    chosen: FeatureColumns | None = None,
    role: Role = "item",
    **settings: Any,
) -> FeatureReadings:
    return read_features(frame, chosen, Path("shop/items.csv"), role, FormatSettings(**settings))


def _column(values: list[Any]) -> pl.DataFrame:
    """COUNT rows that repeat these values."""
    return pl.DataFrame({"column": (values * COUNT)[:COUNT]})


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (["red", "blue", "green"], [("category", "column")]),
        (["1.299,00 €", "15,90 €"], [("number", "column")]),
        ([1.5, 2.5], [("number", "column")]),
        ([True, False], [("category", "column")]),
        (["yes", "no"], [("category", "column")]),
        (["red|blue", "blue", "red"], [("multi", "column")]),
        (["red, blue", "blue, green", "green, red"], [("multi", "column")]),
        (['["red"]', '["red", "blue"]'], [("multi", "column")]),
        ([["red"], ["blue"]], [("multi", "column")]),
        (["2024-01-05", "2024-06-01"], [("category", "column_month"), ("number", "column_days")]),
        ([date(2024, 1, 5)], [("category", "column_month"), ("number", "column_days")]),
        ([f"code {number}" for number in range(COUNT)], [("text", "column")]),
        ([f"AX-{number}" for number in range(COUNT)], []),
        ([f"c{number}" for number in range(COUNT)], []),
        ([f"https://shop.example/{number}" for number in range(COUNT)], []),
        (list(range(COUNT)), []),
        ([str(number) for number in range(COUNT)], []),
        ([None], []),
        ([b"x"], []),
    ],
)
def test_a_column_is_the_feature_that_its_values_suggest(
    values: list[Any], kinds: list[tuple[str, str]]
) -> None:
    assert _read(_column(values)).chosen.by_kind() == kinds


def test_a_usual_name_says_more_than_values() -> None:
    frame = pl.DataFrame({"Title": ["a", "a"], "age": [1, 2], "genres": ["war", "war"], "price": ["1", "2"]})
    chosen = _read(frame).chosen.by_kind()
    assert chosen == [("text", "Title"), ("category", "age"), ("multi", "genres"), ("number", "price")]


def test_users_have_no_texts() -> None:
    frame = pl.DataFrame({"name": ["Ann Lee"], "about": ["likes long walks"]})
    readings = _read(frame, role="user")
    assert readings.chosen.by_kind() == [("category", "about")]
    assert readings.notes == [
        "items.csv: read as features are about (category); left out: name (ids, links, or values that say "
        "nothing about other rows); name them yourself with --user-category, --user-multi, --user-number"
    ]


def test_guesses_are_told_with_the_options_that_say_otherwise() -> None:
    frame = _column(["red, blue", "blue, green", "green, red"]).rename({"column": "colour"})
    frame = frame.with_columns(sku=pl.Series([f"s{number}" for number in range(COUNT)]))
    assert _read(frame).notes == [
        "items.csv: read as features are colour (multi); left out: sku (ids, links, or values "
        "that say nothing about other rows); name them yourself with --item-text, --item-category, "
        "--item-multi, --item-number",
        "items.csv: column 'colour' is read as lists separated by ','; --list-separator says otherwise",
    ]
    assert _read(pl.DataFrame({})).notes == []


def test_dates_become_an_age_and_a_season() -> None:
    frame = _read(pl.DataFrame({"since": ["1970-01-03", "1970-12-31", None]})).frame
    assert frame["since_days"].to_list() == [2.0, 364.0, None]
    assert frame["since_month"].to_list() == ["1", "12", None]


def test_named_numbers_are_read_from_words_dates_and_prices() -> None:
    frame = pl.DataFrame({"new": ["yes", "no"], "since": ["1970-01-02", "-"], "price": ["1,50", "NULL"]})
    readings = _read(frame, FeatureColumns(number=("new", "since", "price")))
    assert readings.frame.to_dict(as_series=False) == {
        "new": [1.0, 0.0],
        "since": [1.0, None],
        "price": [1.5, None],
    }
    assert [note.partition(" is read")[2] for note in readings.notes] == [
        " as 1 and 0 ('yes' is True)",
        " as dates, in days since 1970",
        " as the number 1.5; --decimal '.' reads a point as the decimal mark",
    ]


def test_plain_features_are_read_without_a_word() -> None:
    frame = pl.DataFrame({"price": ["1.5", "2"], "tags": ["a|b", "a"], "colour": ["red", "red"]})
    chosen = FeatureColumns(number=("price",), multi=("tags",), category=("colour",))
    assert _read(frame, chosen).notes == []


def test_a_named_number_that_is_none_is_an_error_with_its_file_and_two_remedies() -> None:
    with pytest.raises(ColumnError, match=r"shop/items\.csv: column 'price' holds 'much', .*--null"):
        _read(pl.DataFrame({"price": ["1", "much"]}), FeatureColumns(number=("price",)))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["red|blue", "blue", "red"], "looks like lists ('red|blue'); --item-multi reads them as such"),
        (
            [f"c{number}" for number in range(COUNT)],
            "has 40 values for 40 items, so most say nothing about others; if it is an id, leave it out of "
            "--item-category",
        ),
    ],
)
def test_a_named_category_that_is_doubtful_is_told(values: list[str], words: str) -> None:
    readings = _read(_column(values), FeatureColumns(category=("column",)))
    assert readings.notes == [f"items.csv: column 'column' {words}"]


def test_a_column_that_is_called_like_an_id_is_guessed_as_a_category_and_said() -> None:
    frame = pl.DataFrame({name: [1, 2] * 20 for name in ("brand_id", "shelfCode", "grid", "stock")})
    readings = _read(frame)
    assert readings.chosen.category == ("brand_id", "shelfCode")
    assert readings.chosen.number == ("grid", "stock")
    assert readings.notes[1:] == [
        f"items.csv: column {name!r} is called like an id, so it is read as a category; --item-number reads "
        "it as a number"
        for name in ("brand_id", "shelfCode")
    ]
    many = pl.DataFrame({"supplier_id": [number // 1.5 for number in range(COUNT)]})
    assert _read(many).chosen.by_kind() == []


@pytest.mark.parametrize(
    ("name", "values", "is_said"),
    [
        ("ean", [4_000_000 + number for number in range(COUNT)], True),
        ("ean", [str(4_000_000 + number) for number in range(COUNT)], True),
        ("brand_id", [1, 2] * 20, True),
        ("sold", list(range(COUNT)), True),
        ("sold", [1, 2] * 20, False),
        ("price", [number / 4 for number in range(COUNT)], False),
        ("brand_id", [0.5, 1.5] * 20, False),
        ("since", [date(2024, 1, 1 + number % 28) for number in range(COUNT)], False),
    ],
)
def test_an_id_that_is_named_as_a_number_is_told(name: str, values: list[Any], is_said: bool) -> None:
    notes = _read(pl.DataFrame({name: values}), FeatureColumns(number=(name,))).notes
    expected = (
        f"items.csv: column {name!r} looks like an id, whose size says nothing; --item-category reads it "
        "as a category; if nearly every item has another, leave it out"
    )
    assert (expected in notes) == is_said


def test_an_id_that_is_named_as_a_text_is_told() -> None:
    codes, titles = [f"AX-{n}" for n in range(COUNT)], [f"The tale of {n}" for n in range(COUNT)]
    notes = _read(pl.DataFrame({"code": codes, "t": titles}), FeatureColumns(text=("code", "t"))).notes
    assert notes == [
        "items.csv: column 'code' has one word a row ('AX-0'), another in nearly each; if it is an id, leave "
        "it out of --item-text"
    ]


def test_a_separator_that_is_given_is_taken() -> None:
    frame = pl.DataFrame({"tags": ["a/b|c"]})
    chosen = FeatureColumns(multi=("tags",))
    assert _read(frame, chosen, list_separator="/").frame["tags"].to_list() == [["a", "b|c"]]
