import json
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

from tests.support.places import ROOT
from turret.service.telemetry.metrics import FAMILIES, Metrics
from turret.service.telemetry.table import Table

# Two workers that count, one of which dies in the middle and is replaced; then one of them is asked.
WORKERS = """
import os, signal, sys
from turret.service.telemetry.metrics import Metrics
from turret.service.telemetry.metrics import FAMILIES
from turret.service.telemetry.table import Table

table = Table(FAMILIES, 2)
def work(worker, count, dies):
    child = os.fork()
    if child:
        return child
    metrics = Metrics(table, worker)
    metrics.serves(f"v{worker}", 1)
    metrics.in_flight.inc(5)
    for _ in range(count):
        metrics.events_stored.inc()
        metrics.seconds.labels("/v1/events", "2xx").observe(0.004)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)
for worker, count, dies in ((0, 1000, True), (1, 200, True), (0, 30, False)):
    os.waitpid(work(worker, count, dies), 0)
metrics = Metrics(table, 1)
metrics.serves("v9", 2)
metrics.in_flight.inc()
sys.stdout.write(metrics.text().decode())
"""


def samples(text: str) -> dict[str, float]:
    """Every sample as `name{label=value,...}`, by the library's own parser."""
    return {
        sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_of_dead_workers_stay_and_their_gauges_go() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WORKERS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    found = samples(run.stdout)
    assert found["turret_events_stored_total{}"] == 1230
    labels = '{"class": "2xx", "route": "/v1/events"}'
    assert found[f"turret_request_seconds_count{labels}"] == 1230
    assert abs(found[f"turret_request_seconds_sum{labels}"] - 1230 * 0.004) < 1e-9
    assert found["turret_in_flight{}"] == 1
    assert found["turret_worker_starts_total{}"] == 4
    assert found["turret_workers{}"] == 1
    assert [name for name in found if name.startswith("turret_live_version")] == [
        'turret_live_version{"version": "v9"}'
    ]


def test_workers_are_summed_except_for_gauges_of_a_maximum() -> None:
    table = Table(FAMILIES, 2)
    workers = [Metrics(table, number) for number in range(2)]
    for worker in workers:
        worker.serves("v1", 1)
        worker.in_flight.inc(2)
        worker.fresh_items.set(7)
        worker.activations.labels("refused").inc()
    workers[0].recall.labels("10").observe(1.0)
    workers[1].recall.labels("10").observe(0.5)
    for worker in workers:
        found = samples(worker.text().decode())
        assert found["turret_in_flight{}"] == 4
        assert found["turret_fresh_items{}"] == 7
        assert found['turret_activations_total{"outcome": "refused"}'] == 2
        assert found['turret_recall_at_k{"k": "10"}'] == 0.75
        assert found['turret_workers_serving{"version": "v1"}'] == 2
        assert found['turret_live_version{"version": "v1"}'] == 1


def test_buckets_are_cumulative_and_end_with_the_count() -> None:
    metrics = Metrics()
    for size in (1, 2, 2, 3, 5000):
        metrics.batch_size.observe(size)
    found = samples(metrics.text().decode())
    assert found['turret_batch_size_bucket{"le": "1.0"}'] == 1
    assert found['turret_batch_size_bucket{"le": "2.0"}'] == 3
    assert found['turret_batch_size_bucket{"le": "1000.0"}'] == 4
    assert found['turret_batch_size_bucket{"le": "+Inf"}'] == found["turret_batch_size_count{}"] == 5
    assert found["turret_batch_size_sum{}"] == 5008


def test_without_a_measurement_there_is_no_mean() -> None:
    assert "turret_recall_at_k{" not in Metrics().text().decode()


def test_the_memory_of_a_worker_is_exported() -> None:
    metrics = Metrics()
    found = samples(metrics.text().decode())
    (size,) = (value for name, value in found.items() if name.startswith("turret_worker_resident_bytes"))
    assert 10e6 < size < 100e9
