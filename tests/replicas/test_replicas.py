"""Two real services, each with its own workers and port, on one folder of bundles and one Redis, answer with
one version, whichever of them took the call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import contents
from tests.support.item_towers import with_item_tower
from tests.support.redis_server import own_redis
from tests.support.service_calls import activate, admin, answered_versions, ask, metric
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.tower.bundle.publish import publish


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Versions with disjoint items, 100-159, 200-239 and 300-319; v1 is current and has an item tower."""
    root = tmp_path / "versions"
    publish(root, with_item_tower(contents("v1")))
    publish(root, with_item_tower(contents("v2", ids=range(200, 240), seed=1)))
    publish(root, with_item_tower(contents("v3", ids=range(300, 320), seed=2)))
    return root


@pytest.fixture
def replicas(root: Path, tmp_path: Path, start: Start) -> Iterator[list[Process]]:
    """Two replicas of two workers each, that know each other."""
    with own_redis(tmp_path / "redis") as redis:
        both = [start(root, store=redis.address, history_timeout=0.5, workers=2) for _ in range(2)]
        until(lambda: {metric(one, "turret_replicas ") for one in both} == {2}, "they know each other")
        yield both


def versions(*services: Process) -> set[str]:
    """The versions that connections of their own get."""
    return set().union(*(answered_versions(service, 12) for service in services))


@pytest.mark.process
@pytest.mark.fault(71)
def test_what_one_replica_acknowledges_holds_in_all(replicas: list[Process], root: Path) -> None:
    """Activations, a rollback, routes, `min_version` and items."""
    a, b = replicas
    for service, version in ((a, "v2"), (b, "v3"), (a, "v1")):
        answer = activate(service, root, version)
        assert answer.status_code == 200, answer.text
        assert "behind" not in answer.text
        assert versions(a, b) == {version}
    answer = admin(b, root, "rollback")
    assert (answer.json()["version"], answer.json()["previous"]) == ("v3", "v1")
    assert versions(a, b) == {"v3"}
    # v1 was activated after v2: whoever asks for v2 or a later one may get the newest alone.
    assert {ask(a, min_version="v2")["version"] for _ in range(10)} == {"v3"}
    canary = {"version": "v2", "share": 1}
    assert "behind" not in admin(a, root, "routes", {"canary": canary}).text
    assert {ask(service, user_id=user)["version"] for service in replicas for user in range(20)} == {"v2"}
    activate(b, root, "v2")  # the canary becomes live, and the route to it ends
    assert [admin(service, root, "routes").json()["canary"] for service in replicas] == [None, None]
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
