import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.tower.engines.conftest import ITEMS, URL, user_vectors
from tests.tower.engines.memory_engine import Server
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.catalog.filters import compile_filter
from turret.tower.catalog.masks import RowMask
from turret.tower.engines.access import Access, set_access
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.engine_settings import EngineEffort
from turret.tower.index.index import Index
from turret.tower.index.planner import Planner

QUERIES = user_vectors(5)


@pytest.fixture
def bundle(shop: Path, server: Server) -> Bundle:
    """Published on the engine; only single rows are searched exactly."""
    made = load(shop, publish_to_engine(shop / "v1", URL).name)
    index = made.index
    assert isinstance(index, EngineIndex)
    efforts = [EngineEffort(rows=rows, k=100, breadth=900, recall=1.0) for rows in (ITEMS, 120, 12)]
    settings = index.settings.model_copy(update={"subset_rows": 1, "efforts": tuple(efforts)})
    made.index = EngineIndex(made.vectors, settings, index.engine)
    server.searches.clear()
    return made


def found(index: Index, k: int, allowed: RowMask | None = None) -> list[list[int]]:
    return [index.nearest(query, k, allowed)[0].tolist() for query in QUERIES]


def filtered(bundle: Bundle, given: dict[str, Any]) -> RowMask:
    return compile_filter(given, bundle.catalog).allowed()


def test_answers_are_those_of_the_exact_search(bundle: Bundle, server: Server) -> None:
    for k in (1, 10, 100):
        assert found(bundle.index, k) == found(bundle.index.exact, k)
    _, scores = bundle.index.nearest(QUERIES[0], 10)
    assert np.array_equal(scores, bundle.index.exact.nearest(QUERIES[0], 10)[1])
    assert len(server.searches) == 16
    assert {where for *_, where in server.searches} == {None}


def test_the_engine_filters(bundle: Bundle, server: Server) -> None:
    for given, breadth in (({"year": {"lt": 1960}}, 900), ({"year": {"equals": 1903}}, None)):
        server.searches.clear()
        mask = filtered(bundle, given)
        assert found(bundle.index, 5, mask) == found(bundle.index.exact, 5, mask)
        where = {(effort, asked is None) for _, _, effort, asked in server.searches}
        assert where == ({(breadth, False)} if breadth else set()), "below a hundredth nothing was measured"


def test_withdrawn_and_replaced_items_are_respected(bundle: Bundle, server: Server) -> None:
    """The mask has lost rows that meet the filter, and has got rows that don't in the engine."""
    base = filtered(bundle, {"year": {"lt": 2000}})
    mask = base.mask.copy()
    best = bundle.index.exact.nearest(QUERIES[0], 6, base)[0]
    mask[best[:3]] = False
    outside = np.flatnonzero(~base.mask)
    added = outside[np.argsort(-(bundle.vectors[outside] @ QUERIES[0]))[:2]]
    mask[added] = True
    changed = RowMask(mask, base.origin)
    server.searches.clear()
    assert found(bundle.index, 10, changed) == found(bundle.index.exact, 10, changed)
    assert len(server.searches) == len(QUERIES)


def test_many_withdrawn_items_without_a_filter_are_dropped_from_more(bundle: Bundle, server: Server) -> None:
    few, many = np.ones(ITEMS, dtype=bool), np.ones(ITEMS, dtype=bool)
    few[::3], many[: ITEMS * 2 // 3] = False, False
    assert found(bundle.index, 10, RowMask(few)) == found(bundle.index.exact, 10, RowMask(few))
    assert len(server.searches) >= len(QUERIES)
    server.searches.clear()
    assert found(bundle.index, 10, RowMask(many)) == found(bundle.index.exact, 10, RowMask(many))
    assert server.searches == []


def test_a_short_answer_is_not_filled_with_replaced_items(bundle: Bundle, server: Server) -> None:
    """The engine answers with 9 of 10; 20 others, with low scores, meet the filter since the publication."""
    base = filtered(bundle, {"year": {"lt": 1960}})
    mask = base.mask.copy()
    outside = np.flatnonzero(~base.mask)
    mask[outside[np.argsort(bundle.vectors[outside] @ QUERIES[0])[:20]]] = True
    changed = RowMask(mask, base.origin)
    server.fault = "short"
    assert found(bundle.index, 10, changed) == found(bundle.index.exact, 10, changed)
    assert len(server.searches) == len(QUERIES)


@pytest.mark.parametrize("fault", ["short", "wrong"])
def test_short_and_wrong_answers_are_replaced(bundle: Bundle, server: Server, fault: str) -> None:
    mask = filtered(bundle, {"year": {"lt": 1960}})
    server.fault = fault
    for allowed in (None, mask):
        rows = found(bundle.index, 10, allowed)
        assert all(len(set(each)) == 10 for each in rows)
        assert all(0 <= row < ITEMS for each in rows for row in each)
        if allowed is not None:
            assert all(allowed.mask[each].all() for each in map(np.array, rows))
        if fault == "short":
            assert rows == found(bundle.index.exact, 10, allowed)


def test_more_than_was_measured_is_searched_exactly(bundle: Bundle, server: Server) -> None:
    assert found(bundle.index, 500) == found(bundle.index.exact, 500)
    assert server.searches == []


def test_an_engine_that_is_down_is_replaced_until_it_is_back(bundle: Bundle, server: Server) -> None:
    set_access(Access(failures=3, pause=0.25))
    planner = Planner(bundle.index, bundle.manifest.scoring)
    server.fault = "down"
    plans = [planner.nearest(query, 10) for query in QUERIES]
    assert [plan.plan.kind for plan in plans] == ["fallback"] * 5
    assert [plan.rows.tolist() for plan in plans] == found(bundle.index.exact, 10)
    server.fault = None
    assert planner.nearest(QUERIES[0], 10).plan.kind == "fallback", "the circuit is open"
    assert server.searches == []
    time.sleep(0.35)
    assert planner.nearest(QUERIES[0], 10).plan.kind == "index"
    assert len(server.searches) == 1


def test_without_the_fallback_the_error_is_raised(bundle: Bundle, server: Server) -> None:
    set_access(Access(fallback="popular"))
    server.fault = "down"
    with pytest.raises(EngineError, match="can't be reached; start it"):
        Planner(bundle.index, bundle.manifest.scoring).nearest(QUERIES[0], 10)


def test_a_bundle_opens_and_replays_while_the_engine_is_down(shop: Path, server: Server) -> None:
    target = publish_to_engine(shop / "v1", URL)
    server.fault = "down"
    assert load(shop, target.name).manifest.version == target.name


def test_the_file_of_another_collection_is_refused(shop: Path, server: Server, bundle: Bundle) -> None:
    settings = bundle.manifest.index.model_copy(update={"collection": "turret_other"})
    with pytest.raises(BundleError, match="doesn't name the collection turret_other of 1200 items"):
        EngineIndex.load(bundle.folder / "index.faiss", bundle.vectors, settings)


def test_a_user_of_several_vectors_and_scores_without_a_sign(bundle: Bundle) -> None:
    scoring = bundle.manifest.scoring
    for absolute, vectors in ((False, QUERIES[:3]), (True, QUERIES[:1])):
        sought: NDArray[np.float32] = vectors if len(vectors) > 1 else vectors[0]
        scored = scoring.model_copy(update={"absolute": absolute})
        rows = [
            Planner(one, scored).nearest(sought, 10).rows.tolist()
            for one in (bundle.index, bundle.index.exact)
        ]
        assert rows[0] == rows[1]
