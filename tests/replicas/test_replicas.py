"""Replicas answer with one version, whichever of them took the call."""

import json
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest

from tests.conftest import contents
from tests.faults.processes import activate, admin, children, metric, until
from tests.faults.versions import ask, damage
from tests.replicas.conftest import Begin, name_of, stopped
from tests.support.item_towers import with_item_tower
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.service_process import Process, plain_client
from turret.tower.bundle.publish import publish

pytestmark = [needs_redis, pytest.mark.nightly]
Pair = tuple[Process, Process]


def versions(*services: Process, count: int = 12) -> set[str]:
    """The versions that connections of their own get."""
    return {ask(service)["version"] for service in services for _ in range(count)}


def test_an_activation_and_a_rollback_hold_in_all_replicas_when_they_are_acknowledged(
    pair: Pair, root: Path
) -> None:
    a, b = pair
    for service, version in ((a, "v2"), (b, "v3"), (a, "v1")):
        answer = activate(service, root, version)
        assert answer.status_code == 200, answer.text
        assert "behind" not in answer.text
        assert versions(a, b) == {version}
    answer = admin(b, root, "rollback")
    assert (answer.json()["version"], answer.json()["previous"]) == ("v3", "v1")
    assert versions(a, b) == {"v3"}


def test_routes_of_one_replica_are_those_of_all(pair: Pair, root: Path) -> None:
    a, b = pair
    answer = admin(a, root, "routes", {"canary": {"version": "v2", "share": 1}})
    assert answer.status_code == 200, answer.text
    assert "behind" not in answer.text
    users = [ask(service, user_id=user)["version"] for service in pair for user in range(20)]
    assert set(users) == {"v2"}
    activate(b, root, "v2")  # the canary becomes live, and the route to it ends
    assert [admin(service, root, "routes").json()["canary"] for service in pair] == [None, None]
    assert versions(a, b) == {"v2"}


def test_an_item_is_in_the_answers_of_all_replicas_when_it_is_acknowledged(pair: Pair) -> None:
    a, b = pair
    body = {"features": {f"n{place}": 1.0 for place in range(8)}}
    for number in range(20):
        writer, reader = (a, b) if number % 2 else (b, a)
        answer = writer.client.put(f"/v1/items/{9000 + number}", json=body)
        assert answer.status_code == 200, answer.text
        assert "replicas_behind" not in answer.json()
        assert reader.client.get(f"/v1/items/{9000 + number}").status_code == 200
        assert 9000 + number in {item["id"] for item in ask(reader, k=81)["items"]}
        gone = reader.client.delete(f"/v1/items/{9000 + number}")
        assert gone.json()["withdrawn"]
        assert 9000 + number not in {item["id"] for item in ask(writer, k=81)["items"]}


@pytest.mark.fault(68)
def test_a_replica_that_was_down_during_an_activation_serves_its_version_from_the_first_answer_on(
    pair: Pair, root: Path, replica: Begin
) -> None:
    """Also if the folder's pointer names another version."""
    a, b = pair
    b.stop()
    until(lambda: metric(a, "turret_replicas ") == 1)
    answer = activate(a, root, "v2")
    assert "replicas_behind" not in answer.json()  # b has said that it ends
    (root / "current").write_text("v3\n")
    again = replica(workers=2)
    assert versions(again, count=30) == {"v2"}
    assert again.client.get("/readyz").json()["version"] == "v2"
    _, complaints = again.stop()
    assert "names version v3, but the live version of all replicas is v2" in complaints


@pytest.mark.fault(68)
def test_a_replica_that_hangs_is_named_and_follows_when_it_is_back(pair: Pair, root: Path) -> None:
    a, b = pair
    with stopped(b):
        answer = activate(a, root, "v2")
        assert answer.json()["replicas_behind"] == [name_of(b)]
        assert versions(a) == {"v2"}
        assert activate(a, root, "v3").json()["replicas_behind"] == [
            name_of(b)
        ]  # at once, as it is known to hang
        put = a.client.put("/v1/items/9000", json={"features": {}})
        assert put.json()["replicas_behind"] == [name_of(b)]
        until(lambda: metric(a, "turret_replicas_behind ") == 1)
        assert metric(a, "turret_replicas ") == 1
    until(lambda: versions(b) == {"v3"})
    until(lambda: metric(a, "turret_replicas_behind ") == 0)
    assert metric(b, "turret_replicas ") == 2


