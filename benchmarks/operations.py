"""The cost of running the service: memory over time, the proxy, and the agreement between replicas.

`python -m benchmarks.operations soak`, `proxy` or `replicas`.

`soak`: whether the memory of the service grows over 1,000,000 requests and 100 activations.

The requests mix everything that a request can ask for. `growth_mb` is the resident memory (a page that
several processes share counts once) at the end less that after the first tenth, by which every option was
used.

`proxy`: processor time of the proxy and of the replica for a request, beside that of a direct request.

Two replicas of one worker each behind the nginx of the production profile, without its limits for one
address; `POST /v1/recommend` with 50 items of history and k = 10 over 16 kept connections, in turns with the
same load on one replica. All share the processors of this machine, so processor time counts, not requests/s.
`core_rps`: requests that one core of the proxy, or of a replica behind it, answers in a second.
`replica_mb`: resident memory of a replica after the load. Needs `nginx`.

`replicas`: the cost of agreement between one, two and three replicas of one worker on one Redis:
seconds of a change of an item and of an activation, each acknowledged by all replicas. Needs `redis-server`.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.load import Load, processors, request_costs, run_load
from benchmarks.processes import Running, local_proxy, post, resident_bytes, running_service
from benchmarks.serving_shop import VERSIONS, Served, served_shop
from tests.support.redis_server import own_redis

SOAK_ITEMS, REQUESTS, SOAK_ACTIVATIONS, WORKERS = 27_000, 1_000_000, 100, 2
SOAK_QUICK_ITEMS, QUICK_REQUESTS, QUICK_SOAK_ACTIVATIONS = 2_000, 5_000, 4
AT_ONCE = 2.0  # seconds of load between two looks at the memory, at least


def soak(options: Options) -> dict[str, Any]:
    """Send requests until there were enough, with activations spread over them."""
    requests, activations = (
        (QUICK_REQUESTS, QUICK_SOAK_ACTIVATIONS) if options.quick else (REQUESTS, SOAK_ACTIVATIONS)
    )
    shop = served_shop(SOAK_QUICK_ITEMS if options.quick else SOAK_ITEMS)
    bodies = mixed(shop)
    with running_service(shop.bundles, WORKERS) as service:
        return _soak(service, bodies, requests, activations, 0.3 if options.quick else AT_ONCE)


def mixed(shop: Served) -> tuple[str, ...]:
    """The questions of the shop, each with one of the options of a request, in turns."""
    wishes: tuple[dict[str, Any], ...] = (
        {},
        {"k": 100},
        {"filter": {"genres": {"any_of": ["drama"]}}},
        {"diversity": 0.3},
        {"cap": {"genres": 2}},
        {"explain": True},
        {"min_score": 0.0},
        {"history": []},
        {"history": ["nothing", "like", "it"]},
        {"k": 0},
        {"filter": {"nothing": {"equals": 1}}},
    )
    return tuple(
        json.dumps({**json.loads(body), **wishes[place % len(wishes)]})
        for place, body in enumerate(shop.bodies)
    )


def _soak(
    service: Running, bodies: tuple[str, ...], requests: int, activations: int, seconds: float
) -> dict[str, Any]:
    _, load_cpu = processors(2)
    points: list[dict[str, float]] = []
    sent = done = failed = 0
    while sent < requests or done < activations:
        outcome = run_load(Load(service.url, "/v1/recommend", bodies, seconds=seconds, cpu=load_cpu))
        sent += len(outcome.status)
        failed += int((outcome.status >= 500).sum() + (outcome.status == 0).sum())
        while done < activations and done < activations * sent / requests:
            service.activate(VERSIONS[(done + 1) % 2])
            done += 1
        held = resident_bytes(service.process.pid) / 1e6
        points.append({"requests": sent, "activations": done, "resident_mb": held})
    return {"points": points, "failed": failed, **growth(points)}


def growth(points: list[dict[str, float]]) -> dict[str, float]:
    """The memory at the end (the median of the last tenth) less that after the first tenth, in MB."""
    tenth = max(1, len(points) // 10)
    first = statistics.median(point["resident_mb"] for point in points[tenth : 2 * tenth] or points[:1])
    last = statistics.median(point["resident_mb"] for point in points[-tenth:])
    return {"first_mb": first, "last_mb": last, "growth_mb": last - first}


PROXY_ITEMS, PROXY_QUICK_ITEMS = 100_000, 2_000
ROUNDS, SECONDS, QUICK_SECONDS = 5, 4.0, 1.0
PATH = "/v1/recommend"


def proxy(options: Options) -> dict[str, Any]:
    """Measure both ways in turns; return medians over the rounds."""
    shop = served_shop(PROXY_QUICK_ITEMS if options.quick else PROXY_ITEMS)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    direct, through = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_service(shop.bundles) as first,
        running_service(shop.bundles) as second,
    ):
        pids = [first.process.pid, second.process.pid]
        ports = [int(service.url.rsplit(":", 1)[1]) for service in (first, second)]
        with local_proxy(Path(folder), ports) as (nginx, port):
            url = f"http://127.0.0.1:{port}"
            run_load(Load(url, PATH, shop.bodies, seconds=1.0))
            for _ in range(1 if options.quick else ROUNDS):
                direct += [request_costs(Load(first.url, PATH, shop.bodies, seconds=seconds), pids)]
                through += [request_costs(Load(url, PATH, shop.bodies, seconds=seconds), pids, [nginx.pid])]
        resident = resident_bytes(pids[0])
    (direct_ms,), (replica_ms, proxy_ms) = (
        [statistics.median(column) for column in zip(*rows, strict=True)] for rows in (direct, through)
    )
    return {
        "items": shop.items,
        "direct": {"replica_ms": direct_ms},
        "through": {"replica_ms": replica_ms, "proxy_ms": proxy_ms},
        "core_rps": {
            "proxy": 1000 / proxy_ms,
            "replica": 1000 / replica_ms,
            "replica_direct": 1000 / direct_ms,
        },
        "replica_mb": resident / 1e6,
        "bundle_mb": shop.bundle_bytes / 1e6,
    }


REPLICAS = (1, 2, 3)
CHANGES, ACTIVATIONS, QUICK_CHANGES, QUICK_ACTIVATIONS = 100, 20, 10, 4


def replicas(options: Options) -> dict[str, Any]:
    """Measure each number of replicas."""
    shop, rows = served_shop(2_000), []
    for count in REPLICAS:
        with (
            tempfile.TemporaryDirectory() as folder,
            own_redis(Path(folder), appendfsync="everysec") as store,
        ):
            rows.append(costs(options, shop, store.address, count))
    return {"replicas": rows}


def costs(options: Options, shop: Served, store: str, count: int) -> dict[str, Any]:
    """Measure `count` services on a store."""
    item = json.loads(shop.bodies[0])["history"][0]
    with ExitStack() as stack:
        services = [
            stack.enter_context(running_service(shop.bundles, 1, "--store", store)) for _ in range(count)
        ]
        time.sleep(1)  # the replicas know of each other then
        changes = [
            followed(partial(change, services[0], item, number))
            for number in range(QUICK_CHANGES if options.quick else CHANGES)
        ]
        activations = [
            followed(partial(services[number % count].activate, VERSIONS[number % 2]))
            for number in range(QUICK_ACTIVATIONS if options.quick else ACTIVATIONS)
        ]
    return {
        "replicas": count,
        "item_change_ms": _quantiles(changes),
        "activation_ms": _quantiles(activations),
    }


def change(service: Running, item: Any, number: int) -> str:
    """Replace the fields of an item."""
    body = json.dumps({"features": {}, "fields": {"at": number}})
    return post(service.url, f"/v1/items/{item}", body, method="PUT")


def followed(call: Callable[[], str]) -> float:
    """Seconds of a call that all replicas have followed. Raises RuntimeError where one has not."""
    begun = time.perf_counter()
    text = call()
    seconds = time.perf_counter() - begun
    if "behind" in text:
        raise RuntimeError(f"a replica is behind: {text}")
    return seconds


def _quantiles(samples: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(samples, n=20, method="inclusive")
    return {"median": 1000 * statistics.median(samples), "p95": 1000 * cuts[-1]}


if __name__ == "__main__":
    run(soak, proxy, replicas, needs_data=False)
