"""`/admin/comparison`: two versions side by side, from any worker."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from turret.service.comparison import opening
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish

Make = Callable[..., BundleContents]
Call = Callable[..., Any]
CALLS = [("POST", "/recommend"), ("GET", "/overlap"), ("GET", "/catalog")]


@pytest.fixture
def two(bundles: Path, make_contents: Make) -> Path:
    """Version v2 knows the items 110 to 179, v1 those from 100 to 159."""
    publish(bundles, make_contents("v2", ids=range(110, 180), seed=1))
    return bundles


@pytest.fixture
def call(fresh_client: TestClient, admin: dict[str, str], two: Path) -> Call:
    """Call the comparison: a method, the rest of the path, and a body."""

    def ask(method: str, path: str = "", body: Any = None) -> Any:
        if method == "POST" and body is None:
            body = {}
        return fresh_client.request(method, f"/admin/comparison{path}", json=body, headers=admin)

    return ask


@pytest.fixture
def opened(call: Call) -> Call:
    assert call("POST", body={"version": "v2"}).status_code == 200
    return call


def message(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    words: str = answer.json()["error"]["message"]
    return words


def test_a_version_is_opened_described_and_closed(call: Call) -> None:
    assert call("GET").json() == {"version": None, "live": "v1"}
    found = call("POST", body={"version": "v2"})
    assert found.status_code == 200
    assert {name: found.json()[name] for name in ("version", "live")} == {"version": "v2", "live": "v1"}
    assert 299 < found.json()["expires_seconds"] <= 300
    assert call("GET").json()["opened"] == found.json()["opened"]
    assert call("GET", "?version=v3").json()["version"] is None
    assert call("DELETE", "?version=v3").json()["version"] == "v2"
    assert call("DELETE").json() == call("GET").json() == {"version": None, "live": "v1"}


def test_both_versions_answer_one_history(opened: Call, fresh_client: TestClient) -> None:
    body = {"history": [120, 130], "k": 5, "explain": True}
    found = opened("POST", "/recommend", body).json()
    live = fresh_client.post("/v1/recommend", json=body).json()
    assert found["live"]["items"] == live["items"]
    assert "cursor" not in found["live"]
    assert [found[side]["version"] for side in ("live", "other")] == ["v1", "v2"]
    assert len(found["other"]["explanation"]["items"]) == 5
    ranks = {move["id"]: (move["live_rank"], move["other_rank"]) for move in found["moves"]}
    for place, side in enumerate(("live", "other")):
        ids = [item["id"] for item in found[side]["items"]]
        assert [ranks[item][place] for item in ids] == [1, 2, 3, 4, 5]
    shared = [item for item, both in ranks.items() if None not in both]
    assert found["overlap"] == len(shared) / 5


def test_withdrawn_items_are_in_neither_answer(opened: Call, fresh_client: TestClient) -> None:
    """Also with the versions open already; an item of one version alone can be withdrawn too."""
    body = {"history": [120]}
    before = opened("POST", "/recommend", body).json()
    best = {before[side]["items"][0]["id"] for side in ("live", "other")}
    for item in best:
        assert fresh_client.delete(f"/v1/items/{item}").status_code == 200
    after = opened("POST", "/recommend", body).json()
    assert not best & {move["id"] for move in after["moves"]}


def test_a_stored_user_is_answered_with_the_stored_history(opened: Call, fresh_client: TestClient) -> None:
    events = [{"event_id": str(item), "user_id": 7, "item_id": item} for item in (120, 130)]
    assert fresh_client.post("/v1/events", json={"events": events}).status_code == 200
    stored = opened("POST", "/recommend", {"user_id": 7}).json()
    given = opened("POST", "/recommend", {"history": [120, 130]}).json()
    assert stored == given


def test_the_overlap_is_over_stored_users_or_recorded_queries(opened: Call, fresh_client: TestClient) -> None:
    golden = opened("GET", "/overlap").json()
    assert golden["source"] == "golden"
    assert golden["histories"] == sum(golden["overlap_histogram"]) > 0
    assert len(golden["overlap_histogram"]) == 10
    events = [{"event_id": str(user), "user_id": user, "item_id": 120 + user} for user in range(30)]
    assert fresh_client.post("/v1/events", json={"events": events}).status_code == 200
    users = opened("GET", "/overlap?users=20&k=5").json()
    assert (users["source"], users["histories"]) == ("users", 20)
    assert 0 <= users["overlap_mean"] <= 1
    assert 0 <= users["changed_first"] <= 1


def test_the_catalogs_are_compared(opened: Call) -> None:
    found = opened("GET", "/catalog").json()
    assert [found[name] for name in ("added", "removed", "kept")] == [20, 10, 50]
    assert len(found["added_examples"]) == len(found["removed_examples"]) == 10
    assert all(160 <= item["id"] < 180 for item in found["added_examples"])


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_version_in_the_address_is_opened(call: Call, method: str, path: str) -> None:
    """As by a worker or a replica that doesn't know the comparison."""
    assert call(method, path).status_code == 409
    assert call(method, f"{path}?version=v2").status_code == 200
    assert call(method, path).status_code == 200
    assert call("GET").json()["version"] == "v2"


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_without_a_version_a_call_says_how_to_open_one(call: Call, method: str, path: str) -> None:
    assert "POST /admin/comparison" in message(call(method, path), 409)


