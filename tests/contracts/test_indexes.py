"""The contract of every kind of index, exact, of FAISS and on engines; a kind needs a line in KINDS."""

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.memory_engine import engine_in_process
from turret.tower.catalog.masks import RowMask
from turret.tower.config import ScoringConfig
from turret.tower.engines.access import connection
from turret.tower.engines.engine import EngineItems
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import (
    AnyIndexSettings,
    ApproximateSettings,
    EngineEffort,
    EngineSettings,
    FlatSettings,
    HnswSettings,
    IndexSettings,
    IvfPqSettings,
    IvfSettings,
    SearchParams,
)
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import faiss
from turret.tower.index.index import ExactIndex, Index, open_index
from turret.tower.index.planner import Planner
from turret.tower.retrieval import Retriever
from turret.tower.tuning.choice import KINDS as CHOOSABLE
from turret.tower.tuning.choice import candidates

EFFORTS = (SearchParams(k=10, breadth=24, candidates=60), SearchParams(k=100, breadth=60, candidates=300))
SOME = {"efforts": EFFORTS, "subset_rows": 20}
KINDS: dict[str, IndexSettings] = {
    "flat": FlatSettings(),
    "ivf": IvfSettings(**SOME, lists=30),
    "hnsw": HnswSettings(**SOME),
    "ivf augmented": IvfSettings(**SOME, lists=30, augmented=True),
    "ivf_pq": IvfPqSettings(**SOME, lists=30, parts=16),
    "ivf_pq augmented": IvfPqSettings(**SOME, lists=30, parts=17, augmented=True),
    "ivf_pq biased": IvfPqSettings(**SOME, lists=30, parts=16, biased=True),
    "ivf_pq in parts": IvfPqSettings(**SOME, lists=30, parts=9, augmented=True),
    "ivf_pq of all": IvfPqSettings(**SOME, lists=1, parts=16),
    "ivf_pq of all rotated": IvfPqSettings(**SOME, lists=1, parts=16, rotated=True),
    "ivf biased": IvfSettings(**SOME, lists=30, biased=True),
}
# One in this process; tests/tower/test_engine_servers.py holds real ones to the contract of engines.
KINDS["engine"] = EngineSettings(
    engine="redis",
    collection="turret_items",
    efforts=tuple(EngineEffort(rows=rows, k=200, breadth=400, recall=1.0) for rows in (1500, 21)),
    subset_rows=20,
)
Scores = NDArray[np.float64]
COUNT, WIDTH = 1500, 16


def unit_vectors(count: int, seed: int) -> NDArray[np.float32]:
    """Around 40 directions, as those of items are; the same directions for every seed."""
    centres = np.random.default_rng(99).standard_normal((40, WIDTH))
    generator = np.random.default_rng(seed)
    vectors = centres[generator.integers(0, 40, count)] + 0.7 * generator.standard_normal((count, WIDTH))
    unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit.astype(np.float32)


VECTORS, QUERIES = unit_vectors(COUNT, 0), unit_vectors(30, 1)
LONG = VECTORS * np.random.default_rng(2).lognormal(0, 0.5, (COUNT, 1)).astype(np.float32)


def test_every_kind_of_a_manifest_is_here_and_every_kind_of_faiss_is_proposed() -> None:
    kinds = {settings.model_fields["kind"].default for settings in get_args(get_args(AnyIndexSettings)[0])}
    assert kinds == {settings.kind for settings in KINDS.values()} == {*CHOOSABLE, "engine"}
    assert {one.kind for one in candidates(VECTORS, False)} == {*CHOOSABLE} - {"flat"}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        engine_in_process(patch)
        yield str(request.param)


@pytest.fixture(scope="module")
def index(kind: str) -> Index:
    """Over unit vectors; where they are augmented, over those of unequal lengths."""
    return build(LONG if getattr(KINDS[kind], "augmented", False) else VECTORS, KINDS[kind])


def build(vectors: NDArray[np.float32], settings: IndexSettings) -> Index:
    """An index as it is made; that of an engine in a new collection without fields."""
    if isinstance(settings, ApproximateSettings):
        return ApproximateIndex.build(vectors, settings)
    if isinstance(settings, EngineSettings):
        connection(settings.engine).engine.load(settings.collection, EngineItems(vectors, ()))
    return open_index(Path("none"), vectors, settings)


