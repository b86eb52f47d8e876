"""Exact and approximate search: ties, masks, plans, lists and codes, and their files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.tools import small_files
from turret.tower.catalog.masks import RowMask
from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import (
    ApproximateSettings,
    FlatSettings,
    HnswSettings,
    IndexSettings,
    IvfPqSettings,
    IvfSettings,
    SearchParams,
)
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.blocked import BlockedIndex
from turret.tower.index.faiss_calls import faiss
from turret.tower.index.index import ExactIndex, Index, open_index
from turret.tower.index.planner import Planner

SCORING = ScoringConfig(kind="dot", temperature=1.0)
ABSOLUTE = ScoringConfig(kind="dot", temperature=1.0, absolute=True)
COUNT = 1000
VECTORS = np.random.default_rng(0).standard_normal((COUNT, 8)).astype(np.float32)
QUERY = np.random.default_rng(1).standard_normal(8).astype(np.float32)
RANKED = np.argsort(-(VECTORS @ QUERY), kind="stable")
EFFORTS = (SearchParams(k=10, candidates=40), SearchParams(k=100, candidates=220))
APPROXIMATE = ApproximateIndex.build(VECTORS, IvfSettings(efforts=EFFORTS, subset_rows=100, lists=1))


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


def test_a_k_beyond_the_efforts_is_searched_exactly() -> None:
    rows = Planner(APPROXIMATE, SCORING).nearest(QUERY, 101).rows
    assert rows.tolist() == RANKED[:101].tolist()
    assert APPROXIMATE.search_params(101) is None


def by_products(products: NDArray[np.float32], k: int, allowed: NDArray[np.bool_]) -> list[int]:
    """The allowed rows by falling product, then by rising row."""
    return sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-float(products[row]), row))[:k]


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 40),
    k=st.integers(1, 50),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_search_is_a_stable_sort_of_the_allowed_rows(seed: int, count: int, k: int, share: float) -> None:
    """Also by absolute scores and for several vectors: small integers make many ties between rows."""
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-1, 2, (count, 3)).astype(np.float32)
    query, *_ = several = generator.integers(-2, 3, (3, 3)).astype(np.float32)
    allowed = generator.random(count) < share
    index, mask = ExactIndex(vectors), RowMask(allowed)
    for asked, scoring, products in (
        (query, SCORING, vectors @ query),
        (query, ABSOLUTE, np.abs(vectors @ query)),
        (several, SCORING, (vectors @ several.T).max(axis=1)),
        (several, ABSOLUTE, np.abs(vectors @ several.T).max(axis=1)),
    ):
        rows, found, _ = Planner(index, scoring).nearest(asked, k, None, mask)
        assert rows.tolist() == by_products(products, k, allowed)
        assert found.tolist() == products[rows].tolist()


TOGETHER: dict[str, IndexSettings] = {
    "codes": IvfPqSettings(efforts=EFFORTS[:1], lists=1, parts=16),
    "rotated codes": IvfPqSettings(efforts=EFFORTS[:1], lists=1, parts=16, rotated=True),
    "lists": IvfSettings(efforts=EFFORTS[:1], lists=1),
    "flat": FlatSettings(),
}


@pytest.mark.parametrize("interests", [1, 3])
@pytest.mark.parametrize("absolute", [False, True], ids=["signed", "absolute"])
@pytest.mark.parametrize("settings", TOGETHER.values(), ids=TOGETHER)
def test_queries_that_are_searched_for_together_have_the_answers_of_each_alone(
    settings: IndexSettings, absolute: bool, interests: int
) -> None:
    """With histories of other lengths, other k, and so many excluded rows that a second search follows."""
    vectors = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index: Index = ExactIndex(vectors)
    if isinstance(settings, ApproximateSettings):
        index = ApproximateIndex.build(vectors, settings)
    planner = Planner(index, ScoringConfig(kind="cosine", temperature=0.1, absolute=absolute))
    queries = vectors[: 40 * interests].reshape(40, interests, 16)
    queries = queries[:, 0] if interests == 1 else queries
    best = [planner.nearest(query, 400).rows for query in queries]
    excluded = [rows[: at % 3 * 40] for at, rows in enumerate(best)]
    ks = [3 + at % 4 for at in range(40)]
    together = planner.nearest_of_each(queries, ks, excluded)
    for query, k, out, found in zip(queries, ks, excluded, together, strict=True):
        alone = planner.nearest(query, k, out)
        np.testing.assert_array_equal(found.rows, alone.rows)
        np.testing.assert_array_equal(found.scores, alone.scores)
        assert found.plan == alone.plan


# --- Files

FEW = VECTORS[:500]
LISTS = IvfSettings(efforts=EFFORTS[:1], lists=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.faiss"


def of_a_terabyte(content: bytes) -> bytes:
    """FAISS would allocate it before it looks whether the bytes are there."""
    place = content.index(FEW.shape[1].to_bytes(4, "little"))
    return content[:place] + (2**40).to_bytes(8, "little") + content[place + 8 :]


@pytest.mark.parametrize(
    ("change", "lists", "words"),
    [
        (lambda content: b"", 10, "not a FAISS index"),
        (lambda content: b"IxFI" + b"\xff" * 60, 10, "not a FAISS index"),
        (of_a_terabyte, 10, r"index\.faiss"),
        (lambda content: content, 11, r"8, 10\) where .* 8, 11\)"),
    ],
    ids=["empty", "nonsense", "a terabyte", "other lists"],
)
def test_a_file_that_is_not_the_index_of_the_manifest_is_refused(
    path: Path, change: Callable[[bytes], bytes], lists: int, words: str
) -> None:
    ApproximateIndex.build(FEW, LISTS).save(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BundleError, match=words):
        open_index(path, FEW, LISTS.model_copy(update={"lists": lists}))


def test_an_index_that_the_disk_can_not_take_is_refused(path: Path) -> None:
    """FAISS raises a plain RuntimeError."""
    index = ApproximateIndex.build(FEW, LISTS)
    with small_files(2000), pytest.raises(BundleError, match=rf"^{path}: the index can't be written .*room"):
        index.save(path)


@pytest.mark.fault(49)
def test_lists_in_another_file_are_refused_before_it_is_opened(path: Path, tmp_path: Path) -> None:
    """Their numbers would be those of whatever file the index names."""
    code = ApproximateIndex.build(FEW, LISTS)._proposing
    lists = faiss.OnDiskInvertedLists(10, code.code_size, str(tmp_path / "other"))
    lists.merge_from_1(code.invlists)
    own, code.own_invlists = code.invlists, False
    code.replace_invlists(lists)
    faiss.write_index(code, str(path))
    code.replace_invlists(own)
    (tmp_path / "other").unlink()
    with pytest.raises(BundleError, match="keeps its lists in another file"):
        open_index(path, FEW, LISTS)


IN_LISTS = IvfSettings(efforts=EFFORTS, lists=4)
CODES = IvfPqSettings(efforts=EFFORTS, lists=4, parts=8)
PACKED = IvfPqSettings(efforts=EFFORTS, lists=1, parts=8)
GRAPH = HnswSettings(efforts=EFFORTS)


def write_row(row: int) -> Callable[[Any], None]:
    """Write a row number into the first list."""

    def write(index: Any) -> None:
        lists = faiss.downcast_InvertedLists(index.invlists)
        faiss.rev_swig_ptr(lists.get_ids(0), int(lists.list_size(0)))[1] = row

    return write


def add_row(index: Any) -> None:
    """Let the first list have one more row."""
    lists = faiss.downcast_InvertedLists(index.invlists)
    lists.resize(0, int(lists.list_size(0)) + 1)


def add_centre(index: Any) -> None:
    """Add a centre that has no list."""
    faiss.downcast_index(index.quantizer).add(VECTORS[:1])


def count_codes(index: Any) -> None:
    """Declare a million codes."""
    index.ntotal2 = 1_000_000


def begin_low(index: Any) -> None:
    """Begin the search of a graph at a node that isn't on its highest level."""
    levels = faiss.vector_to_array(index.hnsw.levels)
    index.hnsw.entry_point = int(np.flatnonzero(levels == 1)[-1])


