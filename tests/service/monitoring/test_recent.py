from typing import Any

import pytest

from turret.service.monitoring import recent
from turret.service.monitoring.recent import RecentMetrics
from turret.service.telemetry.metrics import FAMILIES, Metrics
from turret.service.telemetry.table import Table

RECOMMEND = "/v1/recommend"


@pytest.fixture
def workers() -> list[Metrics]:
    table = Table(FAMILIES, 2)
    return [Metrics(table, number) for number in range(2)]


def series(kept: RecentMetrics) -> dict[str, Any]:
    return kept.series()


def test_before_the_first_step_all_series_are_empty(workers: list[Metrics]) -> None:
    kept = RecentMetrics(workers[0])
    shown = series(kept)
    assert shown["times"] == shown["errors"] == []
    assert shown["requests"] == shown["latency"] == {}
    kept.sample(100.0)
    assert series(kept) == shown


def test_the_counts_of_all_workers_become_rates_shares_and_quantiles(workers: list[Metrics]) -> None:
    first, second = workers
    first.requests.labels(RECOMMEND, "200").inc(1000)
    kept = RecentMetrics(second, lambda: {"recall": {"10": 0.97}})
    kept.sample(100.0)
    first.requests.labels(RECOMMEND, "200").inc(30)
    second.requests.labels(RECOMMEND, "503").inc(10)
    for worker in workers:
        worker.seconds.labels(RECOMMEND, "2xx").observe(0.0015)
        worker.answers.labels("towers").inc(3)
    first.answers.labels("popular").inc(2)
    first.empty_answers.inc(4)
    first.degraded.labels("history").inc(1)
    first.stages.labels("search").observe(0.00015)
    kept.sample(110.0)
    kept.sample(120.0)
    shown = series(kept)
    assert shown["times"] == [110.0, 120.0]
    assert shown["requests"] == {RECOMMEND: [4.0, 0.0]}
    assert shown["errors"] == [1.0, 0.0]
    assert shown["latency"] == {RECOMMEND: {"p50": [0.0015, None], "p99": [pytest.approx(0.00199), None]}}
    assert shown["stages"].keys() == {"search"}
    assert shown["answers"] == {"towers": [0.75, None], "popular": [0.25, None], "fresh": [0.0, None]}
    assert shown["fallback"] == [0.25, None]
    assert shown["empty"] == [0.5, None]
    assert shown["degraded"] == [0.125, None]
    assert shown["recall"] == {"10": [0.97, 0.97]}
    assert shown["drift"] == {}


def test_an_hour_is_kept(workers: list[Metrics], monkeypatch: pytest.MonkeyPatch) -> None:
    assert recent.STEPS * recent.STEP_SECONDS == 3600
    monkeypatch.setattr(recent, "STEPS", 3)
    kept = RecentMetrics(workers[0])
    for now in range(0, 100, 10):
        kept.sample(float(now))
    assert series(kept)["times"] == [70.0, 80.0, 90.0]


def test_a_clock_that_is_set_back_skips_a_step(workers: list[Metrics]) -> None:
    kept = RecentMetrics(workers[0])
    for now in (100.0, 50.0, 60.0):
        kept.sample(now)
    assert series(kept)["times"] == [60.0]
