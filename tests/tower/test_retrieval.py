"""Rankings of a bundle: exclusions, filters, popularity, diversity, and gains of repeated items."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from tests.conftest import contents, plain_ranking
from tests.support.repeats import GAPS, TERM, gains, ranking, repeating
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.catalog.columns import Coded
from turret.tower.catalog.masks import RowMask
from turret.tower.index.planner import Plan
from turret.tower.repeats import EVENTS, Events, ItemUse, RepeatWeights
from turret.tower.retrieval import Cap, Retriever, marginal_relevance
from turret.tower.times import Times


@pytest.fixture
def bundle(bundles: Path) -> Bundle:
    return Bundle.open(bundles / "v1")


def test_a_ranking_is_that_of_sorting_all_scores(bundle: Bundle) -> None:
    histories = [np.array(rows) for rows in ([0], [5, 6], [59, 2, 30, 1])]
    rankings = Retriever(bundle).recommend(histories, [{}] * 3, 12, histories)
    for history, found in zip(histories, rankings, strict=True):
        rows, scores = plain_ranking(np.array(bundle.vectors), history.tolist(), 0.5, 12)
        assert found.rows.tolist() == rows.tolist()
        assert found.scores == pytest.approx(scores, rel=1e-5)


@pytest.mark.parametrize("item_bias", [False, True])
def test_similar_items_are_ranked_by_the_items_own_vector(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, item_bias: bool
) -> None:
    """Without their biases, which say nothing of likeness."""
    scoring = bundle.manifest.scoring.model_copy(update={"item_bias": item_bias})
    monkeypatch.setattr(bundle, "manifest", bundle.manifest.model_copy(update={"scoring": scoring}))
    directions = np.array(bundle.vectors, np.float64)[:, : 8 - item_bias]
    scores = directions @ directions[4] / 0.5
    found = Retriever(bundle).similar(4, 59)
    assert found.rows.tolist() == [row for row in np.argsort(-scores, kind="stable").tolist() if row != 4]
    assert found.scores == pytest.approx(scores[found.rows], rel=1e-5)


def test_popular_items_are_ranked_by_count_and_then_by_row(tmp_path: Path) -> None:
    made = contents(ids=list("abcdef"))
    made.popularity[:] = [1, 5, 5, 0, 9, 5]
    retriever = Retriever(Bundle.open(publish(tmp_path, made)))
    found = retriever.popular(4, np.array([2]))
    assert found.rows.tolist() == [4, 1, 5, 0]
    assert found.scores.tolist() == [9, 5, 5, 1]
    assert retriever.popular(10, np.arange(6)).rows.tolist() == []
    assert [retriever.popularity_rank(row) for row in range(6)] == [5, 2, 2, 6, 1, 2]


def test_a_filter_keeps_to_what_it_allows(bundle: Bundle) -> None:
    """For histories and for popular items, together with what is excluded."""
    retriever = Retriever(bundle)
    allowed = RowMask(np.arange(60) % 7 == 3)
    excluded = np.array([10, 24, 5])
    left = sorted(set(range(3, 60, 7)) - {10, 24})
    (found,) = retriever.recommend([np.array([3])], [{}], 50, [excluded], allowed=allowed)
    assert sorted(found.rows.tolist()) == left
    popular = retriever.popular(3, excluded, allowed)
    assert popular.rows.tolist() == left[:3]
    assert popular.plan.allowed == allowed.count
    nothing = RowMask(np.zeros(60, dtype=np.bool_))
    assert retriever.popular(3, excluded, nothing).rows.tolist() == []


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 0.9])
def test_diversity_chooses_as_its_equation_says(weight: float) -> None:
    """Equation (1) of the paper, a candidate at a time."""
    assert marginal_relevance(*DRAWN, 12, weight).tolist() == by_equation(12, weight, lambda _: True)


def drawn() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The scores and the vectors of 30 items."""
    generator = np.random.default_rng(3)
    scores = np.sort(generator.normal(size=30).astype(np.float32))[::-1].copy()
    return scores, generator.normal(size=(30, 4)).astype(np.float32)


DRAWN = drawn()


def by_equation(k: int, weight: float, take: Callable[[int], bool]) -> list[int]:
    """The places of the items that are taken by diversity, until there are `k`."""
    scores, vectors = DRAWN
    alike = np.corrcoef(np.concatenate([vectors, -vectors], axis=1))  # of vectors with mean 0: their cosines
    relevance = (scores - scores.min()) / (scores.max() - scores.min())
    chosen, left = list[int](), [*range(30)]
    while left and len(chosen) < k:
        near = {place: max((alike[place][one] for one in chosen), default=0.0) for place in left}
        best = max(left, key=lambda one: (1 - weight) * relevance[one] - weight * near[one])
        left.remove(best)
        if take(best):
            chosen.append(best)
    return chosen


SCORES = np.array([9.0, 8.0, 5.0, 1.0], dtype=np.float32)
# The second is the first again, the third and fourth stand at right angles to both and to each other.
VECTORS = np.array([[1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 3]], dtype=np.float32)