def link_low(index: Any) -> None:
    """Link a node on the highest level to one that isn't there."""
    levels, offsets, slots = map(
        faiss.vector_to_array,
        (index.hnsw.levels, index.hnsw.offsets, index.hnsw.cum_nneighbor_per_level),
    )
    links = faiss.vector_to_array(index.hnsw.neighbors)
    links[int(offsets[index.hnsw.entry_point]) + slots[1]] = int(np.flatnonzero(levels == 1)[-1])
    faiss.copy_array_to_vector(links, index.hnsw.neighbors)


@pytest.mark.parametrize(
    ("settings", "change", "words"),
    [
        (IN_LISTS, write_row(COUNT), "list 0 holds row 1000 of 1000 items"),
        (IN_LISTS, write_row(-1), "list 0 holds row -1 of 1000 items"),
        (IN_LISTS, add_row, "its lists hold 1001 rows, 1000 distinct ones, of 1000 items"),
        (IN_LISTS, add_centre, "it has 5 centres in a IndexFlatIP for its lists"),
        (CODES, write_row(1 << 40), f"list 0 holds row {1 << 40} of 1000 items"),
        (CODES, add_centre, "it has 5 centres"),
        (PACKED, count_codes, "it has codes of 1000000 rows in 4096 bytes, not of 1024"),
        (GRAPH, begin_low, "its graph of 1000 nodes begins at none of its highest level"),
        (GRAPH, link_low, "its graph has links on level 1 to nodes that are not there"),
    ],
)
def test_an_index_of_rows_that_do_not_exist_is_refused(
    tmp_path: Path, settings: ApproximateSettings, change: Callable[[Any], None], words: str
) -> None:
    """FAISS opens it, and a search would read beyond the vectors."""
    made = ApproximateIndex.build(VECTORS, settings)
    made.save(tmp_path / "whole.faiss")
    assert len(ApproximateIndex.load(tmp_path / "whole.faiss", VECTORS, settings)) == COUNT
    index = made._proposing
    change(faiss.downcast_index(index.index) if hasattr(index, "index") else index)
    made.save(tmp_path / "index.faiss")
    with pytest.raises(BundleError, match=rf"index\.faiss: {words}.*`turret index`"):
        ApproximateIndex.load(tmp_path / "index.faiss", VECTORS, settings)


