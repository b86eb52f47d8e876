from collections.abc import Sequence

import pytest

from turret.service.search.text_index import (
    HAS_PARTS,
    HAS_WORDS,
    NAME_BEGINS,
    NAME_HAS_WORDS,
    ItemTexts,
    TextIndex,
)

ITEMS = [
    ItemTexts(["i1", "upstart"], []),
    ItemTexts(["i2", "comedy of errors"], ["star actors"]),
    ItemTexts(["i3", "the wars of the stars"], ["history"]),
    ItemTexts(["i4", "star wars"], ["science fiction", "war of the worlds"]),
]


def found(query: str, texts: Sequence[ItemTexts] = ITEMS) -> list[tuple[int, int]]:
    """The ranks and positions."""
    return list(TextIndex(texts).matches(query))


def test_a_name_that_begins_with_the_query_is_better_than_a_word_in_it_or_in_another_text() -> None:
    assert found("star") == [(NAME_BEGINS, 3), (NAME_HAS_WORDS, 2), (HAS_WORDS, 1), (HAS_PARTS, 0)]


def test_every_word_of_the_query_has_to_match_in_any_order() -> None:
    assert found("wars star") == [(NAME_HAS_WORDS, 2), (NAME_HAS_WORDS, 3)]
    assert found("star w") == [(NAME_BEGINS, 3), (NAME_HAS_WORDS, 2)]
    assert found("star history") == [(HAS_WORDS, 2)]
    assert found("star nothing") == []


def test_equal_matches_are_in_the_order_of_the_items() -> None:
    assert found("i") == [(NAME_BEGINS, 0), (NAME_BEGINS, 1), (NAME_BEGINS, 2), (NAME_BEGINS, 3)]


@pytest.mark.parametrize("texts", [[], [ItemTexts([], [])], [ItemTexts([""], [""])]])
def test_an_item_without_texts_is_no_fault(texts: list[ItemTexts]) -> None:
    assert found("a", texts) == found("a b", texts) == []
