"""The cost of 100,000 changed items to a request and to a process.

Two services of one version, of which one has changed fields of 100,000 items since, are asked in turns, 16
connections each (`POST /v1/recommend`, 50 items of history in the body, k = 10). `cost_plain`: how much
longer a request takes with the changes; `cost_filter`: the same with one of ten filters, `cost_new_filter`
with filters of which each comes once. `post_s` is the time of a call with 10,000 lines, and `bytes_an_item`
the memory of a process for each changed item.
"""

import json
import statistics
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.load import Load, in_turns, processors, run_load
from benchmarks.processes import Running, post, resident_bytes, running_service
from benchmarks.serving_shop import Served, served_shop
from turret.data.vocabulary import Vocabulary

PATH = "/v1/recommend"
ITEMS, QUICK_ITEMS, LINES = 100_000, 3_000, 10_000


def measure(options: Options) -> dict[str, Any]:
    """Measure all figures; a quick run has a small shop and says nothing of 100,000 items."""
    shop = served_shop(QUICK_ITEMS if options.quick else ITEMS)
    rounds, seconds = (2, 0.5) if options.quick else (9, 2.0)
    ours_cpu, load_cpu = processors(2)
    with running_service(shop.bundles) as same, running_service(shop.bundles) as changed:
        services = {"same": same, "changed": changed}
        loads = dict(_loads(shop, same))
        for service in services.values():
            service.keep_to(ours_cpu)
            run_load(Load(service.url, PATH, shop.bodies, seconds=seconds, cpu=load_cpu))
        before = resident_bytes(changed.process.pid)
        figures = _change(changed, shop)
        count = figures["changed"]
        after = resident_bytes(changed.process.pid)
        for name, bodies in loads.items():
            service_loads = {
                which: Load(service.url, PATH, bodies, seconds=seconds, cpu=load_cpu)
                for which, service in services.items()
            }
            outcomes = in_turns(service_loads, rounds)
            rates = {which: [outcome.rate() for outcome in runs] for which, runs in outcomes.items()}
            ratios = [base / other for base, other in zip(rates["same"], rates["changed"], strict=True)]
            figures |= {
                f"cost_{name}": statistics.median(ratios) - 1,
                f"cost_{name}_least": min(ratios) - 1,
                f"cost_{name}_greatest": max(ratios) - 1,
                f"rps_{name}": {which: statistics.median(values) for which, values in rates.items()},
            }
    return figures | {"items": shop.items, "bytes_an_item": (after - before) / count}


def _loads(shop: Served, service: Running) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The bodies of each kind of request."""
    yield "plain", shop.bodies
    bodies = [json.loads(body) for body in shop.bodies]
    (field, *_) = (field for field in _get(service, "/v1/fields")["fields"] if field["kind"] == "number")
    low, high = field["minimum"], field["maximum"]
    for name, count in (("filter", 10), ("new_filter", len(bodies))):
        bounds = [low + (high - low) * (number % count + 1) / (2 * count) for number in range(len(bodies))]
        yield (
            name,
            tuple(
                json.dumps({**body, "filter": {field["name"]: {"gte": bound}}})
                for body, bound in zip(bodies, bounds, strict=True)
            ),
        )


def _change(service: Running, shop: Served) -> dict[str, Any]:
    """Change a field of every item."""
    ids = _ids(shop)
    times, changed = [], 0
    for first in range(0, len(ids), LINES):
        lines = (
            json.dumps({"id": item, "method": "PATCH", "fields": {"stock": number % 7}})
            for number, item in enumerate(ids[first : first + LINES])
        )
        begun = time.perf_counter()
        answer = json.loads(post(service.url, "/v1/items", "\n".join(lines)))
        times.append(time.perf_counter() - begun)
        if answer["refused"]:
            raise RuntimeError(f"{answer['refused']} changes were refused")
        changed += answer["changed"]
    return {"changed": changed, "post_s": statistics.median(times)}


def _ids(shop: Served) -> list[Any]:
    vocabulary = Vocabulary.load(shop.bundles / "first" / "vocabulary.json")
    return [vocabulary.id(row) for row in range(len(vocabulary))]


def _get(service: Running, path: str) -> Any:
    with urllib.request.urlopen(service.url + path, timeout=30) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    run(measure, needs_data=False)