@given(
    seed=st.integers(0, 10_000),
    count=st.sampled_from([1, 5, 40, 300]),
    k=st.sampled_from([1, 3, 25, 400]),
    distinct=st.sampled_from([2, 10, 1_000]),
    scale=st.sampled_from([1.0, 1e-20, 1e15]),
)
def test_a_product_of_many_queries_has_the_answers_of_the_exact_index_bit_for_bit(
    seed: int, count: int, k: int, distinct: int, scale: float
) -> None:
    """Also where rows tie, nearly tie, or are copies of few vectors, at the cut too; and of any length."""
    random = np.random.default_rng(seed)
    originals = random.standard_normal((distinct, 9)).astype(np.float32)
    vectors = originals[random.integers(distinct, size=count)]
    is_near = random.random(count) < 0.3
    vectors[is_near] = np.nextafter(vectors[is_near], np.float32(np.inf))
    vectors = np.ascontiguousarray(vectors * np.float32(scale))
    queries = random.standard_normal((30, 9)).astype(np.float32)
    exact, blocked = ExactIndex(vectors), BlockedIndex(vectors)
    for spare in (0, 2):
        for query, (rows, products) in zip(queries, blocked.nearest_of_each(queries, k, spare), strict=True):
            alone, scores = exact.nearest(query, k, None, spare)
            assert rows.tolist() == alone.tolist()
            assert products.tobytes() == scores.tobytes()


@given(
    seed=st.integers(0, 10_000),
    count=st.sampled_from([0, 1, 5, 40, 300]),
    k=st.sampled_from([1, 3, 25, 400]),
    distinct=st.sampled_from([2, 10, 1_000]),
    most=st.sampled_from([0, 4, 60]),
)
def test_a_product_without_some_rows_has_the_answers_of_the_exact_index_without_them(
    seed: int, count: int, k: int, distinct: int, most: int
) -> None:
    """Rows repeat, tie, and are left out from the best on, or all; answers that are too short end in -1."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((distinct, 9)).astype(np.float32)[random.integers(distinct, size=count)]
    queries = random.standard_normal((30, 9)).astype(np.float32)
    exact = ExactIndex(vectors)
    left_out = [exact.nearest(query, 300)[0][: random.integers(most + 1)] for query in queries]
    left_out[3] = np.append(left_out[3], left_out[3][:1])
    left_out[4] = np.arange(count)
    owners = np.repeat(np.arange(30), list(map(len, left_out)))
    rows, products = BlockedIndex(vectors).nearest_without(queries, k, owners, np.concatenate(left_out))
    assert rows.shape == products.shape == (30, k)
    for query, out, best, scores in zip(queries, left_out, rows, products, strict=True):
        all_rows, all_scores = exact.nearest(query, count)
        keep = ~np.isin(all_rows, out)
        expected = all_rows[keep][:k]
        assert best.tolist() == [*expected.tolist(), *[-1] * (k - len(expected))]
        assert scores[: len(expected)].tobytes() == all_scores[keep][:k].tobytes()
        assert np.isneginf(scores[len(expected) :]).all()


def test_the_plan_over_products_is_that_of_the_exact_index() -> None:
    """Queries that leave out different numbers of rows share a call, and get their own k."""
    random = np.random.default_rng(4)
    vectors, queries = (random.standard_normal((count, 8)).astype(np.float32) for count in (500, 60))
    ks, out = random.integers(1, 40, 60).tolist(), [random.integers(0, 500, size) for size in range(60)]
    exact, blocked = (Planner(index(vectors), ScoringConfig()) for index in (ExactIndex, BlockedIndex))
    together = blocked.nearest_of_each(queries, ks, out)
    for query, k, excluded, ranking in zip(queries, ks, out, together, strict=True):
        alone = exact.nearest(query, k, excluded)
        assert len(ranking.rows) == k
        assert ranking.rows.tolist() == alone.rows.tolist()
        assert ranking.scores.tobytes() == alone.scores.tobytes()
