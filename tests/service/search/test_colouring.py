from typing import Any

import numpy as np
import pytest

from turret.service.errors import InvalidFieldError
from turret.service.search.colouring import MOST_GROUPS, NO_GROUP, Colouring, colouring
from turret.tower.catalog.catalog import Catalog


def coloured(values: list[Any]) -> Colouring:
    return colouring(Catalog.build(list(range(len(values))), {"field": values}), "field")


def test_texts_are_grouped_by_the_most_frequent_values_and_a_rest() -> None:
    values = [f"v{number}" for number in range(15) for _ in range(20 - number)] + [None]
    groups, codes = coloured(values)
    assert len(groups) == MOST_GROUPS
    assert [group.label for group in groups] == [*(f"v{number}" for number in range(9)), "other"]
    assert [group.items for group in groups][:9] == list(range(20, 11, -1))
    assert sum(group.items for group in groups) == len(values) - 1
    assert codes[-1] == NO_GROUP


def test_few_texts_have_no_rest() -> None:
    groups, codes = coloured(["b", "a", "b"])
    assert [tuple(group) for group in groups] == [("b", 2), ("a", 1)]
    assert codes.tolist() == [0, 1, 0]


def test_an_item_of_several_values_belongs_to_the_most_frequent() -> None:
    groups, codes = coloured([["x", "y"], ["y"], [], ["x"], ["y"]])
    assert [group.label for group in groups] == ["y", "x"]
    assert codes.tolist() == [0, 0, NO_GROUP, 1, 0]


def test_numbers_are_grouped_by_ranges_of_about_as_many_items() -> None:
    values = np.random.default_rng(0).lognormal(size=1000).tolist()
    groups, codes = coloured([*values, None])
    sizes = [group.items for group in groups]
    assert len(groups) == 8
    assert min(sizes) > 100
    assert sum(sizes) == 1000
    order = np.argsort(values)
    assert (np.diff(codes[:-1][order].astype(int)) >= 0).all()
    assert codes[-1] == NO_GROUP


def test_few_numbers_are_groups_of_their_own() -> None:
    groups, codes = coloured([3, 1, 3, 2.5])
    assert [group.label for group in groups] == ["1", "2.5", "3"]
    assert codes.tolist() == [2, 0, 2, 1]


def test_booleans_are_two_groups() -> None:
    groups, codes = coloured([True, None, False, True])
    assert [tuple(group) for group in groups] == [("true", 2), ("false", 1)]
    assert codes.tolist() == [0, NO_GROUP, 1, 0]


@pytest.mark.parametrize("values", [[None, None], [1, "a"], [{"a": 1}, None]])
def test_a_field_that_can_not_be_grouped_is_refused(values: list[Any]) -> None:
    fields = {"field": values, "year": [1, 2]}
    with pytest.raises(InvalidFieldError, match="coloured by year"):
        colouring(Catalog.build([1, 2], fields), "field")
    with pytest.raises(InvalidFieldError, match="no field to colour"):
        colouring(Catalog.build([1, 2], {"field": values}), "nowhere")
