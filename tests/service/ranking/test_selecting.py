import numpy as np
import pytest
from numpy.typing import NDArray

from turret.service.ranking.selecting import POOL, POOL_PER_ITEM, Conditions, Ranked, Selection, select
from turret.service.schemas.cursor import Cursor
from turret.tower.retrieval.retriever import Ranking

COUNT = 1_000
# Every score twice, so that pages end in ties.
SCORES = np.repeat(np.arange(COUNT // 2, 0, -1), 2).astype(np.float32)


class Shelf:
    """Items whose field `brand` is the row's tens, and whose vectors are drawn."""

    def __init__(self) -> None:
        self.drawn = np.random.default_rng(0).normal(size=(COUNT, 8)).astype(np.float32)
        self.compared: list[int] = []

    def fields(self, row: int) -> dict[str, object]:
        return {"brand": row // 10, "tags": ["all"]}

    def directions(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.compared.append(len(rows))
        found: NDArray[np.float32] = self.drawn[rows]
        return found


def ranking(calls: list[int] | None = None, count: int = COUNT) -> Ranked:
    """The rows in their order, noting how many were asked for."""

    def ranked(k: int) -> Ranking:
        if calls is not None:
            calls.append(k)
        return Ranking(np.arange(min(k, count)), SCORES[: min(k, count)])

    return ranked


def fixed(order: list[int], scores: list[float]) -> Ranked:
    rows_of, scores_of = np.array(order), np.array(scores, dtype=np.float32)
    return lambda k: Ranking(rows_of[:k], scores_of[:k])


def chosen(conditions: Conditions, ranked: Ranked | None = None, overlay: Shelf | None = None) -> Selection:
    return select(ranked or ranking(), conditions, overlay or Shelf())  # type: ignore[arg-type]


def rows(selection: Selection) -> list[int]:
    found: list[int] = selection.ranking.rows.tolist()
    return found


@pytest.mark.parametrize("k", [1, 3, 7, 250])
def test_pages_follow_each_other_without_gaps_or_repeats(k: int) -> None:
    seen: list[int] = []
    after = None
    while True:
        page = chosen(Conditions(k, after))
        seen += rows(page)
        if page.exhausted or not len(page.ranking.rows):
            break
        last = page.ranking
        after = Cursor("v1", 0, len(seen), float(last.scores[-1]), int(last.rows[-1]))
    assert seen == list(range(COUNT))


@pytest.mark.parametrize("towards", [0.0, 1e9])
def test_a_page_is_found_by_a_score_of_another_machine(towards: float) -> None:
    """Whose arithmetic ends in other bits."""
    score = float(np.nextafter(SCORES[3], np.float32(towards)))
    page = chosen(Conditions(3, Cursor("v1", 0, 4, score, 3)))
    assert rows(page) == [4, 5, 6]


def test_a_page_is_found_even_where_what_came_before_it_is_gone() -> None:
    """Of the items shown, some were since withdrawn: what the count says is too many."""
    page = chosen(Conditions(5, Cursor("v1", 0, 500, float(SCORES[3]), 3)))
    assert rows(page) == [4, 5, 6, 7, 8]


def test_a_page_is_found_where_more_came_before_it() -> None:
    """Asked for too few at first, it asks for more."""
    calls: list[int] = []
    page = chosen(Conditions(5, Cursor("v1", 0, 2, float(SCORES[60]), 60)), ranking(calls))
    assert rows(page) == [61, 62, 63, 64, 65]
    assert len(calls) > 1


def test_no_item_is_lost_where_products_that_differ_have_one_score() -> None:
    """Division by the temperature may leave a lower row behind a higher one of the same score."""
    order = [9, 3, 7, 1]
    ranked = fixed(order, [2.0, 2.0, 2.0, 1.0])
    seen, after = [], None
    for shown in range(4):
        (row,) = rows(page := chosen(Conditions(1, after), ranked))
        seen.append(row)
        after = Cursor("v1", 0, shown + 1, float(page.ranking.scores[0]), row)
    assert seen == order


def test_after_a_withdrawn_item_come_the_higher_rows_of_its_score() -> None:
    """Row 5 ended the page before and is gone; row 3 stood above it."""
    page = chosen(Conditions(5, Cursor("v1", 0, 2, 2.0, 5)), fixed([3, 7, 9], [2.0, 2.0, 1.0]))
    assert rows(page) == [7, 9]


def test_after_an_item_whose_score_has_changed_come_the_lower_scores() -> None:
    """Its new position says nothing about the page before."""
    page = chosen(Conditions(5, Cursor("v1", 0, 2, 2.0, 3)), fixed([5, 7, 9, 3], [2.5, 1.5, 1.0, 0.5]))
    assert rows(page) == [7, 9, 3]


def test_items_that_score_less_are_left_out() -> None:
    page = chosen(Conditions(10, min_score=499.0))
    assert (rows(page), page.exhausted) == ([0, 1, 2, 3], True)
    page = chosen(Conditions(4, min_score=499.0))
    assert (rows(page), page.exhausted) == ([0, 1, 2, 3], False)
    assert rows(chosen(Conditions(4, min_score=1e9))) == []


def test_a_cap_holds_and_all_are_found_however_far_down() -> None:
    page = chosen(Conditions(100, cap={"brand": 1}))
    assert (rows(page), page.exhausted) == (list(range(0, COUNT, 10)), False)
    page = chosen(Conditions(101, cap={"brand": 1}))
    assert (len(rows(page)), page.exhausted) == (100, True)
    page = chosen(Conditions(5, cap={"brand": 2, "tags": 3}))
    assert (rows(page), page.exhausted) == ([0, 1, 10], True)


def test_fewer_than_exist_are_never_given() -> None:
    assert (len(rows(chosen(Conditions(3), ranking(count=2)))), chosen(Conditions(3)).exhausted) == (2, False)
    assert chosen(Conditions(3), ranking(count=0)).exhausted


def test_diversity_chooses_from_the_best_alone() -> None:
    calls: list[int] = []
    page = chosen(Conditions(10, diversity=0.5), ranking(calls))
    assert calls == [POOL]
    assert rows(page) != list(range(10))
    assert rows(page)[0] == 0
    assert max(rows(page)) < POOL


def test_diversity_and_a_cap_hold_at_once() -> None:
    page = chosen(Conditions(10, diversity=0.3, cap={"brand": 1}))
    assert len({row // 10 for row in rows(page)}) == 10
    assert not page.exhausted


def test_a_cap_that_keeps_nearly_all_out_has_no_more_items_compared_with_each_other() -> None:
    """Beyond the best, what fits under the cap comes by its score: the work doesn't grow with the square."""
    overlay = Shelf()
    page = chosen(Conditions(100, diversity=0.3, cap={"brand": 1}), overlay=overlay)
    assert (len(rows(page)), page.exhausted) == (100, False)
    assert len({row // 10 for row in rows(page)}) == 100
    assert max(overlay.compared) <= POOL_PER_ITEM * 100
