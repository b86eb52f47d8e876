import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.format.index_settings import FlatSettings, ScalarSettings, SearchParams
from turret.tower.format.manifest import Scoring
from turret.tower.index.faiss_index.order import Found
from turret.tower.index.index import ExactIndex
from turret.tower.index.planner import Planner
from turret.tower.index.scalar import ScalarIndex

SCORING = Scoring(kind="dot", temperature=1.0)
ABSOLUTE = Scoring(kind="dot", temperature=1.0, absolute=True)
COUNT = 1000
VECTORS = np.random.default_rng(0).standard_normal((COUNT, 8)).astype(np.float32)
QUERY = np.random.default_rng(1).standard_normal(8).astype(np.float32)
RANKED = np.argsort(-(VECTORS @ QUERY), kind="stable")
SETTINGS = ScalarSettings(
    efforts=(SearchParams(k=10, candidates=40), SearchParams(k=100, candidates=220)), subset_rows=100
)
APPROXIMATE = ScalarIndex.build(VECTORS, SETTINGS)


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


@pytest.mark.parametrize("k", [0, -3])
def test_k_below_one_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"not {k}"):
        Planner(APPROXIMATE, SCORING).nearest(QUERY, k)


def by_sorting(products: NDArray[np.float32], k: int, allowed: NDArray[np.bool_]) -> list[int]:
    """The allowed rows by falling product, then by rising row."""
    return sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-float(products[row]), row))[:k]


# On a busy machine, FAISS's threads wait for a processor.
@settings(deadline=None)
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
    index, mask = ExactIndex.build(vectors), RowMask(allowed)
    for asked, scoring, products in (
        (query, ABSOLUTE, np.abs(vectors @ query)),
        (several, SCORING, (vectors @ several.T).max(axis=1)),
        (several, ABSOLUTE, np.abs(vectors @ several.T).max(axis=1)),
    ):
        rows, found, _ = Planner(index, scoring).nearest(asked, k, None, mask)
        assert rows.tolist() == by_sorting(products, k, allowed)
        assert found.tolist() == products[rows].tolist()


def test_signed_scores_alone_would_miss_the_far_side() -> None:
    """The nearest by size is the opposite vector, which a search for h ranks last."""
    index = ExactIndex.build(np.array([[1, 0], [0, 1], [-2, 0]], np.float32))
    query = np.array([1, 0], np.float32)
    assert Planner(index, ABSOLUTE).nearest(query, 1).rows.tolist() == [2]
    assert Planner(index, SCORING).nearest(query, 1).rows.tolist() == [0]


class RemoteSettings(FlatSettings):
    is_remote = True


class RemoteIndex(ExactIndex):
    """Answers after a turn of the event loop, as an engine behind a socket does; refuses to block."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        super().__init__(vectors)
        self.settings = RemoteSettings()
        self.awaited = 0

    def nearest(self, vector: NDArray[np.float32], k: int, allowed: RowMask | None = None) -> Found:
        raise AssertionError("a server must not wait for a remote engine")

    async def nearest_async(
        self, vector: NDArray[np.float32], k: int, allowed: RowMask | None = None
    ) -> Found:
        await asyncio.sleep(0)
        self.awaited += 1
        return super().nearest(vector, k, allowed)


@pytest.mark.parametrize("scoring", [SCORING, ABSOLUTE], ids=["signed", "absolute"])
def test_an_awaited_search_gives_the_answers_of_a_direct_one(scoring: Scoring) -> None:
    """With every plan: all rows, a few left out, so many that more are fetched, a filter."""
    local, remote = ExactIndex(VECTORS), RemoteIndex(VECTORS)
    assert remote.settings.is_remote
    assert not local.settings.is_remote
    for excluded, mask in ((None, None), (RANKED[:3], None), (RANKED[:50], None), (RANKED[:3], first(100))):
        direct = Planner(local, scoring).nearest(QUERY, 10, excluded, mask)
        awaited = asyncio.run(Planner(remote, scoring).nearest_async(QUERY, 10, excluded, mask))
        assert awaited.rows.tolist() == direct.rows.tolist()
        assert awaited.products.tolist() == direct.products.tolist()
        assert awaited.plan == direct.plan
    assert remote.awaited >= 5


@pytest.mark.parametrize("rows", [COUNT - 1, COUNT + 1])
def test_a_filter_of_another_catalog_is_refused(rows: int) -> None:
    mask = RowMask(np.ones(rows, dtype=np.bool_))
    with pytest.raises(ValueError, match=f"the filter has {rows} rows where the index has {COUNT}"):
        Planner(APPROXIMATE, SCORING).nearest(QUERY, 10, None, mask)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_refused(bad: float) -> None:
    """Also as one of several vectors of a user."""
    vector = QUERY.copy()
    vector[3] = bad
    planner = Planner(APPROXIMATE, SCORING)
    for vectors in (vector, np.vstack([QUERY, vector])):
        with pytest.raises(ValueError, match="finite"):
            planner.nearest(vectors, 10)
