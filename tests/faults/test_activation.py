"""Versions that are activated, rolled back and refused while others ask."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.service_calls import (
    activate,
    admin,
    answered_versions,
    damage,
)
from tests.support.service_process import Start, plain_client
from tests.support.until import until
from turret.tower.format.listing import current


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
    assert [line["number"] for line in lines] == list(range(1, 14))
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
        assert answer.status_code == 422
        assert answer.json()["error"]["field"] == "min_version"
    assert current(three) == "v1"
    assert list(three.glob(".gate/*")) == []
