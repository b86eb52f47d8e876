from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.tower.engines.memory_engine import met
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.filters import Filter, compile_filter
from turret.tower.engines.engine import EngineItems
from turret.tower.engines.fields import Drawn, engine_fields, where_of

FIELDS: dict[str, list[Any]] = {
    "title": ["Heat", "Alien", None, "Łódź", "Heat"],
    "genres": [["Drama", "Crime"], ["Drama"], [], None, ["Comedy"]],
    "year": [1995, 1979, None, 2001.5, 1995],
    "sizes": [[1, 2.5], [], [2.5], None, [7]],
    "new": [True, False, None, True, False],
    "odd": [1, "one", None, 2, 3],
    "none": [None] * 5,
}
FILTERS: list[dict[str, Any]] = [
    {},
    {"title": {"equals": "Heat"}},
    {"title": {"any_of": ["Heat", "nothing"]}},
    {"title": {"none_of": ["Heat"]}},
    {"title": {"gte": "B", "lt": "Z"}},
    {"genres": {"any_of": ["Drama", "Comedy"]}},
    {"genres": {"any_of": []}},
    {"genres": {"not_null": False}},
    {"year": {"gt": 1979, "lte": 2001.5}},
    {"year": {"any_of": [1979, 1995]}},
    {"year": {"any_of": []}},
    {"year": {"not_null": True}},
    {"sizes": {"gte": 2, "lt": 7}},
    {"sizes": {"equals": 2.5}},
    {"new": {"equals": True}},
    {"new": {"equals": False}},
    {"odd": {"not_null": True}},
    {"none": {"not_null": True}},
    {"not": {"year": {"gte": 1990}}},
    {"any": [{"year": {"lt": 1990}}, {"genres": {"equals": "Comedy"}}], "new": {"not_null": True}},
    {"any": []},
    {"all": []},
    {"not": {"any": [{"title": {"equals": "Heat"}}, {"not": {"genres": {"not_null": True}}}]}},
]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.build(range(5), FIELDS)


@pytest.mark.parametrize("given", FILTERS, ids=str)
def test_the_engine_is_asked_for_the_items_that_the_filter_allows(
    catalog: Catalog, given: dict[str, Any]
) -> None:
    items = EngineItems(np.zeros((5, 2), dtype=np.float32), engine_fields(catalog))
    filtering = compile_filter(given, catalog)
    where = where_of(filtering.condition, catalog)
    assert where is not None
    assert met(where, items).tolist() == filtering.allowed().mask.tolist()


def test_a_range_of_very_many_texts_is_not_sent() -> None:
    catalog = Catalog.build(range(3000), {"name": [f"n{row:04d}" for row in range(3000)]})
    few, many = {"name": {"lt": "n0500"}}, {"name": {"lt": "n2500"}}
    assert where_of(compile_filter(few, catalog).condition, catalog) is not None
    assert where_of(compile_filter(many, catalog).condition, catalog) is None
    assert where_of(compile_filter({"not": many}, catalog).condition, catalog) is None
    assert where_of(compile_filter({"any": [few, many]}, catalog).condition, catalog) is None


def test_draws_are_nested_samples_that_the_engine_can_filter_by(catalog: Catalog) -> None:
    items = EngineItems(np.zeros((5, 2), dtype=np.float32), engine_fields(catalog))
    masks = [Filter(Drawn(count), catalog).allowed() for count in range(6)]
    assert [mask.count for mask in masks] == list(range(6))
    for small, large in pairwise(masks):
        assert not (small.mask & ~large.mask).any()
        where = where_of(Drawn(small.count), catalog)
        assert where is not None
        assert met(where, items).tolist() == small.mask.tolist()