def apart(settings: IndexSettings) -> IndexSettings:
    """The settings of an index beside the one of `index`; an engine gives it a collection of its own."""
    if isinstance(settings, EngineSettings):
        return settings.model_copy(update={"collection": "turret_others"})
    return settings


def share(count: int, seed: int = 0) -> NDArray[np.bool_]:
    mask = np.zeros(COUNT, dtype=np.bool_)
    mask[np.random.default_rng(seed).permutation(COUNT)[:count]] = True
    return mask


def true_scores(index: Index, query: NDArray[np.float32]) -> Scores:
    return index.vectors().astype(np.float64) @ query.astype(np.float64)


def check_answer(
    rows: NDArray[np.int64], scores: NDArray[np.float32], true: Scores, allowed: NDArray[np.bool_]
) -> None:
    """Allowed rows, each once, with their true scores, in the stated order."""
    assert len(set(rows.tolist())) == len(rows)
    assert allowed[rows].all()
    assert scores == pytest.approx(true[rows], abs=1e-5)
    assert rows.tolist() == rows[np.lexsort((rows, -scores))].tolist()


@pytest.mark.parametrize("k", [1, 10, 101, 5000])
def test_k_rows_come_back_whenever_k_are_allowed(index: Index, k: int) -> None:
    for allowed in (0, 1, 2, 9, 19, 20, 21, 60, 400, COUNT - 1, COUNT):
        mask = share(allowed)
        rows, scores = index.search(QUERIES[:4], k, mask)
        assert rows.shape == scores.shape == (4, min(k, allowed))
        assert rows.dtype == np.int64
        assert scores.dtype == np.float32
        for query, found, products in zip(QUERIES, rows, scores, strict=False):
            check_answer(found, products, true_scores(index, query), mask)


def test_what_is_found_is_nearly_what_is_best(index: Index) -> None:
    """Also in an exact index, of which all is demanded."""
    rows, _ = index.search(QUERIES, 10)
    best = [np.argsort(-true_scores(index, query))[:10] for query in QUERIES]
    recall = np.mean([len(set(a.tolist()) & set(b.tolist())) / 10 for a, b in zip(rows, best, strict=True)])
    assert recall == 1.0 if index.settings.is_exact else recall > 0.85


def test_a_row_has_the_score_that_the_exact_index_gives_it(index: Index) -> None:
    """The same bits: an answer does not tell by which way it was found."""
    exact = ExactIndex(index.vectors())
    rows, scores = index.search(QUERIES, 10)
    for query, found, products in zip(QUERIES, rows, scores, strict=True):
        mask = np.zeros(COUNT, dtype=np.bool_)
        mask[found] = True
        again_rows, again_scores = exact.search(query[None], 10, mask)
        assert again_rows[0].tolist() == found.tolist()
        assert again_scores[0].tobytes() == products.tobytes()


def test_equal_vectors_come_in_the_order_of_their_rows(kind: str) -> None:
    """Each of 500 vectors three times, 500 rows apart."""
    vectors = np.tile(unit_vectors(500, 3), (3, 1))
    index = build(vectors, apart(KINDS[kind]))
    for query in vectors[:20]:
        rows, scores = index.search(query[None], 100)
        check_answer(rows[0], scores[0], true_scores(index, query), np.ones(COUNT, dtype=np.bool_))
        assert len(set(scores[0].tolist())) < 60


def test_the_same_vectors_give_the_same_index(kind: str, index: Index, tmp_path: Path) -> None:
    build(index.vectors(), KINDS[kind]).save(tmp_path / "again")
    index.save(tmp_path / "first")
    assert (tmp_path / "again").exists() == (tmp_path / "first").exists() == KINDS[kind].has_file
    if KINDS[kind].has_file:
        assert (tmp_path / "again").read_bytes() == (tmp_path / "first").read_bytes()


