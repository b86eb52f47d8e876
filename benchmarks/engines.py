"""The indexes in the service's process against vector engines beside it, end to end through the service.

For the exact index, the FAISS index that `--kind auto` chooses, Redis search and Milvus: recall of the 10
best and requests/s by the share of the items that a filter allows (1, .3, .1, .01, .001), whether the engine
searches there or the service does so exactly, seconds to publish, and bytes that the engine takes an item.
Requests carry 50 items of history; 8 connections; service, engine and load share the machine's processors.
Then versions are switched under load. `failed_on_switch`: requests that
were not answered with 200; `short_answers`: answers with fewer items than the exact index's.
"""

import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.engine_servers import SERVERS, EngineServer
from benchmarks.harness import Options, run
from benchmarks.load import Load, run_load, start_load
from benchmarks.processes import Running, post, resident_bytes, running_service
from benchmarks.serving_shop import VERSIONS, Served, served_shop
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import summary_of
from turret.tower.catalog.filters import compile_filter
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.format.index_settings import EngineSettings, IndexSettings

RECOMMEND = "/v1/recommend"
ITEMS, QUICK_ITEMS = 100_000, 2_000
RECALL = 0.99
SHARES = (1.0, 0.3, 0.1, 0.01, 0.001)
_SWITCHES = 6
# At most this many rows are fetched at first for 10 recommendations without 50 seen items.
_FETCHED = 32


@dataclass(frozen=True)
class Asked:
    """Requests with a filter that allows `rows`, a share of the items."""

    rows: int
    share: float
    bodies: tuple[str, ...]


def measure(options: Options) -> dict[str, Any]:
    """Measure all figures; a quick run has a small shop and short loads, so that it claims nothing."""
    shop = served_shop(QUICK_ITEMS if options.quick else ITEMS)
    with TemporaryDirectory() as scratch:
        bundles = Path(scratch) / "bundles"
        shutil.copytree(shop.bundles, bundles)
        servers = {name: SERVERS[name](Path(scratch) / name) for name in SERVERS}
        try:
            return _measure(shop, bundles, servers, options)
        finally:
            for server in servers.values():
                server.kill()


def _measure(
    shop: Served, bundles: Path, servers: dict[str, EngineServer], options: Options
) -> dict[str, Any]:
    versions = {"exact": "exact", "faiss": VERSIONS[0]}
    engines: dict[str, Any] = {name: {} for name in versions}
    for name, server in servers.items():
        server.start()
        versions[name] = name
        engines[name] = published(bundles, name, server)
    questions = asked(shop, Bundle.open(bundles / "exact").catalog, 50 if options.quick else 200)
    seconds = 0.5 if options.quick else 4.0
    addresses = " ".join(server.url for server in servers.values())
    with running_service(bundles, engine=addresses) as service:
        service.activate("exact")
        truth = [answers(service, question) for question in questions]
        for name, version in versions.items():
            service.activate(version)
            index = Bundle.open(bundles / version).manifest.index
            engines[name]["cells"] = [
                {**cell(service, question, best, seconds), "by_engine": is_by_engine(index, question.rows)}
                for question, best in zip(questions, truth, strict=True)
            ]
        switches = switched(service, shop, list(servers))
    cells = [row for engine in engines.values() for row in engine["cells"]]
    return {
        "items": shop.items,
        **switches,
        "short_answers": sum(row["short_answers"] for row in cells),
        "engines": engines,
    }


def published(bundles: Path, name: str, server: EngineServer) -> dict[str, Any]:
    """Publish a version on an engine; return the seconds, and the bytes of an item."""
    assert server.process is not None
    before = resident_bytes(server.process.pid)
    begun = time.perf_counter()
    target = publish_to_engine(bundles / "exact", server.url, RECALL, name)
    seconds = time.perf_counter() - begun
    bundle = Bundle.open(target)
    grown = resident_bytes(server.process.pid) - before
    return {"publish_s": seconds, "resident_bytes_an_item": grown / len(bundle.vectors)}


def asked(shop: Served, catalog: Catalog, count: int) -> list[Asked]:
    """The shop's questions with each of the filters."""
    plain = [json.loads(body) for body in shop.bodies[:count]]
    questions = []
    for share in SHARES:
        conditions = {} if share == 1.0 else {"filter": filter_of(catalog, share)}
        rows = compile_filter(conditions.get("filter", {}), catalog).allowed().count
        bodies = tuple(json.dumps({**request, **conditions}) for request in plain)
        questions.append(Asked(rows, rows / len(catalog), bodies))
    return questions


def filter_of(catalog: Catalog, share: float) -> dict[str, Any]:
    """The filter by genre and price whose share of the items is nearest."""
    genres = [value for value, _ in summary_of(catalog.column("genres"), 100).frequent]
    prices, _ = catalog.column("price").counts()
    bounds = np.unique(np.quantile(prices, np.linspace(0.02, 1, 25))).tolist()
    candidates = [
        {"genres": {"any_of": [genre]}, "price": {"lte": bound}} for genre, bound in product(genres, bounds)
    ]
    candidates += [{"price": {"lte": bound}} for bound in bounds]

    def distance(condition: dict[str, Any]) -> float:
        count = compile_filter(condition, catalog).allowed().count
        return abs(math.log(max(count, 0.1) / (share * len(catalog))))

    return min(candidates, key=distance)


def answers(service: Running, question: Asked) -> list[list[Any]]:
    """The ids of the answers to all requests. Raises RuntimeError for a degraded one."""
    rankings = []
    for body in question.bodies:
        answer = json.loads(post(service.url, RECOMMEND, body))
        if answer["degraded"]:
            raise RuntimeError(f"an answer is degraded: {answer['degraded']}")
        rankings.append([item["id"] for item in answer["items"]])
    return rankings


def cell(service: Running, question: Asked, truth: Sequence[Sequence[Any]], seconds: float) -> dict[str, Any]:
    """Recall, short answers and requests/s of the live version."""
    rankings = answers(service, question)
    shared = sum(len(set(ids) & set(best)) for ids, best in zip(rankings, truth, strict=True))
    short = sum(len(ids) < len(best) for ids, best in zip(rankings, truth, strict=True))
    run_load(Load(service.url, RECOMMEND, question.bodies, connections=8, seconds=seconds / 4))
    outcome = run_load(
        Load(service.url, RECOMMEND, question.bodies, connections=8, seconds=seconds)
    ).checked()
    return {
        "share": question.share,
        "recall": shared / sum(map(len, truth)),
        "short_answers": short,
        "requests_per_s": outcome.rate(),
    }


def is_by_engine(index: IndexSettings, rows: int) -> bool:
    """Whether an engine searches where `rows` are allowed, and not the service itself."""
    if not isinstance(index, EngineSettings) or rows <= index.subset_rows:
        return False
    return index.breadth(rows, _FETCHED) is not None


def switched(service: Running, shop: Served, versions: Sequence[str]) -> dict[str, Any]:
    """Activate the versions of the engines in turns under load."""
    load = Load(service.url, RECOMMEND, shop.bodies, connections=4, seconds=_SWITCHES * 1.5 + 1)
    with start_load(load) as running:
        for number in range(_SWITCHES):
            service.activate(versions[(number + 1) % 2])
            time.sleep(0.5)
        outcome = running.result()
    return {"failed_on_switch": int((~outcome.good).sum()), "asked_on_switch": len(outcome.status)}


if __name__ == "__main__":
    run(measure, needs_data=False)
