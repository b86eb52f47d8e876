from dataclasses import replace
from typing import Any

import pytest

from turret.data.prepared import PreparedData
from turret.training.inspection.item_names import ItemNames


def named(data: PreparedData, **fields: list[Any]) -> ItemNames:
    return ItemNames(replace(data, fields=fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"genre": list("aabba"), "Title": list("vwxyz")}, "Title"),
        ({"genre": list("aaaaa"), "headline": list("vwxyz")}, "headline"),
        ({"genre": list("aaaab"), "price": [1.0, 2.0, 3.0, 4.0, 5.0]}, None),
        ({"title": [None] * 5}, None),
        ({}, None),
    ],
)
def test_the_title_is_a_field_of_the_usual_name_or_of_distinct_texts(
    handmade: PreparedData, fields: dict[str, list[Any]], expected: str | None
) -> None:
    assert named(handmade, **fields).title_field == expected


def test_an_item_has_its_id_its_title_and_some_of_its_fields(handmade: PreparedData) -> None:
    names = named(
        handmade,
        title=["One", None, "  Two \n lines ", "x" * 500, "Five"],
        genres=[["a", "b"], [], None, [], []],
        price=[1.5, None, 0, 1, 1],
    )
    first, second, third, fourth, _ = names.items(range(5))
    assert (first.id, first.title, first.detail, first.details) == ("p", "One", "a, b", "a, b · 1.5")
    assert (second.title, second.detail) == (None, "")
    assert third.title == "Two lines"
    assert fourth.title is not None
    assert len(fourth.title) == 100
