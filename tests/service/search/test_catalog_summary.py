from typing import Any

from turret.service.search.catalog_summary import MOST_VALUES, summarise
from turret.tower.catalog.catalog import Catalog


def test_the_fields_are_summarised_by_their_kinds() -> None:
    fields: dict[str, list[Any]] = {
        "title": ["a", "b", "c", None],
        "genres": [["x", "y"], ["y"], [], None],
        "year": [1999, None, 1980, float("nan")],
        "sizes": [[1, 2], [2], None, []],
        "new": [True, False, None, True],
        "mixed": [1, "a", None, None],
        "none": [None] * 4,
    }
    assert summarise(Catalog.build([1, 2, 3, 4], fields)) == {
        "title": "title",
        "picture": None,
        "fields": [
            {"name": "title", "kind": "text", "missing": 1},
            {"name": "genres", "kind": "texts", "missing": 2},
            {"name": "year", "kind": "number", "missing": 2, "minimum": 1980.0, "maximum": 1999.0},
            {"name": "sizes", "kind": "numbers", "missing": 2, "minimum": 1.0, "maximum": 2.0},
            {"name": "new", "kind": "boolean", "missing": 1},
            {"name": "mixed", "kind": "mixed", "missing": 2},
            {"name": "none", "kind": "none", "missing": 4},
        ],
    }


def test_values_that_items_share_are_listed_the_most_frequent_first() -> None:
    genres = [["x", "y"], ["y"], ["y"], ["x"], ["z", "y"], ["y"]]
    (field,) = summarise(Catalog.build(list(range(6)), {"genres": genres}))["fields"]
    assert field["values"] == [
        {"value": "y", "items": 5},
        {"value": "x", "items": 2},
        {"value": "z", "items": 1},
    ]


def test_no_more_values_than_a_list_can_show() -> None:
    values = [f"v{number % 300}" for number in range(900)]
    (field,) = summarise(Catalog.build(list(range(900)), {"brand": values}))["fields"]
    assert len(field["values"]) == MOST_VALUES


def test_a_catalog_without_fields_has_an_empty_summary() -> None:
    assert summarise(Catalog.build([1, 2], {})) == {"title": None, "picture": None, "fields": []}
