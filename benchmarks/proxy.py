"""Processor time of a request through the proxy: of the proxy and of the replica, beside a direct request.

Two replicas of one worker each behind the nginx of the production profile, without its limits for one
address; `POST /v1/recommend` with 50 items of history and k = 10 over 16 kept connections, in turns with the
same load on one replica. All share the processors of this machine, so processor time counts, not requests/s.
`core_rps`: requests that one core of the proxy, or of a replica behind it, answers in a second.
`replica_mb`: resident memory of a replica after the load. Needs `nginx`.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.load import Load, run_load
from benchmarks.processes import local_proxy, processor_seconds, resident_bytes, running_service
from benchmarks.serving_shop import Served, served_shop

ITEMS, QUICK_ITEMS = 100_000, 2_000
ROUNDS, SECONDS, QUICK_SECONDS = 5, 4.0, 1.0
PATH = "/v1/recommend"


def measure(options: Options) -> dict[str, Any]:
    """Both ways in turns; medians over the rounds."""
    shop = served_shop(QUICK_ITEMS if options.quick else ITEMS)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    direct, through = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_service(shop.bundles) as first,
        running_service(shop.bundles) as second,
    ):
        replicas = [first.process.pid, second.process.pid]
        ports = [int(one.url.rsplit(":", 1)[1]) for one in (first, second)]
        with local_proxy(Path(folder), ports) as (proxy, port):
            url = f"http://127.0.0.1:{port}"
            cost(shop, url, 1.0, replicas, None)
            for _ in range(1 if options.quick else ROUNDS):
                direct.append(cost(shop, first.url, seconds, replicas, None))
                through.append(cost(shop, url, seconds, replicas, proxy.pid))
        resident = resident_bytes(replicas[0])
    figures = {"direct": _medians(direct), "through": _medians(through)}
    return {
        "items": shop.items,
        **figures,
        "core_rps": {
            "proxy": 1000 / figures["through"]["proxy_ms"],
            "replica": 1000 / figures["through"]["replica_ms"],
            "replica_direct": 1000 / figures["direct"]["replica_ms"],
        },
        "replica_mb": resident / 1e6,
        "bundle_mb": shop.bundle_bytes / 1e6,
    }


def cost(shop: Served, url: str, seconds: float, replicas: list[int], proxy: int | None) -> dict[str, float]:
    """Processor milliseconds of one request, in the replicas and in the proxy."""

    def used() -> tuple[float, float]:
        return sum(map(processor_seconds, replicas)), processor_seconds(proxy) if proxy else 0.0

    before = used()
    outcome = run_load(Load(url, PATH, shop.bodies, seconds=seconds))
    after = used()
    if not outcome.good.all():
        raise RuntimeError(f"{int((~outcome.good).sum())} requests were not answered with 200")
    replica_ms, proxy_ms = (1000 * (b - a) / len(outcome.sent) for a, b in zip(before, after, strict=True))
    return {"replica_ms": replica_ms, "proxy_ms": proxy_ms, "median_ms": 1000 * outcome.percentile(0.5)}


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


if __name__ == "__main__":
    run(measure, needs_data=False)
