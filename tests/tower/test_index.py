"""Exact and approximate search: ties, masks, plans, lists and codes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.config import ScoringConfig
from turret.tower.format.index_settings import (
    IvfPqSettings,
    ScalarSettings,
    SearchParams,
)
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import Found
from turret.tower.index.index import ExactIndex, Index
from turret.tower.index.kinds import are_equal, augmented
from turret.tower.index.planner import Planner


def by_sorting(
    vectors: NDArray[np.float32], query: NDArray[np.float32], k: int, allowed: NDArray[np.bool_]
) -> list[int]:
    scores = [float(np.dot(vector, query)) for vector in vectors]
    order = sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-scores[row], row))
    return order[:k]


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 40),
    k=st.integers(1, 50),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_search_is_a_stable_sort_of_the_allowed_rows(seed: int, count: int, k: int, share: float) -> None:
    """Small integers as coordinates make many exact ties, and sums without rounding."""
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-1, 2, (count, 3)).astype(np.float32)
    queries = generator.integers(-2, 3, (2, 3)).astype(np.float32)
    allowed = generator.random(count) < share
    rows, scores = ExactIndex(vectors).search(queries, k, allowed)
    assert rows.shape == scores.shape == (2, min(k, int(allowed.sum())))
    for query, found in zip(queries, rows, strict=True):
        assert found.tolist() == by_sorting(vectors, query, k, allowed)


SCORING = ScoringConfig(kind="dot", temperature=1.0)

ABSOLUTE = ScoringConfig(kind="dot", temperature=1.0, absolute=True)

COUNT = 1000

VECTORS = np.random.default_rng(0).standard_normal((COUNT, 8)).astype(np.float32)

QUERY = np.random.default_rng(1).standard_normal(8).astype(np.float32)

RANKED = np.argsort(-(VECTORS @ QUERY), kind="stable")

SETTINGS = ScalarSettings(
    efforts=(SearchParams(k=10, candidates=40), SearchParams(k=100, candidates=220)), subset_rows=100
)

APPROXIMATE = ApproximateIndex.build(VECTORS, SETTINGS)


def first(count: int) -> RowMask:
    """A filter that leaves the first rows."""
    return RowMask(np.arange(COUNT) < count)


@pytest.mark.parametrize(
    ("excluded", "allowed", "kind"),
    [
        (0, None, "index"),
        (7, None, "over_fetch"),
        (0, 100, "subset"),
        (7, 100, "subset"),
        (0, 101, "selector"),
        (7, 101, "selector"),
    ],
)
def test_the_plan_goes_by_what_is_left_out_and_how_much_is_allowed(
    excluded: int, allowed: int | None, kind: str
) -> None:
    mask = None if allowed is None else first(allowed)
    rows, _, plan = Planner(APPROXIMATE, SCORING).nearest(QUERY, 10, RANKED[:excluded], mask)
    left = [row for row in RANKED[excluded:].tolist() if mask is None or mask.mask[row]]
    assert rows.tolist() == left[:10]
    assert (plan.kind, plan.allowed) == (kind, allowed)


def test_an_exact_index_scores_whatever_is_allowed() -> None:
    planner = Planner(ExactIndex(VECTORS), SCORING)
    assert planner.nearest(QUERY, 10, None, first(900)).plan.kind == "subset"
    assert planner.is_exact
    assert not Planner(APPROXIMATE, SCORING).is_exact


def test_a_few_more_are_fetched_and_all_that_are_needed_when_those_were_left_out() -> None:
    """50 that are far away cost one small search; the 50 nearest cost further ones."""
    planner = Planner(ExactIndex(VECTORS), SCORING)
    far, near = planner.nearest(QUERY, 10, RANKED[-50:]), planner.nearest(QUERY, 10, RANKED[:50])
    assert far.rows.tolist() == RANKED[:10].tolist()
    assert near.rows.tolist() == RANKED[50:60].tolist()
    assert far.plan.fetched < 30
    assert near.plan.fetched == 60


@pytest.mark.parametrize(
    ("excluded", "searches"),
    [
        (RANKED[:0], [(10, 10)]),
        (RANKED[-50:], [(13, 21)]),
        (np.append(RANKED[:200], RANKED[-500:]), [(27, 61), (244, 244)]),
    ],
)
def test_what_replaces_excluded_rows_is_searched_for_with_less_effort(
    excluded: NDArray[np.int64], searches: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless too few are left: then all have the effort of a search for so many."""
    asked = []

    def nearest_of_each(vectors: NDArray[np.float32], k: int, spare: int) -> list[Found]:
        asked.append((k, k + spare))
        return APPROXIMATE.exact.nearest_of_each(vectors, k, spare)

    monkeypatch.setattr(APPROXIMATE, "nearest_of_each", nearest_of_each)
    assert len(Planner(APPROXIMATE, SCORING).nearest(QUERY, 10, excluded).rows) == 10
    assert asked == searches


