"""A version on a vector engine that runs: its answers, an engine that dies, and switches of versions."""

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import contents
from tests.support.engine_servers import EngineServer, running
from tests.support.service_calls import activate
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.tower.bundle.publish import publish
from turret.tower.engines.opening import Limits, open_engine
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.format.engine_settings import EngineSettings
from turret.tower.format.manifest import read_manifest
from turret.tower.format.pointer import point

# A Redis with the search module is started, and loaded twice.
pytestmark = pytest.mark.nightly

ITEMS = 2000
REQUESTS: tuple[dict[str, Any], ...] = (
    {"history": [3, 5, 7], "k": 10},
    {"history": [3, 5, 7], "k": 10, "filter": {"year": {"lt": 1960}}},
    {"history": [8], "k": 20, "filter": {"not": {"genres": {"any_of": ["a", "b"]}}}},
    {"history": [8], "k": 30, "filter": {"year": {"equals": 1903}}},
    {"history": [11, 12], "k": 10, "exclude": list(range(40)), "exclude_seen": True},
    {"history": [11, 12], "k": 10, "min_score": 1.0},
    {"history": [11, 12], "k": 5, "diversity": 0.3},
    {"history": [11, 12], "k": 5, "cap": {"genres": 2}},
    {"history": [2], "k": 1000},
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    with running("redis", tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def shop(engine: EngineServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v1 and v2 with an exact index, and both on the engine."""
    root = tmp_path_factory.mktemp("shop") / "bundles"
    for name, seed in (("v1", 0), ("v2", 1)):
        made = contents(name, ids=tuple(range(ITEMS)), seed=seed)
        genres = [["a", "b", "c", "d"][row % 4 : row % 4 + 1 + row % 2] for row in range(ITEMS)]
        fields: dict[str, list[Any]] = {"year": [1900 + row % 120 for row in range(ITEMS)], "genres": genres}
        queries = made.item_vectors[::40]
        publish(root, replace(made, fields=fields, query_vectors=queries))
        publish_to_engine(root / name, engine.url, version=f"{name}-redis")
    point(root, "v1-redis")
    return root


@pytest.fixture
def versions(shop: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shop, tmp_path / "versions")


def settings_of(root: Path, version: str) -> EngineSettings:
    settings = read_manifest(root / version).index
    assert isinstance(settings, EngineSettings)
    return settings


def asked(service: Process, request: dict[str, Any]) -> dict[str, Any]:
    answer = service.client.post("/v1/recommend", json=request)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.content)
    return found


def ids(answer: dict[str, Any]) -> list[int]:
    return [item["id"] for item in answer["items"]]


def test_answers_are_those_of_the_exact_index(versions: Path, start: Start) -> None:
    """Also with fresh, replaced and withdrawn items, pages, and explanations."""
    by_engine = start(versions, store="memory://")
    point(versions, "v1")
    exact = start(versions, store="memory://")
    shared = []
    for request in REQUESTS:
        pair = [asked(service, request) for service in (by_engine, exact)]
        assert [answer["degraded"] for answer in pair] == [[], []]
        assert len(pair[0]["items"]) == len(pair[1]["items"])
        shared.append(len(set(ids(pair[0])) & set(ids(pair[1]))) / max(1, len(ids(pair[1]))))
    assert np.mean(shared) > 0.97
    request = {"history": [3, 5], "k": 10}
    best = ids(asked(exact, request))
    for service in (by_engine, exact):
        assert service.client.delete(f"/v1/items/{best[0]}").status_code == 200
    pages = [ids(asked(service, request)) for service in (by_engine, exact)]
    assert pages[0] == pages[1] == ids(asked(exact, request))
    assert best[0] not in pages[0]
    cursor = asked(by_engine, request)["cursor"]
    second = ids(asked(by_engine, {**request, "cursor": cursor}))
    assert second == ids(asked(exact, {**request, "k": 20}))[10:]
    explained = asked(by_engine, {**request, "explain": True})["explanation"]
    assert explained["plan"]["kind"] == "over_fetch"
    assert len(explained["items"]) == 10
    similar = [
        service.client.get("/v1/items/7/similar?k=5").json()["items"] for service in (by_engine, exact)
    ]
    assert [item["id"] for item in similar[0]] == [item["id"] for item in similar[1]]


@pytest.mark.parametrize("fallback", ["exact", "popular"])
def test_an_engine_that_dies_is_replaced_until_it_is_back(
    versions: Path, engine: EngineServer, start: Start, fallback: str
) -> None:
    service = start(versions, store="memory://", engine_fallback=fallback, breaker_seconds=0.5)
    healthy = asked(service, REQUESTS[0])
    engine.kill()
    try:
        for number in range(8):
            answer = asked(service, REQUESTS[number % 3])
            assert answer["degraded"] == ["engine"]
            assert {item["source"] for item in answer["items"]} == {
                "towers" if fallback == "exact" else "popular"
            }
        if fallback == "exact":
            assert ids(asked(service, REQUESTS[0])) == ids(healthy)
        else:
            assert service.client.get("/v1/items/7/similar").status_code == 503
        metrics = service.client.get("/metrics").text
        assert float(metrics.split('turret_degraded_total{part="engine"} ')[1].split()[0]) >= 8
    finally:
        engine.start()
    until(lambda: not asked(service, REQUESTS[0])["degraded"], "the engine is asked again")
    assert asked(service, REQUESTS[0]) == healthy


def test_an_activation_moves_the_alias_and_fails_no_request(
    versions: Path, engine: EngineServer, start: Start
) -> None:
    """Each answer is whole, and of the version that it names."""
    service = start(versions, store="memory://")
    expected = {}
    for version in ("v2-redis", "v1-redis"):
        activate(service, versions, version)
        expected[version] = ids(asked(service, REQUESTS[0]))
    one, two = (settings_of(versions, name) for name in ("v1-redis", "v2-redis"))
    client = open_engine(engine.url, Limits())
    assert client.pointed(one.alias) == one.collection
    wrong: list[object] = []
    count = 0
    is_over = threading.Event()

    def ask() -> None:
        nonlocal count
        while not is_over.is_set():
            answer = asked(service, REQUESTS[0])
            count += 1
            if answer["degraded"] or ids(answer) != expected[answer["version"]]:
                wrong.append(answer)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for version in ("v2-redis", "v1-redis", "v2-redis"):
            seen = count
            activate(service, versions, version)
            until(lambda seen=seen: count > seen + 5, "it is asked")  # type: ignore[misc]
    finally:
        is_over.set()
        asking.join()
    assert wrong == []
    assert client.pointed(one.alias) == two.collection
    client.close()


def test_a_version_that_its_engine_does_not_hold_is_not_activated(
    versions: Path, engine: EngineServer, start: Start
) -> None:
    target = publish_to_engine(versions / "v1", engine.url, version="v3")
    client = open_engine(engine.url, Limits())
    client.drop(settings_of(versions, target.name).collection)
    client.close()
    service = start(versions, store="memory://")
    answer = activate(service, versions, "v3")
    assert answer.status_code == 409
    assert "holds no collection" in answer.text
    assert asked(service, REQUESTS[0])["version"] == "v1-redis"
