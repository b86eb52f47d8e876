from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest

from turret.data.errors import ColumnError
from turret.data.events.buckets import LoggedEvents
from turret.data.events.event_arrays import Events
from turret.data.events.events import Log, validate
from turret.data.events.read_events import IngestedEvents, read_events
from turret.data.preparing.columns import choose_columns
from turret.data.reading.schema import ColumnSettings, FilterSettings
from turret.data.reading.tables import ROW, Table

Columns = Mapping[str, Sequence[object]]

EVENTS: Columns = {
    "user": ["a", None, "b", "a", "", "c", "a", "b"],
    "item": ["x", "x", None, "y", "x", "z", "y", "x"],
    "time": ["1", "2", "3", "soon", "5", None, "7", "8"],
    "stars": ["5", "5", "5", "5", "5", "5", "-2", "many"],
    "event": ["buy", "view", "view", "buy", "buy", "buy", "buy", "buy"],
}


def _table(columns: Columns, name: str = "log.csv") -> Table:
    frame = pl.DataFrame(columns, strict=False).with_row_index(ROW, offset=2)
    return Table(frame.with_columns(pl.col(ROW).cast(pl.Int64)).lazy(), Path(name), is_text=True)


def _validate(
    columns: Columns,
    filters: FilterSettings | None = None,
    catalog: list[str] | None = None,
    **settings: object,
) -> Log:
    chosen = ColumnSettings.model_validate(settings)
    known = None if catalog is None else pl.Series(catalog)
    table = _table(columns)
    return validate(
        [(None, table)],
        choose_columns(chosen, list(columns), "log"),
        chosen,
        filters or FilterSettings(),
        known,
    )


def _read(log: Log) -> tuple[IngestedEvents, Events]:
    with TemporaryDirectory() as work:
        found = read_events(log, Path(work))
        assert isinstance(found.events, LoggedEvents)
        return found, Events(**found.events.read(0, len(found.events)))


def _counts(log: Log) -> tuple[int, dict[str, int], dict[str, int]]:
    found, events = _read(log)
    return len(events), {b.kind: b.count for b in found.bad_rows}, {r.filter: r.events for r in found.removed}


def test_every_row_has_one_verdict_and_the_first_reason_counts() -> None:
    events, bad, removed = _counts(_validate(EVENTS, weight="stars", catalog=["x", "y"]))
    assert (events, removed) == (1, {})
    assert bad == {
        "null user": 2,
        "null item": 1,
        "unreadable time": 1,
        "null time": 1,
        "weight not above 0": 1,
        "unreadable weight": 1,
    }


def test_items_missing_from_the_catalog_are_bad() -> None:
    columns: Columns = {"user": [1, 1], "item": ["x", "q"], "time": [1, 2]}
    assert _counts(_validate(columns, catalog=["x"]))[1] == {"item not in the items file": 1}


def test_ids_that_the_service_would_not_take_are_bad() -> None:
    columns: Columns = {"user": ["é" * 512, "u" * 513, "u"], "item": ["x", "x", "i" * 513], "time": [1, 2, 3]}
    assert _counts(_validate(columns)) == (1, {"id longer than 512 characters": 2}, {})


def test_decimal_numbers_are_numbers() -> None:
    """Databases export whole numbers as decimals."""
    one, other = Decimal("7"), Decimal("8.50")
    columns: Columns = {"user": [one], "item": [one], "time": [other], "n": [other], "count": [one]}
    log = _validate(columns, weight="n", quantity="count")
    found, events = _read(log)
    assert (found.users.to_list(), found.items.to_list()) == (["7"], ["7"])
    assert _counts(log) == (1, {}, {})
    assert events.weights is not None
    assert (events.times.tolist(), events.weights.tolist()) == ([8.5], [8.5])


def test_a_weight_and_a_quantity_have_to_be_above_zero() -> None:
    columns: Columns = {
        "user": [1] * 4,
        "item": [1] * 4,
        "time": [1] * 4,
        "stars": ["0", "0.5", "1", "1"],
        "count": [1, 1, 0, -1],
    }
    bad = {"weight not above 0": 1, "return (quantity not above 0)": 2}
    assert _counts(_validate(columns, weight="stars", quantity="count")) == (1, bad, {})