@pytest.mark.parametrize(("k", "spare"), [(10, 0), (10, 20), (90, 30), (120, 10), (990, 100)])
def test_as_many_rows_come_as_are_asked_for_with_the_spare_ones(k: int, spare: int) -> None:
    """Also where the settings propose fewer, and where the catalog ends."""
    rows, scores = APPROXIMATE.nearest_of_each(QUERY[None], k, spare)[0]
    assert rows.tolist() == RANKED[: k + spare].tolist()
    assert scores == pytest.approx(VECTORS[rows] @ QUERY, rel=1e-5)


def test_a_k_beyond_the_efforts_is_searched_exactly() -> None:
    rows = Planner(APPROXIMATE, SCORING).nearest(QUERY, 101).rows
    assert rows.tolist() == RANKED[:101].tolist()
    assert APPROXIMATE.search_params(101) is None


def test_between_two_efforts_there_is_one_between() -> None:
    assert APPROXIMATE.search_params(5) == SearchParams(k=10, candidates=40)
    assert APPROXIMATE.search_params(55) == SearchParams(k=55, candidates=130)
    assert APPROXIMATE.search_params(100) == SearchParams(k=100, candidates=220)


def test_between_two_efforts_as_many_are_proposed_as_asked_for() -> None:
    """Also where both have no more candidates than k."""
    few = (SearchParams(k=10, candidates=10), SearchParams(k=97, candidates=97))
    index = APPROXIMATE.with_settings(SETTINGS.model_copy(update={"efforts": few}))
    for k in range(1, 98):
        params = index.search_params(k)
        assert params is not None
        assert params.candidates == max(k, 10)


def by_products(products: NDArray[np.float32], k: int, allowed: NDArray[np.bool_]) -> list[int]:
    """The allowed rows by falling product, then by rising row."""
    return sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-float(products[row]), row))[:k]


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 40),
    k=st.integers(1, 50),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_absolute_scores_and_several_vectors_sort_the_allowed_rows(
    seed: int, count: int, k: int, share: float
) -> None:
    """Small integers make many ties between rows, also between opposite ones; each row comes once."""
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-1, 2, (count, 3)).astype(np.float32)
    query, *_ = several = generator.integers(-2, 3, (3, 3)).astype(np.float32)
    allowed = generator.random(count) < share
    index, mask = ExactIndex(vectors), RowMask(allowed)
    for asked, scoring, products in (
        (query, ABSOLUTE, np.abs(vectors @ query)),
        (several, SCORING, (vectors @ several.T).max(axis=1)),
        (several, ABSOLUTE, np.abs(vectors @ several.T).max(axis=1)),
    ):
        rows, found, _ = Planner(index, scoring).nearest(asked, k, None, mask)
        assert rows.tolist() == by_products(products, k, allowed)
        assert found.tolist() == products[rows].tolist()


@pytest.mark.parametrize("rows", [COUNT - 1, COUNT + 1])
def test_a_filter_of_another_catalog_is_refused(rows: int) -> None:
    mask = RowMask(np.ones(rows, dtype=np.bool_))
    with pytest.raises(ValueError, match=f"the filter has {rows} rows where the index has {COUNT}"):
        Planner(APPROXIMATE, SCORING).nearest(QUERY, 10, None, mask)


FEW = (SearchParams(k=10, candidates=20),)

