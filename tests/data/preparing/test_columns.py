import pytest

from turret.data.errors import ColumnError
from turret.data.preparing.columns import choose_columns, choose_id
from turret.data.reading.schema import ColumnSettings


def _choose(existing: list[str], **settings: object) -> tuple[str, str, str | None]:
    chosen = choose_columns(ColumnSettings.model_validate(settings), existing, "log.csv")
    return chosen.user, chosen.item, chosen.time


def test_columns_under_common_names_are_found_and_named_ones_win() -> None:
    existing = ["movieId", "userId", "rating", "timestamp", "other"]
    assert _choose(existing) == ("userId", "movieId", "timestamp")
    assert _choose(existing, user="other", time="rating") == ("other", "movieId", "rating")
    assert _choose(existing, in_file_order=True) == ("userId", "movieId", None)


def test_a_missing_column_names_those_that_exist() -> None:
    with pytest.raises(
        ColumnError, match=r"log\.csv has no column 'nobody' for the user; its columns are a, b$"
    ):
        _choose(["a", "b"], user="nobody")
    with pytest.raises(ColumnError, match=r"usual columns for the item; its columns are user, b: .*--item"):
        _choose(["user", "b"])
    with pytest.raises(ColumnError, match="no column 'stars' for the weight"):
        _choose(["user", "item", "time"], weight="stars")


def test_a_header_with_a_name_more_than_once_is_refused_only_where_it_is_read() -> None:
    existing = ["user", "item (column 2)", "item (column 3)", "time", "stars (column 5)", "stars (column 6)"]
    with pytest.raises(
        ColumnError,
        match=r"header of log\.csv has 'item' more than once; name the one for the item \(--item\): "
        r"'item \(column 2\)' or 'item \(column 3\)'$",
    ):
        _choose(existing)
    assert _choose(existing, item="item (column 3)") == ("user", "item (column 3)", "time")
    with pytest.raises(
        ColumnError, match=r"more than once; name the one for the weight: 'stars \(column 5\)'"
    ):
        _choose(existing, item="item (column 3)", weight="stars")
    with pytest.raises(ColumnError, match="no column 'sku' for the item"):
        _choose([*existing, "sku (column x)"], item="sku")


def test_a_log_without_an_order_needs_one_named_or_said_to_be_in_order() -> None:
    with pytest.raises(ColumnError, match=r"--time, or give --in-file-order"):
        _choose(["user_id", "item_id"])


def test_the_ids_of_a_catalog_are_called_as_in_the_events_or_as_usual() -> None:
    assert choose_id("item", None, "sku", ["sku", "item_id"], "items.csv") == "sku"
    assert choose_id("item", None, "sku", ["item_id"], "items.csv") == "item_id"
    assert choose_id("item", "code", "sku", ["sku", "code"], "items.csv") == "code"
    with pytest.raises(ColumnError, match=r"items\.csv has none .* --item-id"):
        choose_id("item", None, "sku", ["name"], "items.csv")
