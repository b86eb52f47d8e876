import numpy as np
import pytest

from turret.service.search.postings import Postings

TEXTS = [["star", "wars"], ["start", "stars"], [], ["upstart", "star", "star"], ["\u6771\u4eac\u7269\u8a9e"]]


@pytest.mark.parametrize(
    ("beginning", "positions"),
    [("star", [0, 1, 3]), ("start", [1]), ("w", [0]), ("x", []), ("", [0, 1, 3, 4]), ("\u6771", [4])],
)
def test_texts_are_found_by_the_beginnings_of_their_words(beginning: str, positions: list[int]) -> None:
    assert np.flatnonzero(Postings(TEXTS).beginning_with(beginning)).tolist() == positions


@pytest.mark.parametrize(
    ("part", "positions"), [("tar", [0, 1, 3]), ("art", [1, 3]), ("\u7269", [4]), ("sw", [])]
)
def test_texts_are_found_by_parts_of_their_words(part: str, positions: list[int]) -> None:
    assert np.flatnonzero(Postings(TEXTS).containing(part)).tolist() == positions


@pytest.mark.parametrize("texts", [[], [[]], [[], []]])
def test_texts_without_words_are_no_fault(texts: list[list[str]]) -> None:
    postings = Postings(texts)
    assert postings.beginning_with("a").tolist() == postings.containing("a").tolist() == [False] * len(texts)


def test_the_answers_are_those_of_a_plain_loop() -> None:
    random = np.random.default_rng(0)
    texts = [["".join(random.choice(list("abc"), 4)) for _ in range(random.integers(4))] for _ in range(300)]
    postings = Postings(texts)
    for part in ("a", "ab", "bca", "cccc"):
        assert postings.beginning_with(part).tolist() == [
            any(w.startswith(part) for w in text) for text in texts
        ]
        assert postings.containing(part).tolist() == [any(part in w for w in text) for text in texts]