def test_saved_and_opened_it_answers_the_same(kind: str, index: Index, tmp_path: Path) -> None:
    """From mapped files, that may be unlinked meanwhile."""
    path = tmp_path / "index.faiss"
    index.save(path)
    np.save(tmp_path / "vectors.npy", index.vectors())
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    opened = open_index(path, mapped, KINDS[kind])
    for name in (path, tmp_path / "vectors.npy"):
        name.unlink(missing_ok=not KINDS[kind].has_file)
    assert np.shares_memory(opened.vectors(), mapped)
    assert opened.settings == index.settings
    for allowed in (None, share(400)):
        expected, found = index.search(QUERIES, 10, allowed), opened.search(QUERIES, 10, allowed)
        assert np.array_equal(expected[0], found[0])
        assert np.array_equal(expected[1], found[1])


@pytest.mark.parametrize(
    "kind", [name for name in KINDS if KINDS[name].has_file], indirect=True, scope="module"
)
def test_a_file_of_another_kind_or_of_other_vectors_is_refused(
    kind: str, index: Index, tmp_path: Path
) -> None:
    path, vectors = tmp_path / "index.faiss", index.vectors()
    index.save(path)
    for other in KINDS.values():
        if other.kind != KINDS[kind].kind and other.has_file:
            with pytest.raises(BundleError, match=r"index\.faiss"):
                open_index(path, VECTORS, other)
    for others in (vectors[:-1], np.tile(vectors, (1, 2)), np.tile(vectors, (2, 1))):
        with pytest.raises(BundleError, match=r"index\.faiss.*different models"):
            open_index(path, np.ascontiguousarray(others), KINDS[kind])


@pytest.mark.fault(29)
def test_a_processor_without_vector_instructions_answers_the_same(index: Index) -> None:
    """Within rounding; what is proposed may differ at the edge. FAISS chooses when it is called."""
    config = faiss.SIMDConfig
    before, expected = config.get_level(), index.search(QUERIES, 10)
    try:
        config.set_level(faiss.SIMDLevel_NONE)
        assert config.get_level() == faiss.SIMDLevel_NONE != before
        rows, scores = index.search(QUERIES, 10)
    finally:
        config.set_level(before)
    same = [len(set(a.tolist()) & set(b.tolist())) for a, b in zip(rows, expected[0], strict=True)]
    assert np.mean(same) == 10 if index.settings.is_exact else np.mean(same) > 9.5
    assert scores[:, 0] == pytest.approx(expected[1][:, 0], rel=1e-5)


def test_vectors_and_k_and_masks_that_mean_nothing_are_refused(index: Index) -> None:
    planner = Planner(index, SIGNED)
    for bad in (np.nan, np.inf, -np.inf):
        one = np.append(QUERIES[0, 1:], np.float32(bad))
        with pytest.raises(ValueError, match="finite"):
            index.search(one[None], 1)
        for vectors in (one, np.vstack([QUERIES[0], one])):
            with pytest.raises(ValueError, match="finite"):
                planner.nearest(vectors, 1)
    for k in (0, -1):
        with pytest.raises(ValueError, match="k >= 1"):
            index.search(QUERIES[:1], k)
        with pytest.raises(ValueError, match=f"not {k}"):
            planner.nearest(QUERIES[0], k)
    for rows in (COUNT - 1, COUNT + 1):
        mask = np.ones(rows, dtype=np.bool_)
        with pytest.raises(ValueError, match="rows"):
            index.search(QUERIES[:1], 3, mask)
        with pytest.raises(ValueError, match=f"the filter has {rows} rows where the index has {COUNT}"):
            planner.nearest(QUERIES[0], 10, None, RowMask(mask))


def test_huge_and_zero_vectors_are_answered(index: Index) -> None:
    """Their squares overflow or vanish; they are finite all the same."""
    for query in (QUERIES[0] * np.float32(1e25), np.zeros(WIDTH, dtype=np.float32)):
        rows, scores = index.search(query[None], 10)
        assert rows.shape == (1, 10)
        assert rows.min() >= 0
        assert np.isfinite(scores).all()


