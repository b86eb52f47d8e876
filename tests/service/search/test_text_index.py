from collections.abc import Sequence

import pytest

from turret.service.search import text_index
from turret.service.search.text_index import TextIndex, ranks, searchable

ITEMS = [
    searchable(["i1", "star wars"], ["science fiction", "war of the worlds"]),
    searchable(["i2", "the wars of the stars"], ["history"]),
    searchable(["i3", "comedy of errors"], ["star actors"]),
    searchable(["i4", "upstart"], []),
]


def found(query: str, texts: Sequence[bytes] = ITEMS) -> list[list[int]]:
    """The positions by rank."""
    index = TextIndex(texts)
    return [list(rank.matches(index)) for rank in ranks(query)]


def test_a_name_that_begins_with_the_query_is_better_than_a_word_in_it_or_in_another_text() -> None:
    assert found("star") == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_every_word_of_the_query_has_to_match_in_any_order() -> None:
    assert found("wars star")[1] == [0, 1]
    assert found("star history")[2] == [1]
    assert found("star nothing") == [[], [], [], []]


def test_a_word_across_two_texts_does_not_match() -> None:
    assert found("errors star")[0] == []
    assert found("orsst") == [[], [], [], []]


def test_an_item_without_texts_is_no_fault() -> None:
    assert found("a", []) == [[], [], [], []]
    assert found("a", [b""]) == [[], [], [], []]


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text appears once, also where a block begins or ends with it."""
    texts = [searchable([f"i{number}"], [f"word{number % 7} all"]) for number in range(500)]
    whole = found("word3", texts)
    monkeypatch.setattr(text_index, "_BLOCK_BYTES", 64)
    assert found("word3", texts) == whole
    assert whole[2] == list(range(3, 500, 7))
    assert found("all", texts)[2] == list(range(500))