@pytest.mark.fault(68)
def test_a_killed_replica_is_named(pair: Pair, root: Path) -> None:
    a, b = pair
    b.process.kill()
    assert activate(a, root, "v2").json()["replicas_behind"] == [name_of(b)]


@pytest.mark.fault(71)
def test_activations_at_once_through_both_replicas_take_turns(pair: Pair, root: Path) -> None:
    asked = [("v2", "v3", "v1")[place % 3] for place in range(9)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: activate(pair[n % 2], root, asked[n]).json(), range(9)))
    lines = [json.loads(line) for line in (root / "activations.jsonl").read_text().splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, 11))
    chain = [line["version"] for line in lines]
    assert [line.get("previous") for line in lines[1:]] == chain[:-1]
    assert sorted((answer["previous"], answer["version"]) for answer in answers) == sorted(pairwise(chain))
    assert versions(*pair) == {chain[-1]}


@pytest.mark.fault(69)
def test_without_redis_answers_go_on_and_an_activation_is_refused(
    pair: Pair, root: Path, redis: RedisServer
) -> None:
    a, b = pair
    activate(a, root, "v2")
    redis.kill()
    for refused in (activate(a, root, "v3"), admin(b, root, "rollback")):
        assert refused.status_code == 503
        assert "Retry-After" in refused.headers
        assert "nothing is changed" in refused.json()["error"]["message"]
    assert admin(b, root, "routes", {"shadow": {"version": "v3", "share": 1}}).status_code == 503
    assert versions(a, b) == {"v2"}
    assert (root / "current").read_text().strip() == "v2"
    redis.start()
    until(lambda: metric(a, "turret_replicas ") == 2)
    assert activate(b, root, "v3").json()["version"] == "v3"
    assert versions(a, b) == {"v3"}


@pytest.mark.fault(69)
def test_a_replica_that_starts_without_redis_serves_the_pointer_and_corrects_itself(
    pair: Pair, root: Path, redis: RedisServer, replica: Begin
) -> None:
    a, b = pair
    activate(a, root, "v2")
    b.stop()
    redis.kill()
    (root / "current").write_text("v3\n")
    again = replica()
    assert versions(again) == {"v3"}
    assert again.client.post("/v1/recommend", json={"min_version": "v2"}).status_code == 503
    redis.start()
    until(lambda: versions(again, count=4) == {"v2"})
    assert again.client.post("/v1/recommend", json={"min_version": "v2"}).status_code == 200
    assert versions(a) == {"v2"}
    _, complaints = again.stop()
    assert "serving the current version of the folder until the replicas' record is read" in complaints
    assert [line for line in (root / "activations.jsonl").read_text().splitlines() if "pointer" in line] == []


@pytest.mark.fault(71)
def test_min_version_holds_in_the_other_replica(pair: Pair, root: Path) -> None:
    """Also in one that could not follow: it waits, and then refuses."""
    a, b = pair
    activate(a, root, "v2")
    asked = {"min_version": "v2"}
    assert {ask(b, **asked)["version"] for _ in range(10)} == {"v2"}
    activate(b, root, "v1")
    assert {ask(a, **asked)["version"] for _ in range(10)} == {"v1"}  # the newer activation
    assert b.client.post("/v1/recommend", json={"min_version": "v3"}).status_code == 409


@pytest.mark.fault(70)
def test_a_replica_that_can_not_open_the_live_version_is_not_ready_and_changes_nothing(
    pair: Pair, root: Path, replica: Begin
) -> None:
    a, b = pair
    activate(a, root, "v2")
    b.stop()
    damage(root, "v2")
    again = replica()
    until(lambda: again.client.get("/readyz").status_code == 503)
    for method, path, body in (
        ("GET", "/readyz", None),
        ("POST", "/v1/recommend", {"k": 3}),
        ("POST", "/v1/recommend/batch", {"requests": [{"k": 3}]}),
        ("GET", "/v1/items/101/similar", None),
        ("GET", "/v1/version", None),
    ):
        refused = again.client.request(method, path, json=body)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "2"
        assert "can't open the live version" in refused.json()["error"]["message"]
    assert a.client.get("/readyz").json() == {"status": "ready", "version": "v2"}
    until(lambda: metric(a, "turret_replicas_behind ") == 1)
    assert activate(again, root, "v3").status_code == 200  # through the replica that is not ready
    assert versions(a, again) == {"v3"}
    until(lambda: again.client.get("/readyz").status_code == 200)


