from typing import Any

import pytest

from turret.service.search.field_roles import picture_of, title_of
from turret.tower.catalog.catalog import Catalog


def catalog(**fields: list[Any]) -> Catalog:
    count = len(next(iter(fields.values()), []))
    return Catalog.build(list(range(count)), fields)


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"year": [1, 2], "title": ["a", "a"], "other": ["b", "c"]}, "title"),
        ({"Name": ["a", "a"]}, "Name"),
        ({"brand": ["x", "x", "y"], "what": ["a", "b", "c"]}, "what"),
        ({"brand": ["x", "x", "x"]}, None),
        ({"year": [1, 2]}, None),
        ({"link": ["https://a/1", "https://a/2"]}, None),
        ({"title": [None, None]}, None),
    ],
)
def test_the_title_is_a_field_of_that_name_or_the_text_with_the_most_distinct_values(
    fields: dict[str, list[Any]], title: str | None
) -> None:
    assert title_of(catalog(**fields)) == title


@pytest.mark.parametrize(
    ("fields", "picture"),
    [
        ({"poster": ["https://a/1", "https://a/2"]}, "poster"),
        ({"link": ["https://a/1.JPG?w=2", "http://a/2.png"]}, "link"),
        ({"link": ["https://a/1", "https://a/2"]}, None),
        ({"poster": ["yes", "https://a/2"]}, None),
        ({"title": ["a"], "year": [1]}, None),
    ],
)
def test_the_picture_is_a_text_of_addresses(fields: dict[str, list[Any]], picture: str | None) -> None:
    assert picture_of(catalog(**fields)) == picture
