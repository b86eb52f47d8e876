"""Whether the service grows: 1,000,000 requests and 100 activations, and the memory meanwhile.

The requests mix everything that a request can ask for. `growth_mb` is the resident memory (a page that
several processes share counts once) at the end less that after the first tenth, by which everything has been
used once.
"""

import json
import statistics
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.load import Load, processors, run_load
from benchmarks.processes import Running, resident_bytes, running_service
from benchmarks.serving_shop import VERSIONS, Served, served_shop

ITEMS, REQUESTS, ACTIVATIONS, WORKERS = 27_000, 1_000_000, 100, 2
QUICK_ITEMS, QUICK_REQUESTS, QUICK_ACTIVATIONS = 2_000, 5_000, 4
AT_ONCE = 2.0  # seconds of load between two looks at the memory, at least


def measure(options: Options) -> dict[str, Any]:
    """Send requests until there were enough, with activations spread over them."""
    requests, activations = (QUICK_REQUESTS, QUICK_ACTIVATIONS) if options.quick else (REQUESTS, ACTIVATIONS)
    shop = served_shop(QUICK_ITEMS if options.quick else ITEMS)
    bodies = mixed(shop)
    with running_service(shop.bundles, WORKERS) as service:
        return _soak(service, bodies, requests, activations, 0.3 if options.quick else AT_ONCE)


def mixed(shop: Served) -> tuple[str, ...]:
    """The questions of the shop, each with one more wish than the one before, in turns."""
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
            status, answer = service.activate(VERSIONS[(done + 1) % 2])
            if status != 200:
                raise RuntimeError(f"an activation was answered with {status}: {answer}")
            done += 1
        held = resident_bytes(service.process.pid) / 1e6
        points.append({"requests": sent, "activations": done, "resident_mb": held})
    return {"points": points, "failed": failed, **growth(points)}


def growth(points: list[dict[str, float]]) -> dict[str, float]:
    """The memory at the end (the median of the last tenth) less that after the first tenth, in MB."""
    tenth = max(1, len(points) // 10)
    first = statistics.median(one["resident_mb"] for one in points[tenth : 2 * tenth] or points[:1])
    last = statistics.median(one["resident_mb"] for one in points[-tenth:])
    return {"first_mb": first, "last_mb": last, "growth_mb": last - first}


if __name__ == "__main__":
    run(measure, needs_data=False)