@pytest.mark.fault(69)
def test_a_lost_record_is_written_again(pair: Pair, root: Path, redis: RedisServer, replica: Begin) -> None:
    a, b = pair
    activate(a, root, "v2")
    (root / "current").write_text("v3\n")
    redis.ask("FLUSHALL")
    until(lambda: metric(b, "turret_replicas ") == 2)
    assert versions(replica(), a, b) == {"v2"}


def test_the_first_version_of_waiting_replicas_is_found_once(
    root: Path, tmp_path: Path, replica: Begin
) -> None:
    empty = tmp_path / "empty"
    services = [replica(empty, wait=True) for _ in range(2)]
    assert {service.client.get("/readyz").status_code for service in services} == {503}
    publish(empty, with_item_tower(contents("v1")))
    for service in services:
        until(lambda service=service: service.client.get("/readyz").status_code == 200)  # type: ignore[misc]
    assert len((empty / "activations.jsonl").read_text().splitlines()) == 1


def test_replicas_with_folders_of_their_own_agree_too(
    pair: Pair, root: Path, tmp_path: Path, replica: Begin
) -> None:
    """Each of them has the same bundles; the log and the pointer of the other folder follow."""
    a, _ = pair
    apart = tmp_path / "apart"
    shutil.copytree(root, apart)
    c = replica(apart)
    until(lambda: metric(a, "turret_replicas ") == 3)
    activate(a, root, "v2")
    assert ask(c)["version"] == "v2"
    admin(a, root, "routes", {"canary": {"version": "v3", "share": 1}})
    assert ask(c, user_id=1)["version"] == "v3"
    until(lambda: (apart / "current").read_text().strip() == "v2")
    c.stop()
    assert ask(replica(apart), min_version="v2")["version"] == "v2"


@pytest.mark.fault(70)
def test_other_data_under_the_key_of_the_record_is_an_error_in_words(
    root: Path, replica: Begin, redis: RedisServer
) -> None:
    key = "turret:replicas:default:live"
    redis.ask("SET", key, "something else")
    a = replica()
    assert versions(a) == {"v1"}
    refused = activate(a, root, "v2")
    assert refused.status_code == 503
    assert "holds no record of this service" in refused.json()["error"]["message"]
    redis.ask("DEL", key)
    until(lambda: activate(a, root, "v2").status_code == 200)


@pytest.mark.fault(71)
def test_no_answer_of_any_replica_is_older_than_an_acknowledged_activation(pair: Pair, root: Path) -> None:
    """An answer that begins after the acknowledgement is of that activation or a later one."""
    order = ["v1"]
    acknowledged = [0]
    wrong: list[object] = []
    count = [0]
    over = threading.Event()

    def look(service: Process) -> None:
        while not over.wait(0.01):  # without a pause an activation takes seconds
            least = acknowledged[0]
            version = ask(service, k=3).get("version")
            count[0] += 1
            if version not in order[least:]:
                wrong.append((version, order[least:]))

    threads = [threading.Thread(target=look, args=(service,)) for service in pair * 2]
    for thread in threads:
        thread.start()
    for number in range(12):
        order.append(("v2", "v3", "v1")[number % 3])
        answer = activate(pair[number % 2], root, order[-1])
        assert answer.status_code == 200, answer.text
        assert "replicas_behind" not in answer.json()
        acknowledged[0] = len(order) - 1
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert count[0] > 50


@pytest.mark.fault(68)
def test_another_worker_follows_while_the_first_one_hangs(replica: Begin, root: Path) -> None:
    """The replica is named, as one of its workers is behind, and its other worker has the new version."""
    a, b = replica(activation_seconds=6), replica(workers=2)
    until(lambda: metric(a, "turret_replicas ") == 2)
    pid = children(b.process.pid)[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert activate(a, root, "v2").json()["replicas_behind"] == [name_of(b)]
        seen = set()
        with ThreadPoolExecutor(8) as pool:
            for version in pool.map(lambda _: _patiently(b), range(16)):
                seen.add(version)
        assert "v2" in seen
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: versions(b) == {"v2"})


def _patiently(service: Process) -> object:
    """The version of an answer; None if the connection has come to the worker that hangs."""
    with plain_client(service.urls[0], timeout=2) as client, suppress(httpx2.HTTPError):
        return client.post("/v1/recommend", json={}).json()["version"]
    return None
