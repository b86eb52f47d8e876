"""Two real services, each with its own workers and port, on one folder of bundles and one Redis, answer with
one version, whichever of them took the call."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import contents
from tests.support.item_towers import with_item_tower
from tests.support.redis_server import RedisServer, own_redis
from tests.support.service_calls import activate, admin, answered_versions, ask, children, metric
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.tower.bundle.publish import publish

Begin = Callable[..., Process]
Pair = tuple[Process, Process]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with own_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Versions with disjoint items, 100-159, 200-239 and 300-319; v1 is current and has an item tower."""
    root = tmp_path / "versions"
    publish(root, with_item_tower(contents("v1")))
    publish(root, with_item_tower(contents("v2", ids=range(200, 240), seed=1)))
    publish(root, with_item_tower(contents("v3", ids=range(300, 320), seed=2)))
    return root


@pytest.fixture
def begin(root: Path, redis: RedisServer, start: Start) -> Begin:
    """Start a replica of two workers."""
    return lambda: start(root, store=redis.address, history_timeout=0.5, workers=2)


@pytest.fixture
def pair(begin: Begin) -> Pair:
    """Two replicas that know of each other."""
    services = begin(), begin()
    for service in services:
        until_known(service, 2)
    return services


def until_known(service: Process, replicas: int) -> None:
    until(lambda: metric(service, "turret_replicas ") == replicas, f"{replicas} replicas are known")


def name_of(service: Process) -> str:
    return f"{socket.gethostname()}:{service.urls[0].rpartition(':')[2]}"


def versions(*services: Process, count: int = 12) -> set[str]:
    """The versions that connections of their own get."""
    return set().union(*(answered_versions(service, count) for service in services))


@contextmanager
def stopped(service: Process) -> Iterator[None]:
    """Stop all processes of a replica; they go on at the end."""
    pids = [service.process.pid, *children(service.process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.process
@pytest.mark.fault(71)
def test_what_one_replica_acknowledges_holds_in_all(pair: Pair, root: Path) -> None:
    """Activations, a rollback, routes, `min_version` and items."""
    a, b = pair
    for service, version in ((a, "v2"), (b, "v3"), (a, "v1")):
        answer = activate(service, root, version)
        assert answer.status_code == 200, answer.text
        assert "behind" not in answer.text
        assert versions(a, b) == {version}
    answer = admin(b, root, "rollback", {"version": "v1"})
    assert (answer.json()["version"], answer.json()["previous"]) == ("v3", "v1")
    assert versions(a, b) == {"v3"}
    # v1 was activated after v2: whoever asks for v2 or a later one may get the newest alone.
    assert {ask(a, min_version="v2")["version"] for _ in range(10)} == {"v3"}
    canary = {"version": "v2", "share": 1}
    assert "behind" not in admin(a, root, "routes", {"canary": canary}).text
    assert {ask(service, user_id=user)["version"] for service in pair for user in range(20)} == {"v2"}
    activate(b, root, "v2")  # the canary becomes live, and the route to it ends
    assert [admin(service, root, "routes").json()["canary"] for service in pair] == [None, None]
    assert versions(a, b) == {"v2"}
    features = {"features": {f"n{place}": 1.0 for place in range(8)}}
    for number in range(10):
        writer, reader = (a, b) if number % 2 else (b, a)
        answer = writer.client.put(f"/v1/items/{9000 + number}", json=features)
        assert answer.status_code == 200, answer.text
        assert "replicas_behind" not in answer.json()
        assert 9000 + number in {item["id"] for item in ask(reader, k=81)["items"]}
        assert reader.client.delete(f"/v1/items/{9000 + number}").json()["withdrawn"]
        assert 9000 + number not in {item["id"] for item in ask(writer, k=81)["items"]}


@pytest.mark.nightly
@pytest.mark.fault(68)
def test_a_replica_that_hangs_or_is_killed_is_named_and_follows_when_it_is_back(
    pair: Pair, root: Path, begin: Begin
) -> None:
    a, b = pair
    with stopped(b):
        for version in ("v2", "v3"):
            answer = activate(a, root, version)
            assert answer.json()["replicas_behind"] == [name_of(b)]
            assert versions(a) == {version}
        until(lambda: metric(a, "turret_replicas_behind ") == 1, "it is behind")
        assert metric(a, "turret_replicas ") == 1
    until(lambda: versions(b) == {"v3"}, "it follows")
    until(lambda: metric(a, "turret_replicas_behind ") == 0, "it is back")
    b.process.kill()
    assert activate(a, root, "v2").json()["replicas_behind"] == [name_of(b)]
    (root / "current").write_text("v3\n")  # what the folder says does not count
    again = begin()
    assert versions(again, count=30) == {"v2"}
    assert again.client.get("/readyz").json()["version"] == "v2"
    _, complaints = again.stop()
    assert "names version v3, but the live version of all replicas is v2" in complaints


@pytest.mark.nightly
@pytest.mark.fault(69)
def test_without_redis_answers_go_on_and_changes_are_refused(
    pair: Pair, root: Path, redis: RedisServer, begin: Begin
) -> None:
    """A replica that starts meanwhile serves the folder's version, and corrects itself."""
    a, b = pair
    activate(a, root, "v2")
    redis.kill()
    for refused in (activate(a, root, "v3"), admin(b, root, "rollback", {"version": "v2"})):
        assert refused.status_code == 503
        assert "Retry-After" in refused.headers
        assert "nothing is changed" in refused.json()["error"]["message"]
    assert admin(b, root, "routes", {"shadow": {"version": "v3", "share": 1}}).status_code == 503
    assert versions(a, b) == {"v2"}
    assert (root / "current").read_text().strip() == "v2"
    (root / "current").write_text("v3\n")
    c = begin()
    assert versions(c) == {"v3"}
    assert c.client.post("/v1/recommend", json={"min_version": "v2"}).status_code == 503
    redis.start()
    until(lambda: versions(c, count=4) == {"v2"}, "it corrects itself")
    assert c.client.post("/v1/recommend", json={"min_version": "v2"}).status_code == 200
    until_known(a, 3)
    assert activate(b, root, "v3").json()["version"] == "v3"
    assert versions(a, b, c) == {"v3"}
    _, complaints = c.stop()
    assert "serving the current version of the folder until the replicas' record is read" in complaints
    assert [line for line in (root / "activations.jsonl").read_text().splitlines() if "pointer" in line] == []
