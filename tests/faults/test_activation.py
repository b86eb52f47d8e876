"""Versions that are activated, rolled back, routed to and refused while others ask."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from tests.support.service_calls import (
    Traffic,
    activate,
    admin,
    answered_versions,
    ask,
    damage,
    metric,
)
from tests.support.service_process import Start, plain_client
from tests.support.until import until
from turret.tower.bundle.publish import publish
from turret.tower.format.pointer import current


def log_of(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "activations.jsonl").read_text().splitlines()]


@pytest.mark.nightly
@pytest.mark.fault(14)
def test_activations_at_once_take_turns_in_all_workers(start: Start, three: Path) -> None:
    """Each names what it took the place of, as if it had come alone; in the end all serve the last."""
    service = start(workers=2)
    with ThreadPoolExecutor(6) as pool:
        asked = [("v2", "v3", "v1")[place % 3] for place in range(12)]
        answers = list(pool.map(lambda version: activate(service, three, version).json(), asked))
    lines = log_of(three)
    assert [line["sequence"] for line in lines] == list(range(1, 14))
    chain = [line["version"] for line in lines]
    assert [line.get("previous") for line in lines[1:]] == chain[:-1]
    assert sorted((answer["previous"], answer["version"]) for answer in answers) == sorted(pairwise(chain))
    assert not any("behind" in answer for answer in answers)
    assert current(three) == chain[-1]
    assert answered_versions(service, 40) == {chain[-1]}


@pytest.mark.process
@pytest.mark.fault(15)
def test_no_answer_is_older_than_what_an_acknowledged_activation_promised(
    start: Start, three: Path, thorough: bool
) -> None:
    """Clients of two workers, versions back and forth: `min_version` holds, and without it the order of
    acknowledgements does too: an answer that begins after one has ended is of that activation or a later."""
    service = start(workers=2)
    order = ["v1"]  # what was asked to be live, in turn
    acknowledged = [0]
    wrong: list[Any] = []
    count = [0]
    over = threading.Event()

    def look(names_it: bool) -> None:
        client = plain_client(service.urls[0])
        while not over.wait(0 if thorough else 0.01):  # without a pause an activation takes seconds
            least = acknowledged[0]
            body = {"min_version": order[least]} if names_it else {}
            answer = client.post("/v1/recommend", json={"k": 3, **body})
            possible = set(order[least:])  # also what is asked for meanwhile, and not yet acknowledged
            version = answer.json().get("version")
            items = {item["id"] // 100 for item in answer.json().get("items", [])}
            if answer.status_code != 200 or version not in possible or items != {int(version[1:])}:
                wrong.append((least, body, answer.status_code, answer.text))
            count[0] += 1
            if count[0] % 20 == 0:  # another connection, perhaps to the other worker
                client.close()
                client = plain_client(service.urls[0])
        client.close()

    clients = [threading.Thread(target=look, args=(place % 2 == 0,)) for place in range(6)]
    for client in clients:
        client.start()
    try:
        for place in range(1, 31 if thorough else 9):
            order.append(("v1", "v2", "v3")[place % 3])
            assert activate(service, three, order[-1]).status_code == 200
            acknowledged[0] = place
            seen = count[0]
            until(lambda seen=seen: count[0] > seen + 6, "the clients are answered")  # type: ignore[misc]
    finally:
        over.set()
        for client in clients:
            client.join()
    assert wrong == []


@pytest.mark.nightly
@pytest.mark.fault(15)
def test_a_storm_of_activations_fails_no_request(start: Start, three: Path) -> None:
    """What it costs in time is a figure of `benchmarks.serving`."""
    service = start(workers=2)
    with Traffic(service.urls[0]).flowing(4) as traffic:
        for place in range(20):
            assert activate(service, three, f"v{place % 3 + 1}").status_code == 200
    assert traffic.broken == []
    assert traffic.statuses() == {200}
    assert {version for _, version in traffic.answers} == {"v1", "v2", "v3"}


@pytest.mark.nightly
@pytest.mark.fault(16)
@pytest.mark.parametrize(
    ("newest", "restarted"), [("sound", False), ("sound", True), ("damaged", True), ("deleted", False)]
)
def test_the_way_back_takes_one_call(start: Start, three: Path, newest: str, restarted: bool) -> None:
    service = start(workers=2)
    assert activate(service, three, "v2").status_code == 200
    if restarted:
        service.stop()
        service = start(workers=2)
    if newest == "damaged":
        damage(three, "v2")
    if newest == "deleted":
        for path in (three / "v2").iterdir():
            path.unlink()
    assert admin(service, three, "rollback").json() == {"version": "v1", "previous": "v2"}
    assert answered_versions(service) == {current(three)} == {"v1"}


@pytest.mark.nightly
@pytest.mark.fault(16)
def test_a_start_finds_the_version_before_where_the_newest_is_damaged(start: Start, three: Path) -> None:
    service = start()
    assert activate(service, three, "v2").status_code == 200
    service.stop()
    damage(three, "v2", "golden.json")
    again = start()
    assert "serves version v1" in again.greeting
    last = log_of(three)[-1]
    assert (last["version"], last["who"], last["previous"]) == ("v1", "fallback", "v2")
    assert "golden.json" in last["words"]


@pytest.mark.nightly
@pytest.mark.fault(11)
def test_a_version_that_memory_has_no_room_for_is_refused_before_it_is_opened(
    start: Start, three: Path
) -> None:
    service = start(memory_factor=1e9)
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert "needs about" in message
    assert message.endswith("version v1 stays live")
    assert current(three) == "v1"
    assert metric(service, 'turret_reload_failures_total{reason="memory"}') == 1
    assert service.client.get("/readyz").json()["version"] == "v1"
    (kept,) = (one for one in service.client.get("/v1/versions").json()["versions"] if one["version"] == "v2")
    assert [check["name"] for check in kept["gate"]["checks"]] == ["memory"]


@pytest.mark.nightly
@pytest.mark.fault(27)
def test_what_is_no_name_of_a_version_opens_nothing(start: Start, three: Path) -> None:
    service = start()
    for version in ("../v2", "/etc/passwd", "http://127.0.0.1:1/v2", "v2/../v1", "current", ".gate", "v2\0"):
        route = {"version": version, "share": 0.5}
        for path, body in (("activate", {"version": version}), ("routes", {"canary": route})):
            answer = admin(service, three, path, body)
            assert answer.status_code == 422, (version, path)
            assert answer.json()["error"]["field"].endswith("version")
        answer = service.client.post("/v1/recommend", json={"min_version": version})
        assert answer.status_code in (409, 422)
        assert "never live" in answer.json()["error"]["message"]
    assert current(three) == "v1"
    assert list(three.glob(".gate/*")) == []


@pytest.mark.nightly
def test_a_canary_has_its_users_in_every_worker_and_after_a_restart(start: Start, three: Path) -> None:
    service = start(workers=2)
    canary = {"version": "v2", "share": 0.3}
    answer = admin(service, three, "routes", {"canary": canary})
    assert answer.json() == {"live": "v1", "canary": canary, "shadow": None}
    users = range(200)
    first = {user: ask(service, user_id=user, k=1)["version"] for user in users}
    share = list(first.values()).count("v2") / len(users)
    assert 0.15 < share < 0.45
    service.stop()
    service = start(workers=2)
    assert {user: ask(service, user_id=user, k=1)["version"] for user in users} == first
    assert admin(service, three, "routes", {"canary": {"version": "v2", "share": 0.6}}).status_code == 200
    more = {user: ask(service, user_id=user, k=1)["version"] for user in users}
    assert all(more[user] == "v2" for user in users if first[user] == "v2")
    assert activate(service, three, "v2").status_code == 200, "a canary is promoted by activating it"
    for _ in range(4):  # answered by both workers
        assert admin(service, three, "routes").json() == {"live": "v2", "canary": None, "shadow": None}
    assert {ask(service, user_id=user, k=1)["version"] for user in users} == {"v2"}
    damage(three, "v3")
    answer = admin(service, three, "routes", {"canary": {"version": "v3", "share": 0.3}})
    assert answer.status_code == 409
    assert "item_vectors.npy" in answer.json()["error"]["message"]
    assert admin(service, three, "routes").json()["canary"] is None


@pytest.mark.nightly
def test_a_shadow_answers_unseen_and_is_compared(start: Start, bundles: Path) -> None:
    publish(bundles, contents("twin"))
    service = start()
    assert admin(service, bundles, "routes", {"shadow": {"version": "twin", "share": 1.0}}).status_code == 200
    for _ in range(10):
        assert ask(service, history=[101, 102])["version"] == "v1"
    until(
        lambda: metric(service, 'turret_shadow_answers_total{outcome="answered"}') == 10,
        "the shadow has answered",
    )
    assert metric(service, "turret_shadow_overlap ") == 1.0