def test_examples_are_the_first_rows_by_their_numbers_and_the_sources_names() -> None:
    times: list[object] = ["1", "2", "3", "4", "no", "no"]
    columns: Columns = {"user_id": [1] * 6, "item": ["x"] * 6, "time": times}
    (bad,) = _read(_validate(columns))[0].bad_rows
    assert bad.examples == [
        {"row": 6, "user_id": "1", "item": "x", "time": "no"},
        {"row": 7, "user_id": "1", "item": "x", "time": "no"},
    ]


def test_no_more_than_three_examples_are_shown() -> None:
    columns: Columns = {"user": [None] * 9 + [1], "item": ["x"] * 10, "time": [1] * 10}
    (bad,) = _read(_validate(columns))[0].bad_rows
    assert (bad.count, [example["row"] for example in bad.examples]) == (9, [2, 3, 4])


def test_rows_of_other_kinds_are_filtered_before_they_can_be_bad() -> None:
    events, bad, removed = _counts(_validate(EVENTS, FilterSettings(kinds=("buy",)), kind="event"))
    assert removed == {"kinds": 2}
    assert (events, bad) == (3, {"null user": 1, "unreadable time": 1, "null time": 1})


def test_kinds_and_columns_make_the_weight_and_light_events_go() -> None:
    columns: Columns = {
        "user": [1, 1, 1, 1],
        "item": [1, 2, 3, 4],
        "time": [1, 2, 3, 4],
        "event": ["view", "buy", "buy", "other"],
        "n": [1, 1, 2, 9],
    }
    weights = FilterSettings(kind_weights={"view": 1, "buy": 5}, min_weight=5)
    log = _validate(columns, weights, kind="event", weight="n")
    assert _counts(log) == (2, {}, {"kinds": 1, "min_weight": 1})
    found, events = _read(log)
    assert events.weights is not None
    assert (found.items.gather(events.items).to_list(), events.weights.tolist()) == ([2, 3], [5, 10])


def test_parts_keep_their_numbers_and_examples_name_the_file() -> None:
    train = _table({"user": [1], "item": [1], "time": [1]}, "train.csv")
    test = _table({"user": [1, None], "item": [2, 1], "time": [2, 1]}, "test.csv")
    columns = choose_columns(ColumnSettings(), ["user", "item", "time"], "log")
    log = validate([(0, train), (2, test)], columns, ColumnSettings(), FilterSettings(), None)
    found, events = _read(log)
    assert events.parts is not None
    assert events.parts.tolist() == [0, 2]
    assert found.bad_rows[0].examples == [
        {"file": "test.csv", "row": 3, "user": None, "item": "1", "time": "1"}
    ]


@pytest.mark.parametrize(
    ("filters", "settings", "sentence"),
    [
        (FilterSettings(kinds=("buy",)), {}, "--kind-column"),
        (FilterSettings(min_weight=4), {}, "--weight"),
        (
            FilterSettings(),
            {"weight": "tags"},
            r"'tags' holds List\(String\), but numbers are needed",
        ),
        (FilterSettings(), {"user": "tags"}, r"'tags' holds List\(String\), but ids have to be"),
    ],
)
def test_what_a_setting_needs_of_a_column_is_said(
    filters: FilterSettings, settings: dict[str, str], sentence: str
) -> None:
    columns: Columns = {"user": [1], "item": [1], "time": [1], "tags": [["a"]]}
    with pytest.raises(ColumnError, match=sentence):
        _validate(columns, filters, None, **settings)


def test_parts_with_columns_of_different_types_are_refused() -> None:
    tables = [
        _table({"user": [1], "item": [1], "time": [1]}),
        _table({"user": [1], "item": [1], "time": [[1]]}),
    ]
    columns = choose_columns(ColumnSettings(), ["user", "item", "time"], "log")
    with pytest.raises(ColumnError, match="differ in type between the parts"):
        validate([(0, tables[0]), (2, tables[1])], columns, ColumnSettings(), FilterSettings(), None)