def test_diversity_orders_equals_and_no_candidates_too() -> None:
    assert marginal_relevance(SCORES[:0], VECTORS[:0], 3, 0.5).tolist() == []
    assert sorted(marginal_relevance(SCORES, VECTORS, 9, 0.5).tolist()) == [0, 1, 2, 3]
    order = marginal_relevance(np.ones(3, np.float32), np.zeros((3, 2), np.float32), 3, 0.3)
    assert order.tolist() == [0, 1, 2]


def test_a_candidate_that_is_refused_is_replaced_by_the_next() -> None:
    cap = cap_of([1], [[[0], [1], [0], [2]]])
    assert marginal_relevance(SCORES, VECTORS, 3, 0.5).tolist() == [0, 2, 3]
    assert marginal_relevance(SCORES, VECTORS, 3, 0.5, cap).tolist() == [0, 3, 1]


def cap_of(limits: list[int], fields: list[list[list[int]]]) -> Cap:
    """The cap of items with these values of each field, item by item."""
    pairs = [[(place, one) for place, some in enumerate(field) for one in some] for field in fields]
    arrays = [np.array(some, np.int64).reshape(-1, 2).T for some in pairs]
    coded = zip(limits, (Coded(*array) for array in arrays), strict=True)
    return Cap(len(fields[0]), coded)


DRAMA, CRIME, COMEDY = range(3)


def test_a_cap_counts_each_value_of_a_field() -> None:
    genres = [[DRAMA, CRIME], [CRIME], [COMEDY], [], [], []]
    brands = [[0], [0], [0], [0], [], [1]]
    cap = cap_of([1, 2], [genres, brands])
    assert [*cap.take_from(0)] == [0, 2, 4, 5], "an item without a value is not limited"


FIELDS = st.lists(st.lists(st.integers(0, 5), unique=True, max_size=3), min_size=30, max_size=30)


@given(st.lists(st.tuples(st.integers(1, 4), FIELDS), min_size=1, max_size=3), st.sampled_from([0.0, 0.6]))
def test_a_cap_takes_each_item_that_has_no_value_too_often(
    limited: list[tuple[int, list[list[int]]]], weight: float
) -> None:
    """As a loop that looks at one item after the other does, by diversity and in the order of the scores."""
    taken: Counter[tuple[int, int]] = Counter()

    def take(place: int) -> bool:
        values = [(field, one) for field, (_, rows) in enumerate(limited) for one in rows[place]]
        can_be = all(taken[one] < limited[one[0]][0] for one in values)
        taken.update(values if can_be else ())
        return can_be

    expected = by_equation(30, weight, take)
    limits, fields = map(list, zip(*limited, strict=True))
    assert marginal_relevance(*DRAWN, 30, weight, cap_of(limits, fields)).tolist() == expected
    assert weight or [*cap_of(limits, fields).take_from(0)] == expected


# --- The repeat term

RANDOM = np.random.default_rng(5)
ITEMS = ItemUse(np.arange(30, 0, -1), GAPS[:30])
HISTORIES = [RANDOM.integers(0, 40, size).tolist() for size in (1, 2, 9, 64, 300)]
TIMES = [np.sort(RANDOM.integers(0, 90 * 86_400, len(rows))).astype(float).tolist() for rows in HISTORIES]
ASKED = [times[-1] + wait for times, wait in zip(TIMES, (0, 59, 60, 86_400, 3e7), strict=True)]


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("kinded", [False, True])
def test_gains_are_those_of_loops_over_the_events(timed: bool, kinded: bool) -> None:
    for rows, times, asked in zip(HISTORIES, TIMES, ASKED, strict=True):
        kinds = RANDOM.integers(-1, 2, len(rows)) if kinded else None  # -1: of no known kind
        scores = RANDOM.normal(size=40).astype(np.float32)
        when = Times(np.array(times), asked) if timed else None
        bonus = TERM.bonus(np.array(rows), ITEMS, when, kinds)
        found = bonus.gains(np.arange(40), scores)
        beside = (times if timed else None, asked, None if kinds is None else kinds.tolist())
        expected = gains(rows, scores.astype(np.float64), ITEMS, *beside)
        assert found == pytest.approx([expected.get(row, 0.0) for row in range(40)], rel=1e-5, abs=1e-5)


def test_a_history_gains_the_same_alone_and_among_others() -> None:
    """To the last bit, as the evaluation reads many histories at once and the service one."""
    lengths = np.array([len(rows) for rows in HISTORIES])
    events = Events(np.concatenate(HISTORIES), lengths, np.concatenate(TIMES), np.array(ASKED))
    used = TERM.used(events, ITEMS)
    together = TERM.weights(events).values(used)
    for owner, (rows, times, asked) in enumerate(zip(HISTORIES, TIMES, ASKED, strict=True)):
        alone = TERM.bonus(np.array(rows), ITEMS, Times(np.array(times), asked))
        assert used.rows[used.owners == owner].tolist() == alone.rows.tolist()
        assert together[used.owners == owner].tobytes() == alone.values.tobytes()