NARROW = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)


UNEQUAL = (np.random.default_rng(0).standard_normal((200, 5)) * np.linspace(0.1, 3, 200)[:, None]).astype(
    np.float32
)

ASKED = np.random.default_rng(1).standard_normal(5).astype(np.float32)


def test_augmented_vectors_are_of_one_length_and_rank_by_distance_as_by_inner_product() -> None:
    longer = augmented(UNEQUAL).astype(np.float64)
    assert np.linalg.norm(longer, axis=1) == pytest.approx(np.linalg.norm(UNEQUAL, axis=1).max(), rel=1e-5)
    distances = np.linalg.norm(longer - np.append(ASKED, 0), axis=1)
    assert np.argsort(distances).tolist() == np.argsort(-(UNEQUAL.astype(np.float64) @ ASKED)).tolist()


def test_unit_vectors_count_as_equal_and_others_do_not() -> None:
    unit = UNEQUAL / np.linalg.norm(UNEQUAL, axis=1, keepdims=True)
    assert are_equal(unit)
    assert not are_equal(UNEQUAL)
    biased = unit.copy()
    biased[::2, -1] += np.float32(0.1)
    assert not are_equal(biased)


@pytest.fixture
def vectors() -> NDArray[np.float32]:
    """400 unit vectors of 16 numbers."""
    drawn = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


@pytest.fixture(params=[False, True], ids=["plain", "rotated"])
def small(vectors: NDArray[np.float32], request: pytest.FixtureRequest) -> ApproximateIndex:
    """Codes without lists."""
    efforts = (SearchParams(k=10, candidates=60),)
    settings = IvfPqSettings(efforts=efforts, lists=1, parts=16, rotated=request.param)
    assert settings.reads_all
    return ApproximateIndex.build(vectors, settings)


@pytest.mark.parametrize("absolute", [False, True], ids=["signed", "absolute"])
@pytest.mark.parametrize("kind", ["ivf_pq", "sq8", "flat"])
def test_queries_that_are_searched_for_together_have_the_answers_of_each_alone(
    small: ApproximateIndex, vectors: NDArray[np.float32], kind: str, absolute: bool
) -> None:
    """With histories of other lengths, other k, and so many excluded rows that a second search follows."""
    scalar = ApproximateIndex.build(vectors, ScalarSettings(efforts=(SearchParams(k=10, candidates=40),)))
    indexes: dict[str, Index] = {"ivf_pq": small, "sq8": scalar, "flat": ExactIndex(vectors)}
    planner = Planner(indexes[kind], ScoringConfig(kind="cosine", temperature=0.1, absolute=absolute))
    best = [planner.nearest(query, 400).rows for query in vectors[:40]]
    excluded = [rows[: at % 3 * 40] for at, rows in enumerate(best)]
    ks = [3 + at % 4 for at in range(40)]
    together = planner.nearest_of_each(vectors[:40], ks, excluded)
    for query, k, out, found in zip(vectors, ks, excluded, together, strict=False):
        alone = planner.nearest(query, k, out)
        np.testing.assert_array_equal(found.rows, alone.rows)
        np.testing.assert_array_equal(found.scores, alone.scores)
        assert found.plan == alone.plan


def test_rotated_codes_find_what_a_number_that_stands_out_hides() -> None:
    """Users ask far more by one number than by the others, in which the items that they want differ."""
    drawn = np.random.default_rng(1).standard_normal((2_000, 16)).astype(np.float32)
    drawn[:, 0] = np.where(np.arange(2_000) % 2, 3.0, -3.0)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    users = drawn[1:100:2].copy()
    users[:, 0] += 5.0
    shares = []
    for rotated in (False, True):
        efforts = (SearchParams(k=10, candidates=20),)
        settings = IvfPqSettings(efforts=efforts, lists=1, parts=16, rotated=rotated)
        index, exact = ApproximateIndex.build(drawn, settings), ExactIndex(drawn)
        found = [len(np.intersect1d(index.nearest(u, 10)[0], exact.nearest(u, 10)[0])) for u in users]
        shares.append(np.mean(found) / 10)
    assert shares[1] > shares[0] + 0.1
