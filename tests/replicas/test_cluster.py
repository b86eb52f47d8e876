"""Two services on a Redis Cluster, one of whose masters is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import activate, metric, until
from tests.faults.versions import ask
from tests.replicas.conftest import Begin
from tests.support.redis_cluster import RedisCluster, own_cluster
from tests.support.redis_server import needs_redis
from tests.support.service_process import Process
from turret.service.stores.redis.key_names import KeyNames

pytestmark = [needs_redis, pytest.mark.nightly]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with own_cluster(tmp_path / "cluster") as cluster:
        yield cluster


def store(service: Process, number: int) -> bool:
    """Store an event of each of ten users; whether it was acknowledged."""
    events = [
        {"event_id": f"e{number}", "user_id": f"u{user}", "item_id": 100 + number} for user in range(10)
    ]
    return bool(service.client.post("/v1/events", json={"events": events}).status_code == 200)


def test_replicas_on_a_cluster_survive_the_master_of_their_record(
    cluster: RedisCluster, replica: Begin, root: Path
) -> None:
    pair = [replica(store=f"{cluster.address}?replicas=1") for _ in range(2)]
    a, b = pair
    for service in pair:
        until(lambda service=service: metric(service, "turret_replicas ") == 2)  # type: ignore[misc]
    assert activate(a, root, "v2").status_code == 200
    assert store(a, 1)
    master = cluster.master_of(KeyNames("turret:", is_cluster=True).shared("items:number"))
    master.kill()
    assert {ask(service)["version"] for service in pair} == {"v2"}  # nothing of an answer needs the record
    master.start()
    cluster.until_whole()
    until(lambda: activate(b, root, "v3").status_code == 200)
    until(lambda: {ask(service)["version"] for service in pair} == {"v3"})
    until(lambda: store(b, 2))
    assert [event["item_id"] for event in a.client.get("/v1/users/u7").json()["events"]] == [101, 102]
