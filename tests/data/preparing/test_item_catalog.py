import json
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from turret.data.errors import ColumnError
from turret.data.preparing.feature_readings import read_features
from turret.data.preparing.item_catalog import EntityTable, fields, read_entity_table, refuse_own_id
from turret.data.reading.schema import FeatureColumns, FormatSettings
from turret.data.reading.tables import ROW, Malformed, Table

NONE = FeatureColumns()


def _fields(
    entries: EntityTable, ids: list[str], names: tuple[str, ...] | None = None, chosen: FeatureColumns = NONE
) -> dict[str, list[Any]]:
    frame = entries.aligned(ids)
    readings = read_features(frame, chosen, entries.path, "item", FormatSettings())
    return fields(frame, names, readings, entries)


def _entries(frame: pl.DataFrame, is_text: bool = False, malformed: Malformed | None = None) -> EntityTable:
    numbered = frame.with_row_index(ROW, offset=1).lazy()
    table = Table(numbered, Path("items.parquet"), is_text, malformed or Malformed())
    return read_entity_table(table, None, "item_id", "item")


def test_rows_are_brought_in_the_order_of_the_vocabulary() -> None:
    entries = _entries(pl.DataFrame({"item_id": [3, 1], "title": ["three", "one"]}))
    assert entries.ids.to_list() == ["3", "1"]
    assert entries.aligned(["1", "2", "3"]).to_dict(as_series=False) == {"title": ["one", None, "three"]}


def test_the_id_column_of_the_file_is_refused_as_a_feature() -> None:
    entries = _entries(pl.DataFrame({"item_id": ["a"], "colour": ["red"]}))
    refuse_own_id(FeatureColumns(category=("colour",)), entries, "item")
    with pytest.raises(
        ColumnError, match=r"'item_id' of items.parquet holds the ids of the items, .* leave it out"
    ):
        refuse_own_id(FeatureColumns(category=("colour", "item_id")), entries, "item")


def test_null_and_repeated_ids_and_malformed_lines_are_bad_and_the_first_row_of_an_id_stays() -> None:
    frame = pl.DataFrame({"item_id": ["a", None, "a"], "title": ["first", "none", "second"]})
    entries = _entries(frame, malformed=Malformed(1, ({"row": 9},)))
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
    entries = _entries(frame)
    found = _fields(entries, ["1", "2"])
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
    assert list(_fields(entries, ["1"], ("price",))) == ["price"]


def test_texts_of_a_csv_file_become_what_they_were_meant_as() -> None:
    frame = pl.DataFrame(
        {
            "item_id": ["1"],
            "year": ["1999"],
            "code": ["007"],
            "genres": ["a|b"],
            "price": ["2.50"],
            "size": ["2.50"],
            "number": ["9223372036854775808"],
        }
    )
    entries = _entries(frame, is_text=True)
    chosen = FeatureColumns(multi=("genres",), number=("price",))
    found = _fields(entries, ["1"], chosen=chosen)
    assert found == {
        "year": [1999],
        "code": ["007"],
        "genres": [["a", "b"]],
        "price": [2.5],
        "size": ["2.50"],
        "number": ["9223372036854775808"],
    }


def test_named_fields_have_to_exist_and_to_fit() -> None:
    entries = _entries(pl.DataFrame({"item_id": [1], "blob": [b"x"]}))
    with pytest.raises(ColumnError, match="no column 'titel' for the answers; its columns are blob"):
        _fields(entries, ["1"], ("titel",))
    with pytest.raises(ColumnError, match=r"'blob' of .* holds Binary, which JSON can't express"):
        _fields(entries, ["1"], ("blob",))
