"""`/admin`, `/v1/version` and their like: which version answers, and how another one compares."""

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.service_app import ADMIN, activate, ids, post_events, recommended
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.service.versions.folder import activation_lock, without_folder
from turret.tower.bundle.publish import publish
from turret.tower.format.listing import current

Call = Callable[..., Any]


@pytest.fixture
def versions(bundles: Path) -> Path:
    """v1 has the items 100 to 159 and is live; v2 has those from 110 to 179."""
    publish(bundles, contents("v2", ids=range(110, 180), seed=1))
    return bundles


def rolled_back(client: TestClient, version: str) -> Any:
    return client.post("/admin/rollback", json={"version": version}, headers=ADMIN)


def message(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    words: str = answer.json()["error"]["message"]
    return words


# ---- Versions


def test_the_live_version_is_described(client: TestClient) -> None:
    answer = client.get("/v1/version").json()
    assert (answer["version"], answer["item_count"], answer["dimension"]) == ("v1", 60, 8)
    assert answer["scoring"] == {
        "kind": "cosine",
        "temperature": 0.5,
        "absolute": False,
        "item_bias": False,
        "pairs": 0,
    }
    assert answer["metrics"] == {"test": {"towers": {"ndcg@10": {"mean": 0.5}}}}
    assert answer["recall"] == [{"k": 10, "selectivity": 1.0, "recall": 1.0}]
    assert answer["index"] == {"kind": "flat", "is_exact": True}


def test_every_version_is_listed_with_its_error(fresh_client: TestClient, versions: Path) -> None:
    (versions / "broken").mkdir()
    answer = fresh_client.get("/v1/versions").json()
    assert answer["live"] == "v1"
    sound = {one["version"]: one["error"] is None for one in answer["versions"]}
    assert sound == {"broken": False, "v1": True, "v2": True}


def test_a_folder_that_vanished_is_no_fault_of_the_client(fresh_client: TestClient, bundles: Path) -> None:
    bundles.rename(bundles.with_name("elsewhere"))
    answer = fresh_client.get("/v1/versions")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    recommended(fresh_client, history=[101])


def test_activations_and_refusals_are_listed_newest_first(fresh_client: TestClient, versions: Path) -> None:
    assert activate(fresh_client, "v2").status_code == 200
    assert activate(fresh_client, "v3").status_code == 409
    listed = fresh_client.get("/v1/activations").json()["activations"]
    assert [(record["version"], record["outcome"], record["who"]) for record in listed] == [
        ("v3", "refused", "admin"),
        ("v2", "activated", "admin"),
        ("v1", "activated", "start"),
    ]


# ---- Activations


def test_another_version_answers_after_its_activation(fresh_client: TestClient, versions: Path) -> None:
    answer = activate(fresh_client, "v2")
    assert (answer.status_code, answer.json()) == (200, {"version": "v2", "previous": "v1"})
    found = recommended(fresh_client, history=[175])
    assert found["version"] == "v2"
    assert "unknown_items" not in found
    assert current(versions) == "v2"
    assert 'turret_live_version{version="v2"} 1.0' in fresh_client.get("/metrics").text
    assert fresh_client.get("/readyz").json()["version"] == "v2"


def test_another_model_that_was_never_evaluated_needs_force_or_a_comparison(
    fresh_client: TestClient, versions: Path
) -> None:
    for version, accepted in (("v3", "force"), ("v4", "compared")):
        publish(versions, replace(contents(version, metrics={}), model=version.encode()))
        words = message(activate(fresh_client, version), 409)
        assert f"version {version} was never evaluated" in words
        assert "with force" in words  # by which the page offers it
        assert activate(fresh_client, version, **{accepted: True}).status_code == 200
    assert fresh_client.get("/v1/activations").json()["activations"][1]["failed"] == ["metric"]


def test_a_folder_on_a_file_system_without_locks_is_refused_in_words(
    fresh_client: TestClient, versions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    words = message(activate(fresh_client, "v2"), 409)
    assert "can't be locked: No locks available; keep it on a local disk" in words
    assert str(versions.parent) not in words


@pytest.mark.fault(16)
def test_a_rollback_makes_the_one_before_live(fresh_client: TestClient, versions: Path) -> None:
    """Also where the bundle that it leaves is gone."""
    assert rolled_back(fresh_client, "v1").status_code == 409
    activate(fresh_client, "v2")
    activate(fresh_client, "v2")
    assert rolled_back(fresh_client, "v2").json() == {"version": "v1", "previous": "v2"}
    assert current(versions) == "v1"
    assert rolled_back(fresh_client, "v1").json() == {"version": "v2", "previous": "v1"}
    (versions / "v2").rename(versions / ".gone")
    assert rolled_back(fresh_client, "v2").status_code == 200


def test_a_rollback_that_a_proxy_repeats_undoes_nothing_more(
    fresh_client: TestClient, versions: Path
) -> None:
    """It names the version that it leaves; that of another version is refused."""
    assert fresh_client.post("/admin/rollback", json={}, headers=ADMIN).status_code == 422
    activate(fresh_client, "v2")
    for _ in range(3):
        assert rolled_back(fresh_client, "v2").json() == {"version": "v1", "previous": "v2"}
    assert fresh_client.get("/v1/version").json()["version"] == "v1"
    assert len(fresh_client.get("/v1/activations").json()["activations"]) == 3
    activate(fresh_client, "v2")
    activate(fresh_client, "v1")  # by its name, so no rollback has left v2
    assert "version v1 is live" in message(rolled_back(fresh_client, "v2"), 409)


def test_with_an_admin_port_the_calls_are_only_there(settings: Settings) -> None:
    """And those of the API beside them. The port is that of the socket, whatever a client writes."""
    app = create_app(settings.model_copy(update={"admin_port": 8001}))
    with TestClient(app, base_url="http://localhost:8000") as client:
        for headers in ({}, {"Host": "localhost:8001"}, {"X-Forwarded-Port": "8001"}):
            client.headers = headers
            assert "--admin-port" in message(activate(client, "v1"), 404)
        beside = TestClient(app, base_url="http://localhost:8001")
        assert activate(beside, "v1").status_code == 200
        assert beside.post("/v1/recommend", json={}).status_code == 200


# ---- Two versions side by side


@pytest.fixture
def call(fresh_client: TestClient, versions: Path) -> Call:
    """Call the comparison: a method, the rest of the path, and a body."""

    def ask(method: str, path: str = "", body: Any = None) -> Any:
        body = {} if method == "POST" and body is None else body
        return fresh_client.request(method, f"/admin/comparison{path}", json=body, headers=ADMIN)

    return ask


@pytest.fixture
def opened(call: Call) -> Call:
    assert call("POST", body={"version": "v2"}).status_code == 200
    return call


def test_a_version_is_opened_described_and_closed(call: Call) -> None:
    assert call("GET").json() == {"version": None, "live": "v1"}
    found = call("POST", body={"version": "v2"})
    assert found.status_code == 200
    assert (found.json()["version"], found.json()["live"]) == ("v2", "v1")
    assert 0 < found.json()["expires_seconds"] <= 1800
    assert call("GET").json()["opened"] == found.json()["opened"]
    assert call("GET", "?version=v3").json()["version"] is None
    assert call("DELETE", "?version=v3").json()["version"] == "v2"
    assert call("DELETE").json() == call("GET").json() == {"version": None, "live": "v1"}


def test_both_versions_answer_one_history(opened: Call, fresh_client: TestClient) -> None:
    body = {"history": [120, 130], "k": 5, "explain": True}
    found = opened("POST", "/recommend", body).json()
    assert found["live"]["items"] == recommended(fresh_client, **body)["items"]
    assert "cursor" not in found["live"]
    assert [found[side]["version"] for side in ("live", "other")] == ["v1", "v2"]
    assert len(found["other"]["explanation"]["items"]) == 5
    ranks = {move["id"]: (move["live_rank"], move["other_rank"]) for move in found["moves"]}
    for place, side in enumerate(("live", "other")):
        assert [ranks[item][place] for item in ids(found[side])] == [1, 2, 3, 4, 5]
    shared = [item for item, both in ranks.items() if None not in both]
    assert found["overlap"] == len(shared) / 5


def test_the_overlap_is_over_stored_users_or_recorded_queries(opened: Call, fresh_client: TestClient) -> None:
    golden = opened("GET", "/overlap").json()
    assert golden["source"] == "golden"
    assert golden["histories"] == sum(golden["overlap_histogram"]) > 0
    post_events(fresh_client, *({"event_id": n, "user_id": n, "item_id": 120 + n} for n in range(30)))
    users = opened("GET", "/overlap?users=20&k=5").json()
    assert (users["source"], users["histories"]) == ("users", 20)


def test_a_version_that_can_not_be_opened_is_refused_and_the_open_one_stays(opened: Call) -> None:
    assert "there are: v1, v2" in message(opened("POST", body={"version": "v9"}), 404)
    assert "v1 is live" in message(opened("POST", body={"version": "v1"}), 409)
    assert opened("GET").json()["version"] == "v2"


def test_a_version_that_becomes_live_ends_the_comparison(opened: Call, fresh_client: TestClient) -> None:
    assert activate(fresh_client, "v2", force=True).status_code == 200
    assert opened("GET").json() == {"version": None, "live": "v2"}
    assert "POST /admin/comparison" in message(opened("GET", "/overlap"), 409)
    assert opened("GET", "/overlap?version=v1").status_code == 200


# ---- Where the bundles lie on the machine is told to nobody


@pytest.mark.parametrize(
    ("folder", "words", "shown"),
    [
        ("/srv/models", "/srv/models/v2/golden.json is missing", "v2/golden.json is missing"),
        ("/srv/models", "/srv/models2 and /srv/models.", "/srv/models2 and the folder of bundles."),
        ("b", "no version 'x' in b; there are v/b", "no version 'x' in b; there are v/b"),  # words
        ("b", "b/v1/golden.json is missing", "v1/golden.json is missing"),
        ("b", "no golden.json in tub/v1", "no golden.json in tub/v1"),
    ],
)
def test_files_are_named_as_they_lie_in_the_folder(folder: str, words: str, shown: str) -> None:
    assert without_folder(words, Path(folder)) == shown


def answers(client: TestClient, version: str) -> list[str]:
    """The answers to requests for a version, in every way to ask."""
    canary = {"canary": {"version": version, "share": 0.5}}
    calls = [("activate", {"version": version}), ("routes", canary), ("comparison", {"version": version})]
    return [client.post(f"/admin/{path}", json=body, headers=ADMIN).text for path, body in calls]


@pytest.mark.fault(51)
def test_no_fault_of_the_folder_tells_where_it_lies(fresh_client: TestClient, bundles: Path) -> None:
    def link_to_key(pointer: Path) -> None:
        pointer.symlink_to(pointer.with_name("admin.key"))

    pointer = bundles / "current"
    told = answers(fresh_client, "missing")
    with activation_lock(bundles):
        fresh_client.app.state.components.settings.__dict__["activation_seconds"] = 0.01  # type: ignore[attr-defined]
        told += answers(fresh_client, "v1")
    pointer.unlink()
    for make, remove in ((Path.mkdir, Path.rmdir), (link_to_key, Path.unlink), (os.mkfifo, Path.unlink)):
        make(pointer)
        told.append(fresh_client.get("/v1/versions").text)
        remove(pointer)
    moved = bundles.rename(bundles.parent / "moved")
    told += [fresh_client.get("/v1/versions").text, rolled_back(fresh_client, "v1").text]
    moved.rename(bundles)
    assert not [words for words in told if str(bundles.parent) in words]
