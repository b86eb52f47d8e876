"""Which index is chosen, by recall and time, and how recall is measured."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import IvfPqSettings, IvfSettings
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.index import ExactIndex
from turret.tower.index.planner import Planner, Ranking
from turret.tower.tuning.choice import SMALL, IndexRequest, choose
from turret.tower.tuning.recall import measure_recall, split_queries
from turret.tower.tuning.search_params import Task

FEW = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)
DOT = ScoringConfig(kind="dot", temperature=1.0)
ABSOLUTE = ScoringConfig(kind="dot", temperature=1.0, absolute=True)


class Forgetful(Planner):
    """Finds what an exact one finds from the tenth place on."""

    def nearest(
        self,
        vector: NDArray[np.float32],
        k: int,
        excluded: NDArray[np.integer[Any]] | None = None,
        allowed: RowMask | None = None,
    ) -> Ranking:
        rows, products, plan = super().nearest(vector, k + 9, excluded, allowed)
        return Ranking(rows[-k:], products[-k:], plan)


def test_what_an_index_misses_is_measured() -> None:
    exact, forgetful = (planner(ExactIndex(FEW), DOT) for planner in (Planner, Forgetful))
    cells = {(one.k, one.selectivity): one.recall for one in measure_recall(exact, FEW[:5])}
    assert cells == {(10, 1.0): 1.0, (100, 1.0): 1.0, (10, 0.1): 1.0}
    missed = measure_recall(forgetful, FEW[:5], (1.0,))
    assert [one.recall for one in missed] == pytest.approx([0.1, 0.91])


class OneSided(Planner):
    """Is asked for one side alone."""

    def nearest(self, vector: NDArray[np.float32], k: int, *more: Any) -> Ranking:
        return Planner(self._index, DOT).nearest(vector, k, *more)


def test_recall_without_signs_counts_the_far_side() -> None:
    """An index that is only asked for one side misses about half of what is best."""
    whole, half = (planner(ExactIndex(FEW), ABSOLUTE) for planner in (Planner, OneSided))
    assert measure_recall(whole, FEW[:5])[1].recall == 1.0
    assert measure_recall(half, FEW[:5])[1].recall < 0.8


def test_a_large_catalog_is_measured_with_fewer_queries() -> None:
    queries = np.arange(5000, dtype=np.float32)[:, None]
    for items, most in ((1000, 1000), (10**6, 200), (10**9, 100)):
        measured, others = split_queries(queries, items)
        assert (len(measured), len(others)) == (most, 5000 - most)
        assert sorted([*measured[:, 0].tolist(), *others[:, 0].tolist()]) == queries[:, 0].tolist()
    measured, others = split_queries(queries[:7], 10**9)
    assert (len(measured), len(others)) == (7, 0)


def clustered(count: int, seed: int, width: int = 32) -> NDArray[np.float32]:
    """Unit vectors around 200 directions."""
    centres = np.random.default_rng(9).standard_normal((200, width))
    generator = np.random.default_rng(seed)
    found = centres[generator.integers(0, 200, count)] + 0.6 * generator.standard_normal((count, width))
    unit: NDArray[np.float64] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit.astype(np.float32)


LARGE, QUERIES = clustered(20_000, 0), clustered(300, 1)


def test_a_small_catalog_stays_exact() -> None:
    chosen = choose(LARGE[:SMALL], QUERIES[:50], DOT, IndexRequest())
    assert chosen.built_index.settings.kind == "flat"
    assert "exact search of at most 2,000 items" in chosen.choice.words[-1]
    assert {one.recall for one in chosen.recall} == {1.0}


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Times that don't depend on the machine, more for a broader search; an exact one takes 10."""
    by_label = {"ivf_pq of 1 list": 2.0, "ivf_pq of 1 list, rotated": 1.5, "ivf": 1.0}

    def seconds(task: Any, planner: Any, k: int, allowed: Any = None) -> float:
        index = planner._index
        if not isinstance(index, ApproximateIndex) or index.search_params(k) is None:
            return 10.0
        slower = 1 + index.settings.efforts[0].breadth / 1000
        return by_label[index.settings.label] * float(slower)

    monkeypatch.setattr("turret.tower.tuning.search_params.Task.seconds", seconds)
    monkeypatch.setattr("turret.tower.tuning.search_params._SHARES", (0.5,))
    return by_label


AUTO = IndexRequest(recall=0.95)


