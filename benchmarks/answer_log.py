"""The cost of the answer log: a service that logs every answer beside one that logs none.

`logged_over_plain`: requests/s of `POST /v1/recommend` (50 items of history in the body, k = 10) with
TURRET_ANSWER_LOG over those without, at 16 connections in turns; each service keeps to one processor, the
generator of the load to another. `request_us` has the processor time of a request of each, which depends less
on other work of the machine, `added_us` the median of their differences by round, `logged` the answers in the
files, and `bytes_an_answer` the size of the files.
"""

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness import Options, rate_ratio, run
from benchmarks.load import Load, processors, request_costs, run_load
from benchmarks.processes import running_service
from benchmarks.serving import OURS, QUICK_SIZES, SIZES
from benchmarks.serving_shop import served_shop

PLAIN, LOGGED = "plain", "logged"
ROUNDS, SECONDS = 9, 3.0


def measure(options: Options) -> dict[str, Any]:
    """Load both services in turns; a quick run has a small shop and two rounds, so that it claims nothing."""
    sizes, rounds = (QUICK_SIZES, 2) if options.quick else (SIZES, ROUNDS)
    shop, (ours_cpu, load_cpu) = served_shop(sizes["27k"]), processors(2)
    with tempfile.TemporaryDirectory() as folder:
        with ExitStack() as stack:
            services = {
                PLAIN: stack.enter_context(running_service(shop.bundles)),
                LOGGED: stack.enter_context(running_service(shop.bundles, answer_log=folder)),
            }
            for service in services.values():
                service.keep_to(ours_cpu)
            loads = {
                name: Load(service.url, OURS, shop.bodies, seconds=SECONDS, cpu=load_cpu)
                for name, service in services.items()
            }
            for load in loads.values():  # the first answers compile kernels and fill caches
                run_load(load).checked()
            rates: dict[str, list[float]] = {name: [] for name in services}
            costs: dict[str, list[float]] = {name: [] for name in services}
            for _ in range(rounds):
                for name, load in loads.items():
                    rates[name].append(run_load(load).checked().rate())
                    (cost,) = request_costs(load, [services[name].process.pid])
                    costs[name].append(1e3 * cost)
        files = [*Path(folder).rglob("*.parquet")]
        logged = sum(pq.read_metadata(file).num_rows for file in files)
        size = sum(file.stat().st_size for file in files)
    ratio = rate_ratio(rates, LOGGED, [PLAIN])
    added = [more - less for more, less in zip(costs[LOGGED], costs[PLAIN], strict=True)]
    return {
        "items": shop.items,
        "logged_over_plain": ratio["ratio"],
        "least": ratio["ratio_least"],
        "greatest": ratio["ratio_greatest"],
        "request_us": {name: statistics.median(values) for name, values in costs.items()},
        "added_us": statistics.median(added),
        "logged": logged,
        "bytes_an_answer": size / logged,
    }


if __name__ == "__main__":
    run(measure, needs_data=False)
