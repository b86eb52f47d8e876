"""Ids and rows: vocabularies and ranges of rows."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turret.data.errors import DataError
from turret.data.ranges import ranges
from turret.data.vocabulary import Vocabulary

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True)
TEXTS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), unique=True, min_size=1)


@given(INTEGERS | TEXTS)
def test_rows_and_ids_are_inverse_and_ids_come_back_as_they_went_in(ids: list[int] | list[str]) -> None:
    vocabulary = Vocabulary(ids)
    assert len(vocabulary) == len(ids)
    assert vocabulary.ids(range(len(ids))) == ids
    for row in range(len(ids)):
        assert vocabulary.row(ids[row]) == row
        assert type(vocabulary.id(row)) is type(ids[row])


@given(ids=INTEGERS | TEXTS)
def test_a_saved_vocabulary_is_the_same_one(tmp_path: Path, ids: list[int] | list[str]) -> None:
    Vocabulary(ids).save(tmp_path / "v.json")
    loaded = Vocabulary.load(tmp_path / "v.json")
    assert (loaded.kind, loaded.ids(range(len(ids)))) == (Vocabulary(ids).kind, ids)


def test_integers_and_their_texts_find_each_other_but_nothing_else_does() -> None:
    numbers, texts = Vocabulary([42, 7, -1]), Vocabulary(["42", "007", "x"])
    assert [numbers.row(i) for i in (42, "42", "-1", "042", "+7", "7.0", " 7", "", "\u0667", True)] == [
        0, 0, 2, None, None, None, None, None, None, None,
    ]  # fmt: skip
    assert [texts.row(i) for i in (42, "42", 7, "7", "007", "X")] == [0, 0, None, None, 1, None]


def test_repeated_and_mixed_ids_and_rows_that_do_not_exist_are_refused() -> None:
    with pytest.raises(DataError, match="id 'b' occurs twice"):
        Vocabulary(["a", "b", "c", "b"])
    with pytest.raises(DataError, match="id 7 occurs twice"):
        Vocabulary([1, 7, 7, 9])
    with pytest.raises(DataError, match="either integers or strings, not int, str"):
        Vocabulary([1, "a"])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="not bool"):
        Vocabulary([True])
    with pytest.raises(IndexError, match="row -1 is outside a vocabulary of 1 ids"):
        Vocabulary(["a"]).id(-1)


@pytest.mark.parametrize("stored", ["{", "[]", '{"kind": "integer"}', '{"kind": "integer", "ids": ["a"]}'])
def test_a_file_that_holds_no_vocabulary_is_refused(tmp_path: Path, stored: str) -> None:
    path = tmp_path / "v.json"
    path.write_text(stored)
    with pytest.raises(DataError, match=r"v\.json"):
        Vocabulary.load(path)
    with pytest.raises(DataError, match="No such file"):
        Vocabulary.load(tmp_path / "none.json")


@given(
    st.lists(
        st.integers(0, 30) | st.sampled_from(["3", "03", "x", "-1", "", 2**70, True, False]), max_size=20
    ),
    st.booleans(),
)
def test_known_rows_are_those_of_one_id_at_a_time(asked: list[int | str], are_integers: bool) -> None:
    """On both paths: all at once, or singly where some ids are unknown or of another kind."""
    vocabulary = Vocabulary(list(range(20))) if are_integers else Vocabulary([str(n) for n in range(20)])
    rows, unknown = vocabulary.known_rows(asked)
    singly = [vocabulary.row(one) for one in asked]
    assert rows.tolist() == [row for row in singly if row is not None]
    assert unknown == [one for one, row in zip(asked, singly, strict=True) if row is None]
    assert rows.dtype == np.int32


def test_ranges_are_laid_end_to_end() -> None:
    """Empty ranges add nothing."""
    assert ranges(np.array([5, 9, 2]), np.array([2, 0, 3])).tolist() == [5, 6, 2, 3, 4]
    assert ranges(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).tolist() == []