SIGNED = ScoringConfig(kind="dot", temperature=1.0)
ABSOLUTE = ScoringConfig(kind="dot", temperature=1.0, absolute=True)
Excluded = Callable[[Index, NDArray[np.float32]], NDArray[np.int64]]
EXCLUDED: dict[str, Excluded] = {
    "nothing": lambda index, query: np.empty(0, dtype=np.int64),
    "the best": lambda index, query: np.argsort(-true_scores(index, query))[:50],
    "most": lambda index, query: np.argsort(-true_scores(index, query))[: COUNT - 5],
    "all": lambda index, query: np.arange(COUNT),
    "twice": lambda index, query: np.tile(np.argsort(-true_scores(index, query))[:9], 2),
}


@given(data=st.data())
def test_boosts_rank_as_the_whole_catalog_does(index: Index, data: st.DataObject) -> None:
    """An item that a boost lifts from the last place to the first is found, whatever the index can find."""
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    query, k = QUERIES[data.draw(st.integers(0, len(QUERIES) - 1))], data.draw(st.sampled_from([1, 10, 300]))
    boosts = np.zeros(COUNT + 3, dtype=np.float32)
    for _ in range(data.draw(st.integers(1, 4))):
        boosts[generator.random(len(boosts)) < generator.random()] += np.float32(generator.normal(0, 8))
    mask = generator.random(COUNT) < data.draw(st.sampled_from([0.01, 0.5, 1.0]))
    excluded = generator.integers(0, COUNT, data.draw(st.sampled_from([0, 5, 200])))
    bundle = SimpleNamespace(
        manifest=SimpleNamespace(scoring=ScoringConfig(kind="dot", temperature=0.25)),
        popularity=np.arange(COUNT),
        item_weights=np.arange(COUNT),
        index=index,
        encoder=SimpleNamespace(encode=None),
    )
    allowed = None if mask.all() else RowMask(mask)
    ranking = Retriever(bundle).nearest(query, k, excluded, allowed, boosts=boosts)
    true = true_scores(index, query) / 0.25 + boosts[:COUNT]
    true[~mask] = -np.inf
    true[excluded] = -np.inf
    best = np.lexsort((np.arange(COUNT), -true))[: min(k, int(np.isfinite(true).sum()))]
    assert ranking.scores == pytest.approx(true[best], abs=1e-4)
    assert ranking.scores == pytest.approx(true[ranking.rows], abs=1e-4)


@pytest.mark.fault(22)
@pytest.mark.parametrize(
    ("excluded", "scoring"),
    [*((name, SIGNED) for name in EXCLUDED), ("nothing", ABSOLUTE), ("most", ABSOLUTE)],
)
def test_the_planner_gives_k_rows_whenever_k_are_left(
    index: Index, excluded: str, scoring: ScoringConfig
) -> None:
    planner = Planner(index, scoring)
    for allowed in (None, 0, 1, 15, 300, COUNT):
        mask = None if allowed is None else share(allowed, 5)
        for query in QUERIES[:3]:
            out = EXCLUDED[excluded](index, query)
            left = np.ones(COUNT, dtype=np.bool_) if mask is None else mask.copy()
            left[out] = False
            rows, products, plan = planner.nearest(query, 10, out, None if mask is None else RowMask(mask))
            true = true_scores(index, query)
            check_answer(rows, products, np.abs(true) if scoring.absolute else true, left)
            assert len(rows) == min(10, int(left.sum()))
            assert plan.allowed == allowed
            assert plan.fetched >= len(rows)


def test_without_signs_the_far_side_is_found(index: Index) -> None:
    planner, found = Planner(index, ABSOLUTE), 0
    for query in QUERIES:
        rows = planner.nearest(query, 10).rows
        top = np.argsort(-np.abs(true_scores(index, query)))[:10]
        found += len(set(rows.tolist()) & set(top.tolist()))
    assert found == 10 * len(QUERIES) if index.settings.is_exact else found > 8.5 * len(QUERIES)


def test_nothing_of_it_stays_behind_when_its_version_goes(kind: str) -> None:
    """The one of a version that was replaced would else be in the memory until the next full collection."""
    index = build(VECTORS, apart(KINDS[kind]))
    index.nearest(QUERIES[0], 10)
    gone = weakref.ref(index)
    gc.disable()
    try:
        del index
        assert gone() is None
    finally:
        gc.enable()
