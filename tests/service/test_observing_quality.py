"""The quality of live answers: recall against exact search, and drift from recorded answers."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.service_app import client_of, recommended, sample
from tests.support.until import until
from tests.support.virtual_time import Clock
from turret.service.observing.metrics import Metrics
from turret.service.observing.quality import (
    MIN_HITS,
    WINDOW,
    AnswerRecord,
    Drift,
    RecallSampler,
    Reference,
    recall_of,
)
from turret.service.settings import Settings
from turret.tower.bundle.bundle import Bundle
from turret.tower.config import ScoringConfig

# --- Live recall


def version(vectors: NDArray[np.float32], absolute: bool = False) -> Any:
    """A version as far as it is searched."""
    scoring = ScoringConfig(kind="dot", temperature=1.0, absolute=absolute)
    manifest = SimpleNamespace(scoring=scoring, item_count=len(vectors), dimension=vectors.shape[1])
    return SimpleNamespace(manifest=manifest, vectors=vectors)


EIGHT = version(np.arange(8, dtype=np.float32)[:, None])  # the higher the row, the better
ONE = np.ones(1, np.float32)
NOTHING = np.empty(0, np.int64)


def record(vector: NDArray[np.float32], k: int, rows: Any, **given: Any) -> AnswerRecord:
    arrays = {"excluded": NOTHING, "allowed": None, "scores": NOTHING, "rows": np.asarray(rows), **given}
    return AnswerRecord("towers", k, 1, 0, vector, **arrays)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("lost", [0, 3])
@pytest.mark.parametrize("others", [[], [[-2.0, 0.0, 3.0, 1.0], [1.0, 1.0, -1.0, -2.0]]])
def test_recall_is_the_share_of_the_best_allowed_rows(
    absolute: bool, lost: int, others: list[list[float]]
) -> None:
    """A row counts by the best score of the user's interests, if there are several."""
    drawn = np.random.default_rng(0).standard_normal((20_000, 4)).astype(np.float32)
    vectors = np.array([[1.0, -2.0, 0.5, 3.0], *others], np.float32)
    vector = vectors if others else vectors[0]
    products = drawn.astype(np.float64) @ vectors.astype(np.float64).T
    scores = (np.abs(products) if absolute else products).max(axis=1)
    allowed = np.random.default_rng(1).random(len(drawn)) < 0.1
    scores[~allowed] = -np.inf
    excluded = np.argsort(-scores)[:5]
    scores[excluded] = -np.inf
    rows = np.argsort(-scores)[: 10 + lost]
    found = np.concatenate([rows[: 10 - lost], rows[10:]])  # the last ones are not among the ten best
    answer = record(vector, 10, found, excluded=excluded, allowed=allowed)
    assert recall_of(version(drawn, absolute), answer) == pytest.approx(1 - lost / 10)


@pytest.mark.parametrize(
    ("scores", "k", "rows", "expected"),
    [
        ([3.0, 1.0, 1.0, 1.0, 0.0], 2, [0, 3], 1),  # a row that ties with the last of the best counts
        ([3.0, 1.0, 1.0, 1.0, 0.0], 2, [0, 4], 0.5),
        (range(8), 4, [7, 6], 0.5),  # a short answer lacks the others
        (range(8), 20, [7, 6, 5, 4, 3, 2, 1, 0], 1),
        (range(8), 4, [9, 7, 8, 6], 1),  # places that fresh items took are not judged
        (range(8), 4, [9, 7, 8, 5], 0.5),
    ],
)
def test_a_row_counts_if_its_score_suffices(
    scores: list[float], k: int, rows: list[int], expected: float
) -> None:
    assert recall_of(version(np.array(scores, np.float32)[:, None]), record(ONE, k, rows)) == expected


def test_an_answer_that_could_have_no_item_has_no_recall() -> None:
    assert recall_of(EIGHT, record(ONE, 4, [], allowed=np.zeros(8, np.bool_))) is None


def test_what_is_offered_is_measured_beside_and_a_failure_ends_nothing() -> None:
    """The buffers of an answer may be used again at once."""
    clock, metrics = Clock(), Metrics()
    sampler = RecallSampler(metrics, clock)
    vector, rows, excluded = np.ones(1, np.float32), np.array([7, 6]), np.array([5])
    sampler.offer(EIGHT, record(vector, 2, rows, excluded=excluded))
    vector[:], rows[:], excluded[:] = -1, 0, 7

    def counted(outcome: str) -> float | None:
        return metrics.registry.get_sample_value("turret_recall_samples_total", {"outcome": outcome})

    until(lambda: counted("answered") == 1, "the measurement")
    assert metrics.registry.get_sample_value("turret_recall_at_k_sum", {"k": "10"}) == 1

    def offer(answer: AnswerRecord, outcome: str) -> None:
        before = counted(outcome)

        def is_counted() -> bool:
            clock.now += 1000
            sampler.offer(EIGHT, answer)
            return counted(outcome) != before

        until(is_counted, f"one that is {outcome}")

    offer(record(np.ones(3, np.float32), 2, [1]), "failed")
    offer(record(ONE, 2, [7]), "answered")
    sampler.close()


# --- Drift


def test_other_answers_are_far_once_there_are_enough_for_one_to_two_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another version begins from nothing, and answers of the one before are not compared with it."""
    recorded = Reference.__new__(Reference)  # forty answers with scores from 0 to 1
    recorded.scores = [(place + 0.5) / 40 for place in range(40)]
    recorded.popularity = np.linspace(0, 0.99, 100, dtype=np.float32)
    recorded.counts = {"scores": np.full(10, 4.0), "popularity": np.full(10, 40.0)}
    monkeypatch.setattr("turret.service.observing.quality.Reference", lambda bundle: recorded)
    clock, metrics = Clock(), Metrics()
    drift = Drift(metrics, clock)
    live, later = cast(Bundle, object()), cast(Bundle, object())

    def offer(times: int) -> None:
        for _ in range(times):
            drift.offer(live, np.arange(10), np.full(10, 0.99))

    def distance(of: str = "scores", version: Bundle = live) -> float:
        drift.follow(version)
        return metrics.registry.get_sample_value("turret_drift", {"of": of}) or 0.0

    assert distance() == 0
    offer(MIN_HITS - 1)
    assert distance() == 0
    offer(1)
    assert distance() > 0.4
    assert distance("popularity") > 0.4
    clock.now += WINDOW
    assert distance() > 0
    clock.now += WINDOW
    assert distance() == 0
    offer(MIN_HITS)
    assert distance(version=later) == 0
    offer(MIN_HITS)
    assert distance(version=later) == 0


def test_live_answers_are_searched_again_and_compared_with_the_recorded_ones(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.service.observing.quality.RATE", 1e12)
    monkeypatch.setattr("turret.service.observing.quality._SHARE_OF_A_CORE", 1.0)
    with client_of(settings.model_copy(update={"recall_sample": 1.0, "drift_sample": 1.0})) as client:

        def value(name: str) -> float:
            for _ in range(20):
                recommended(client, history=[101, 102, 103], k=10)  # one of the recorded histories
            return sample(client.get("/metrics").text, name)

        until(lambda: value('turret_recall_at_k_count{k="10"}') > 0, "a sample of recall")
        until(lambda: value('turret_drift{of="scores"}') > 0, "a comparison")
        assert 0.3 < value('turret_drift{of="scores"}') < 1  # the same answer is not all that was recorded