def test_auto_takes_the_fastest_product_codes_that_reach_the_recall(costs: dict[str, float]) -> None:
    chosen = choose(LARGE[:2500], QUERIES[:40], DOT, AUTO)
    assert chosen.built_index.settings.label == "ivf_pq of 1 list, rotated"
    assert min(one.recall for one in chosen.recall) >= 0.95
    costs["ivf_pq of 1 list, rotated"] = 9.9
    assert choose(LARGE[:2500], QUERIES[:40], DOT, AUTO).built_index.settings.label == "ivf_pq of 1 list"


@pytest.mark.parametrize(("codes", "taken"), [("plain", "ivf_pq"), ("all", "ivf")])
def test_what_is_good_for_the_best_10_alone_is_not_taken(
    costs: dict[str, float], monkeypatch: pytest.MonkeyPatch, codes: str, taken: str
) -> None:
    """A request that leaves out a history fetches more, which would be searched for exactly."""
    recall = Task.recall

    def some_fail(task: Task, planner: Any, truth: Any, k: int) -> float:
        settings = planner._index.settings
        fails = isinstance(settings, IvfPqSettings) and (codes == "all" or not settings.rotated)
        return 0.0 if k == 32 and fails else recall(task, planner, truth, k)

    monkeypatch.setattr(Task, "recall", some_fail)
    settings = choose(LARGE[:2500], QUERIES[:40], DOT, AUTO).built_index.settings
    assert isinstance(settings, IvfSettings | IvfPqSettings)
    assert settings.kind == taken
    assert [effort.k for effort in settings.efforts][:2] == [10, 32]


def test_efforts_that_miss_the_recall_on_all_queries_are_tuned_again(
    costs: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queries of the tuning may be easier than all: here they promise half of the misses."""
    recall = Task.recall

    def promised(task: Task, planner: Any, truth: Any, k: int) -> float:
        return 1 - (1 - recall(task, planner, truth, k)) / 2

    monkeypatch.setattr(Task, "recall", promised)
    costs["hnsw"] = 1.0
    vectors = np.random.default_rng(2).standard_normal((2800, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    chosen = choose(vectors[:2500], vectors[2500:], DOT, IndexRequest("hnsw", 0.95))
    assert min(one.recall for one in chosen.recall) >= 0.95


@pytest.mark.parametrize("kind", ["ivf", "ivf_pq"])
@pytest.mark.parametrize("biased", [False, True])
def test_unequal_lengths_reach_the_recall(kind: str, biased: bool) -> None:
    """Lists that are made for them: by one more number, or by the bias that stands last."""
    vectors = LARGE[:4000].copy()
    queries = QUERIES[:100].copy()
    if biased:
        vectors[:, -1] = np.random.default_rng(4).gumbel(0, 0.3, 4000)
        queries[:, -1] = 1.0
    else:
        vectors *= np.random.default_rng(3).lognormal(0, 0.4, (4000, 1)).astype(np.float32)
    scoring = ScoringConfig(kind="dot", temperature=1.0, item_bias=biased)
    chosen = choose(vectors, queries, scoring, IndexRequest(kind, 0.95))
    assert chosen.built_index.settings.kind == kind
    assert isinstance(chosen.built_index.settings, IvfSettings | IvfPqSettings)
    assert (chosen.built_index.settings.biased, chosen.built_index.settings.augmented) == (biased, not biased)
    assert min(one.recall for one in chosen.recall) >= 0.95


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (IndexRequest("annoy"), "--kind annoy.*auto, flat"),
        (IndexRequest("engine"), "--kind engine: turret publish BUNDLE --engine"),
        (IndexRequest(recall=1.5), "--recall 1.5"),
    ],
)
def test_what_can_not_be_asked_is_refused(asked: IndexRequest, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        choose(LARGE[:100], QUERIES[:5], DOT, asked)


@pytest.mark.parametrize(
    ("milliseconds", "kind", "words"),
    [(8.5, "flat", "no kind is enough faster"), (7.0, "ivf_pq", "was the fastest that reaches it")],
)
def test_a_kind_has_to_be_a_quarter_faster_than_the_exact_search(
    costs: dict[str, float], milliseconds: float, kind: str, words: str
) -> None:
    costs.update(dict.fromkeys(costs, milliseconds))
    chosen = choose(LARGE[:2500], QUERIES[:40], DOT, AUTO)
    assert chosen.built_index.settings.kind == kind
    assert words in chosen.choice.words[-1]
