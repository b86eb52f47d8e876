"""A canary for some users, and a shadow that answers unseen."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.processes import activate, admin, metric, until
from tests.faults.versions import ask, damage
from tests.support.service_process import Start
from turret.tower.bundle.publish import BundleContents, publish

Make = Callable[..., BundleContents]


@pytest.mark.nightly
def test_a_canary_has_its_users_in_every_worker_and_after_a_restart(start: Start, three: Path) -> None:
    service = start(workers=2)
    answer = admin(service, three, "routes", {"canary": {"version": "v2", "share": 0.3}})
    assert answer.json() == {
        "live": "v1",
        "canary": {"version": "v2", "share": 0.3},
        "shadow": None,
    }
    users = range(200)
    first = {user: ask(service, user_id=user, k=1)["version"] for user in users}
    share = list(first.values()).count("v2") / len(users)
    assert 0.15 < share < 0.45
    assert {user: ask(service, user_id=user, k=1)["version"] for user in users} == first
    service.stop()
    service = start(workers=2)
    assert {user: ask(service, user_id=user, k=1)["version"] for user in users} == first
    assert admin(service, three, "routes", {"canary": {"version": "v2", "share": 0.6}}).status_code == 200
    more = {user: ask(service, user_id=user, k=1)["version"] for user in users}
    assert all(more[user] == "v2" for user in users if first[user] == "v2")
    assert activate(service, three, "v2").status_code == 200, "a canary is promoted by activating it"
    promoted = {"live": "v2", "canary": None, "shadow": None}
    for _ in range(4):  # answered by both workers
        assert admin(service, three, "routes").json() == promoted
    assert {ask(service, user_id=user, k=1)["version"] for user in users} == {"v2"}


def test_a_canary_that_does_not_pass_the_gate_is_refused(start: Start, three: Path) -> None:
    service = start(workers=2)
    damage(three, "v2")
    answer = admin(service, three, "routes", {"canary": {"version": "v2", "share": 0.3}})
    assert answer.status_code == 409
    assert "item_vectors.npy" in answer.json()["error"]["message"]
    assert admin(service, three, "routes").json()["canary"] is None


def test_a_shadow_answers_unseen_and_is_compared(start: Start, bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("twin"))
    service = start(workers=1)
    assert admin(service, bundles, "routes", {"shadow": {"version": "twin", "share": 1.0}}).status_code == 200
    for _ in range(10):
        assert ask(service, history=[101, 102])["version"] == "v1"
    until(lambda: metric(service, 'turret_shadow_answers_total{outcome="answered"}') == 10)
    assert metric(service, "turret_shadow_overlap ") == 1.0
