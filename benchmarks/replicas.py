"""The cost of agreement between replicas on one Redis: of a call, of following, and of an answer.

For one, two and three replicas of one worker, and for a service on SQLite: seconds of a change of an item and
of an activation, each acknowledged by all replicas; then, while nobody asks, the processor seconds that a
replica takes in a second, and the commands that Redis gets. Needs `redis-server`.
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

from redis import Redis

from benchmarks.harness import Options, run
from benchmarks.processes import Running, post, processor_seconds, redis_server, running_service
from benchmarks.serving_shop import VERSIONS, served_shop

REPLICAS = (1, 2, 3)
CHANGES, ACTIVATIONS, IDLE_SECONDS = 100, 20, 10.0
QUICK_CHANGES, QUICK_ACTIVATIONS, QUICK_IDLE_SECONDS = 10, 4, 2.0


def measure(options: Options) -> dict[str, Any]:
    """Measure a service on SQLite, then replicas."""
    shop = served_shop(2_000)
    item = json.loads(shop.bodies[0])["history"][0]
    with tempfile.TemporaryDirectory() as folder:
        alone = costs(options, shop.bundles, f"sqlite:///{folder}/history.sqlite", 1, item, lambda: 0)
    rows = []
    for count in REPLICAS:
        with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as store:
            if store is None:
                raise SystemExit("there is no redis-server here; install it (apt-get install redis-server)")
            asked = partial(commands, Redis.from_url(store))
            rows.append(costs(options, shop.bundles, store, count, item, asked))
    return {"sqlite": alone, "replicas": rows}


def costs(
    options: Options, bundles: Path, store: str, count: int, item: Any, calls: Callable[[], int]
) -> dict[str, Any]:
    """Measure `count` services on a store."""
    quick = options.quick
    with ExitStack() as stack:
        services = [stack.enter_context(running_service(bundles, 1, "--store", store)) for _ in range(count)]
        time.sleep(1)  # all know of each other
        changes = [
            seconds(partial(change, services[0], item)) for _ in range(QUICK_CHANGES if quick else CHANGES)
        ]
        activations = [
            seconds(partial(activate, services[number % count], VERSIONS[number % 2]))
            for number in range(QUICK_ACTIVATIONS if quick else ACTIVATIONS)
        ]
        idle = QUICK_IDLE_SECONDS if quick else IDLE_SECONDS
        before, called = [processor_seconds(service.process.pid) for service in services], calls()
        time.sleep(idle)
        used = [
            processor_seconds(service.process.pid) - start
            for service, start in zip(services, before, strict=True)
        ]
        return {
            "replicas": count,
            "item_change_ms": _quantiles(changes),
            "activation_ms": _quantiles(activations),
            "idle_processor_share": statistics.mean(used) / idle,
            "idle_commands_per_second": (calls() - called) / idle,
        }


def commands(redis: Redis) -> int:
    """The number of commands that a Redis has run, without those within scripts' calls."""
    return int(redis.info("stats")["total_commands_processed"])


def change(service: Running, item: Any) -> None:
    """Replace the fields of an item."""
    body = json.dumps({"features": {}, "fields": {"at": time.time()}})
    _check(post(service.url, f"/v1/items/{item}", body, method="PUT"))


def activate(service: Running, version: str) -> None:
    """Activate a version through one of the replicas."""
    _check(service.activate(version))


def _check(answer: tuple[int, str]) -> None:
    status, text = answer
    if status != 200 or "behind" in text:
        raise RuntimeError(f"answered with {status}: {text}")


def seconds(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _quantiles(samples: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(samples, n=20, method="inclusive")
    return {"median": 1000 * statistics.median(samples), "p95": 1000 * cuts[-1]}


if __name__ == "__main__":
    run(measure, needs_data=False)