def test_an_unknown_version_is_refused_and_the_open_one_stays(opened: Call) -> None:
    assert "there are: v1, v2" in message(opened("POST", body={"version": "v9"}), 404)
    assert opened("GET").json()["version"] == "v2"


def test_the_live_version_is_not_compared_with_itself(call: Call) -> None:
    assert "v1 is live" in message(call("POST", body={"version": "v1"}), 409)


def test_a_version_that_becomes_live_ends_the_comparison(
    opened: Call, fresh_client: TestClient, admin: dict[str, str]
) -> None:
    body = {"version": "v2", "force": True}
    assert fresh_client.post("/admin/activate", json=body, headers=admin).status_code == 200
    assert opened("GET").json() == {"version": None, "live": "v2"}
    assert "v2 is live" in message(opened("GET", "/catalog"), 409)
    assert opened("GET", "/catalog?version=v1").status_code == 200


def test_a_version_beyond_the_memory_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "available_bytes", lambda: 1000)
    assert "are left; give the service more memory" in message(call("POST", body={"version": "v2"}), 409)
    assert call("GET").json()["version"] is None


def test_a_damaged_version_is_refused(call: Call, two: Path) -> None:
    path = two / "v2" / "index.faiss"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4])
    words = message(call("POST", body={"version": "v2"}), 409)
    assert "index.faiss" in words
    assert str(two.parent) not in words


def test_files_that_vanish_end_the_comparison_with_a_sentence(opened: Call, two: Path) -> None:
    shutil.rmtree(two / "v2")
    words = message(opened("GET", "/catalog"), 409)
    assert "changed or are gone" in words
    assert str(two.parent) not in words
    assert opened("GET").json()["version"] is None
    assert "there are: v1" in message(opened("GET", "/catalog?version=v2"), 404)


def test_features_that_one_version_reads_are_left_to_it(
    call: Call, two: Path, make_contents: Make, user_features: Any
) -> None:
    publish(two, make_contents("v3", features=user_features))
    body = {"history": [120], "features": {"country": "nl"}}
    assert call("POST", "/recommend?version=v3", body).status_code == 200
    body["features"] = {"shoe": 1}
    assert message(call("POST", "/recommend", body), 422).startswith("version v1: ")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("", {}, "version"),
        ("", {"version": "../v1"}, "version"),
        ("", {"version": "v2", "force": True}, "force"),
        ("/recommend", {"cursor": "x"}, "cursor"),
        ("/recommend", {"min_version": "v1"}, "min_version"),
        ("/recommend", {"shoe": 1}, "shoe"),
        ("/recommend?version=.", {}, "version"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(call: Call, path: str, body: Any, field: str) -> None:
    answer = call("POST", path, body)
    assert message(answer, 422)
    assert answer.json()["error"]["field"] == field


@pytest.mark.parametrize("query", ["users=0", "users=1001", "users=x", "k=0", "k=1001", "version=current"])
def test_a_parameter_that_does_not_fit_is_refused(call: Call, query: str) -> None:
    answer = call("GET", f"/overlap?{query}")
    assert message(answer, 422)
    assert answer.json()["error"]["field"] == query.partition("=")[0]


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", ""), *CALLS])
def test_without_the_key_nothing_is_told(fresh_client: TestClient, method: str, path: str) -> None:
    assert fresh_client.request(method, f"/admin/comparison{path}").status_code == 401


def test_a_service_without_a_version_says_so(settings: Settings, admin: dict[str, str], two: Path) -> None:
    (two / "current").unlink()
    client = TestClient(create_app(settings.model_copy(update={"wait": True})))
    assert client.get("/admin/comparison", headers=admin).json() == {"version": None, "live": None}
    answer = client.post("/admin/comparison", json={"version": "v2"}, headers=admin)
    assert "no version is live yet" in message(answer, 503)
