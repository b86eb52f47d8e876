"""The cost of the service over its framework, at rest and while versions change.

`rps_over_bare_27k` and `rps_over_bare_100k`: requests/s of `POST /v1/recommend` (50 items of history in
the body, k = 10) over those of a bare FastAPI route of the same process that reads the same bodies into a
model and writes bodies of the same size. The service keeps to one processor, the generator of the load to
another; 16 connections, in turns. `activate_p99_over_steady`: the 99th percentile of requests that were under
way during an activation, over that of the others. `rss_over_bundle`: resident memory less 150 MB, and less
60 MB for each worker after the first, over the bundle. `stages_us`: a request's mean microseconds in each
stage, as `turret_stage_seconds` measures them under that load, and `around` them: sockets, HTTP, the layers,
metrics and the log.
"""

import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.harness import Options, rate_ratio, run
from benchmarks.load import Load, in_turns, processors, run_load, start_load
from benchmarks.processes import Running, post, resident_bytes, running_service, seconds_to_first_answer
from benchmarks.serving_process import BARE
from benchmarks.serving_shop import VERSIONS, Served, served_shop

OURS = "/v1/recommend"
SIZES = {"27k": 27_000, "100k": 100_000}
QUICK_SIZES = {"27k": 2_000, "100k": 3_000}
FIRST_WORKER, FURTHER_WORKER = 150e6, 60e6
SETTLED = 0.2  # seconds after an activation's answer in which its work may still be felt


def measure(options: Options) -> dict[str, Any]:
    """Measure all figures; a quick run has small shops and few rounds, so that it claims nothing."""
    sizes = QUICK_SIZES if options.quick else SIZES
    shops = {name: served_shop(items) for name, items in sizes.items()}
    figures: dict[str, Any] = {"connections": Load("", "", ()).connections, "shops": {}}
    for name, shop in shops.items():
        results = against_bare(shop, rounds=2 if options.quick else 7, seconds=0.5 if options.quick else 2.0)
        figures["shops"][name] = results
        figures |= {
            f"rps_over_bare_{name}": results["rps_ratio"],
            f"p99_over_bare_{name}": results["p99_ratio"],
        }
    largest = shops["100k"]
    figures |= under_activations(largest, 3 if options.quick else 20)
    times = [
        seconds_to_first_answer(largest.bundles, largest.bodies[0]) for _ in range(1 if options.quick else 5)
    ]
    figures["cold_start_s"] = statistics.median(times)
    return figures | memory(largest)


def against_bare(shop: Served, rounds: int, seconds: float) -> dict[str, Any]:
    """Load our route and the bare one in turns; return requests/s, the 99th percentiles and their ratios."""
    ours_cpu, load_cpu = processors(2)
    with beside_bare(shop, ours_cpu) as urls:
        loads = {
            path: Load(urls[path], path, shop.bodies, seconds=seconds, cpu=load_cpu) for path in (BARE, OURS)
        }
        outcomes = in_turns(loads, rounds)
        stages = _stages_us(urls[OURS])
    rates = {path: [outcome.rate() for outcome in runs] for path, runs in outcomes.items()}
    tails = {path: [outcome.percentile(0.99) for outcome in runs] for path, runs in outcomes.items()}
    over_bare = rate_ratio(rates, OURS, [BARE])
    stages["around"] = 1e6 / statistics.median(rates[OURS]) - sum(stages.values())
    return {
        "items": shop.items,
        "rps": {path: statistics.median(values) for path, values in rates.items()},
        "p99_s": {path: statistics.median(values) for path, values in tails.items()},
        **{f"rps_{name}": over_bare[name] for name in ("ratio", "ratio_least", "ratio_greatest")},
        "p99_ratio": statistics.median(tails[OURS]) / statistics.median(tails[BARE]),
        "stages_us": stages,
    }


def _stages_us(url: str) -> dict[str, float]:
    """A request's mean microseconds in each stage since the start."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    (stages,) = (family for family in families if family.name == "turret_stage_seconds")
    sums = {sample.labels["stage"]: sample.value for sample in stages.samples if sample.name.endswith("_sum")}
    counts = {
        sample.labels["stage"]: sample.value for sample in stages.samples if sample.name.endswith("_count")
    }
    return {stage: 1e6 * total / counts[stage] for stage, total in sums.items()}


@contextmanager
def beside_bare(shop: Served, cpu: int | None) -> Iterator[dict[str, str]]:
    """The service and the bare route in one process; yields the address of each by its path."""
    with running_service(shop.bundles) as service:
        answer = post(service.url, OURS, shop.bodies[0])
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.serving_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it has a line for each request
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"bundles": str(shop.bundles), "cpu": cpu, "answer": answer}))
        process.stdin.close()
        ours, bare = process.stdout.readline().split()
        yield {OURS: ours, BARE: bare}
    finally:
        process.kill()
        process.wait()


def under_activations(shop: Served, count: int) -> dict[str, Any]:
    """Activate to and fro under 16 connections; return the failures, and the tail over that between them."""
    ours_cpu, load_cpu = processors(2)
    with running_service(shop.bundles) as service:
        service.keep_to(ours_cpu)
        seconds = 1.0 + 1.5 * count
        run_load(Load(service.url, OURS, shop.bodies, seconds=1.0, cpu=load_cpu))
        with start_load(Load(service.url, OURS, shop.bodies, seconds=seconds, cpu=load_cpu)) as load:
            time.sleep(1.0)
            spans = list(_activations(service, count))
            outcome = load.result()
    during = np.zeros(len(outcome.sent), dtype=np.bool_)
    for begun, ended in spans:
        during |= (outcome.sent + outcome.seconds >= begun) & (outcome.sent <= ended + SETTLED)
    tails = [float(np.percentile(outcome.seconds[outcome.good & part], 99)) for part in (during, ~during)]
    return {
        "activations": count,
        "activate_failed": int((~outcome.good).sum()),
        "activate_p99_over_steady": tails[0] / tails[1],
        "activation_s": statistics.median(ended - begun for begun, ended in spans),
    }


def _activations(service: Running, count: int) -> Iterator[tuple[float, float]]:
    for number in range(count):
        begun = time.monotonic()
        service.activate(VERSIONS[(number + 1) % 2])
        ended = time.monotonic()
        yield begun, ended
        time.sleep(max(0.0, 1.5 - (ended - begun)))


def memory(shop: Served) -> dict[str, Any]:
    """Resident memory with one worker and with three, each of which has answered."""
    resident = {}
    for workers in (1, 3):
        with running_service(shop.bundles, workers) as service:
            run_load(Load(service.url, OURS, shop.bodies, connections=32, seconds=2.0))
            resident[workers] = resident_bytes(service.process.pid)
    allowed = {workers: FIRST_WORKER + FURTHER_WORKER * (workers - 1) for workers in resident}
    over = max((resident[workers] - allowed[workers]) / shop.bundle_bytes for workers in resident)
    return {
        "bundle_mb": shop.bundle_bytes / 1e6,
        "resident_mb": {str(workers): held / 1e6 for workers, held in resident.items()},
        "further_worker_mb": (resident[3] - resident[1]) / 2e6,
        "rss_over_bundle": over,
    }


if __name__ == "__main__":
    run(measure, needs_data=False)
