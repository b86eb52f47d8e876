"""Figures of several workers, and what watches the service being slow, stuck or gone."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.service_calls import anew, children, kill_workers
from tests.support.service_process import Process, Start
from tests.support.until import until

ASKED = {"history": [101, 102], "k": 5}


def figures(service: Process) -> dict[tuple[str, str], float]:
    """Every sample of one scrape: (name, labels) -> value."""
    text = anew(service, "GET", "/metrics").text
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def only(found: dict[tuple[str, str], float], name: str, **labels: str) -> float:
    return found.get((name, json.dumps(labels, sort_keys=True)), 0.0)


@pytest.mark.process
@pytest.mark.fault(31)
def test_a_scrape_of_any_worker_tells_of_all_and_nothing_goes_back_when_one_is_killed(start: Start) -> None:
    service = start(workers=2)
    for _ in range(40):
        assert anew(service, "POST", "/v1/recommend", json=ASKED).status_code == 200
    answered = {"route": "/v1/recommend", "status": "200"}
    until(lambda: only(figures(service), "turret_requests_total", **answered) == 40, "all are counted")
    before = figures(service)
    assert only(before, "turret_answers_total", source="towers") == 40
    assert only(before, "turret_workers") == 2
    assert only(before, "turret_workers_serving", version="v1") == 2
    for victim in children(service.process.pid):  # each of the two in turn
        kill_workers(service, victim)
        until(lambda: only(figures(service), "turret_workers") == 2, "the other one exports figures")
        after = figures(service)
        fallen = [
            (key, before[key], after.get(key))
            for key in before
            if key[0].endswith(("_total", "_bucket", "_count", "_sum")) and after.get(key, 0.0) < before[key]
        ]
        assert not fallen
        assert only(after, "turret_requests_total", **answered) == 40
        before = after
    assert only(before, "turret_worker_starts_total") == 4
    until(lambda: only(figures(service), "turret_in_flight") == 1, "the scrape itself alone is running")
