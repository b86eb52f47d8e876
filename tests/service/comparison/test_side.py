from collections.abc import Callable
from typing import Any

import pytest

from turret.data.features import Feature
from turret.service.comparison.side import Side, overlap_between
from turret.service.errors import InvalidFieldError
from turret.service.ranking.query import NO_HISTORY, Query, make_query
from turret.service.schemas.requests import RecommendRequest
from turret.tower.errors import EncodingError

MakeSide = Callable[..., Side]


def query(**request: Any) -> Query:
    return make_query(RecommendRequest(**request), NO_HISTORY, (), 0)


def test_an_answer_has_the_ids_of_its_items_and_no_next_page(make_side: MakeSide) -> None:
    answer, ids = make_side("v1").answer(query(history=[110, 120], k=5), frozenset())
    assert (answer["version"], "cursor" in answer, len(ids)) == ("v1", False, 5)
    assert not {110, 120} & set(ids)


def test_a_part_that_is_missing_is_named(make_side: MakeSide) -> None:
    side = make_side("v1")
    answer, _ = Side(side.model, side.fresh, ("items",)).answer(query(), frozenset())
    assert answer["degraded"] == ["items"]


def test_a_feature_of_the_other_version_alone_is_left_out(
    make_side: MakeSide, user_features: tuple[Feature, ...]
) -> None:
    plain, rich = make_side("v1"), make_side("v2", features=user_features)
    assert {"country", "age"} <= rich.feature_names
    asked = query(history=[110], features={"country": "nl"})
    assert plain.answer(asked, rich.feature_names)[1] == plain.answer(query(history=[110]), frozenset())[1]
    assert rich.answer(asked, plain.feature_names)[1] != rich.answer(query(history=[110]), frozenset())[1]
    with pytest.raises(EncodingError, match=r"^version v1: "):
        plain.answer(query(history=[110], features={"shoe": 1}), rich.feature_names)


def test_a_refusal_names_the_version(make_side: MakeSide) -> None:
    with pytest.raises(InvalidFieldError, match=r"^version v1: "):
        make_side("v1").answer(query(cap={"shoe": 1}), frozenset())


@pytest.mark.parametrize(
    ("live", "other", "overlap"),
    [
        ([1, 2, 3, 4], [4, 3, 9, 8], 0.5),
        ([1], [1, 2, 3, 4], 0.25),
        ([1, 2, 3, 4], [1], 0.25),
        ([], [1], 0.0),
        ([], [], 1.0),
        ([7], ["7"], 1.0),
    ],
)
def test_the_overlap_is_the_same_from_both_sides(live: list[Any], other: list[Any], overlap: float) -> None:
    assert overlap_between(live, other) == overlap_between(other, live) == overlap