def test_the_newest_events_of_a_long_history_are_read() -> None:
    long = np.concatenate([np.full(50, 39), np.resize(np.arange(7), EVENTS)])
    assert TERM.bonus(long, ITEMS).rows.tolist() == list(range(7))


def test_a_bundle_ranks_used_items_by_their_scores_with_gains(tmp_path: Path) -> None:
    """As sorting all scores does; with items left out, among allowed ones, and in a batch."""
    contents = repeating()
    bundle = Bundle.open(publish(tmp_path, contents))
    retriever, nothing = Retriever(bundle), np.empty(0, np.int64)
    histories = [np.array([0, 5, 5, 9]), np.array([59, 2, 30, 1, 2, 8, 8])]
    known = [Times(np.arange(float(len(rows))) * 5e5, 4e6) for rows in histories]
    for times in (known, [None, None]):
        answers = retriever.recommend(histories, [{}] * 2, 20, [nothing] * 2, times)
        vectors = retriever.encode(histories, [{}] * 2)
        bonuses = retriever.bonus_of_each(histories, times)
        together = retriever.nearest_of_each(vectors, [20, 20], [nothing] * 2, bonuses)
        for answer, batched, rows, when in zip(answers, together, histories, times, strict=True):
            beside = () if when is None else (when.events.tolist(), when.request)
            order, scores = ranking(contents, rows.tolist(), *beside)
            assert answer.rows.tolist() == batched.rows.tolist() == order[:20].tolist()
            assert answer.scores == pytest.approx(scores[:20], rel=1e-4, abs=1e-5)
    order, _ = ranking(contents, histories[1].tolist())
    out, mask = np.array([8, 59, 3]), np.arange(60) % 3 != 1
    (left,) = retriever.recommend(histories[1:], [{}], 60, [out], allowed=RowMask(mask))
    assert left.rows.tolist() == [row for row in order.tolist() if mask[row] and row not in out]


@pytest.mark.parametrize("boosted", [False, True])
def test_several_interests_rank_by_the_best_score_with_its_gain(tmp_path: Path, boosted: bool) -> None:
    """Over all rows: the best product, the gain of used items over it, a filter, excluded rows and boosts."""
    contents, generator = repeating(), np.random.default_rng(4)
    retriever = Retriever(Bundle.open(publish(tmp_path, contents)))
    interests = generator.standard_normal((3, 8)).astype(np.float32)
    history, out, mask = np.array([59, 2, 30, 1, 2, 8, 8]), np.array([8, 3]), np.arange(60) % 4 != 1
    (bonus,) = retriever.bonus_of_each([history])
    boosts = generator.standard_normal(60).astype(np.float32) if boosted else None
    found = retriever.nearest(interests, 60, out, RowMask(mask), bonus, boosts=boosts)

    products = contents.item_vectors.astype(np.float64) @ interests.astype(np.float64).T
    scores = products.max(axis=1) / 0.5
    gained = gains(history.tolist(), scores, ItemUse(contents.popularity, GAPS))
    scores[[*gained]] += [*gained.values()]
    scores += boosts if boosts is not None else 0.0
    expected = [row for row in np.argsort(-scores).tolist() if mask[row] and row not in out]
    assert found.rows.tolist() == expected
    assert found.scores == pytest.approx(scores[expected], rel=1e-4, abs=1e-5)


def test_rows_that_are_ranked_alone_need_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no index misses one, and no engine is asked."""
    contents = repeating()
    bundle = Bundle.open(publish(tmp_path, contents))
    retriever, rows = Retriever(bundle), np.array([59, 2, 30, 1, 2, 8, 8])
    monkeypatch.setattr(retriever.planner, "nearest", None)
    (vector,), (bonus,) = retriever.encode([rows], [{}]), retriever.bonus_of_each([rows])
    order, scores = ranking(contents, rows.tolist())
    out, mask, only = np.array([8, 3]), np.arange(60) != 30, np.array([1, 2, 3, 8, 30, 40, 59])
    found = retriever.nearest(vector, 60, out, RowMask(mask), bonus, only)
    places = [place for place, row in enumerate(order.tolist()) if row in (1, 2, 40, 59)]
    assert found.rows.tolist() == order[places].tolist()
    assert found.scores == pytest.approx(scores[places], rel=1e-4, abs=1e-5)
    assert found.plan == Plan("subset", 59, 4)
    assert retriever.nearest(vector, 2, only=only[:0]).rows.tolist() == []
    assert retriever.nearest(vector, 2, only=only).scores.dtype == np.float32


def test_weights_of_other_features_are_refused() -> None:
    for weights in ({"classes": {"recency": (1.0, 2.0)}}, {"numbers": {"weather": 1.0}}):
        with pytest.raises(ValidationError, match="another release"):
            RepeatWeights.model_validate(weights)
