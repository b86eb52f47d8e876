from collections.abc import Callable
from pathlib import Path

from fastapi.testclient import TestClient

from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish


def test_the_live_version_is_described(fresh_client: TestClient) -> None:
    answer = fresh_client.get("/v1/version").json()
    assert (answer["version"], answer["item_count"], answer["dimension"]) == ("v1", 60, 8)
    assert answer["scoring"] == {"kind": "cosine", "temperature": 0.5, "absolute": False, "item_bias": False}
    assert answer["metrics"] == {"recall@10": 0.5}
    assert answer["recall"] == [{"k": 10, "selectivity": 1.0, "recall": 1.0}]
    assert answer["index"] == {"kind": "flat", "is_exact": True}
    assert "files" not in answer


def test_every_version_is_listed(
    fresh_client: TestClient, bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    publish(bundles, make_contents("v2", seed=1))
    (bundles / "broken").mkdir()
    answer = fresh_client.get("/v1/versions").json()
    assert answer["live"] == "v1"
    assert {one["version"]: one["error"] is None for one in answer["versions"]} == {
        "broken": False,
        "v1": True,
        "v2": True,
    }


def test_a_folder_that_vanished_is_no_fault_of_the_client(fresh_client: TestClient, bundles: Path) -> None:
    bundles.rename(bundles.with_name("elsewhere"))
    answer = fresh_client.get("/v1/versions")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    assert fresh_client.post("/v1/recommend", json={"history": [101]}).status_code == 200


def test_activations_and_refusals_are_listed_newest_first(
    fresh_client: TestClient,
    admin: dict[str, str],
    settings: Settings,
    make_contents: Callable[..., BundleContents],
) -> None:
    publish(settings.bundles, make_contents("v2"))
    assert fresh_client.post("/admin/activate", json={"version": "v2"}, headers=admin).status_code == 200
    assert fresh_client.post("/admin/activate", json={"version": "v3"}, headers=admin).status_code == 409
    listed = fresh_client.get("/v1/activations").json()["activations"]
    shown = [(record["version"], record["outcome"], record["who"]) for record in listed]
    assert shown == [
        ("v3", "refused", "admin"),
        ("v2", "activated", "admin"),
        ("v1", "activated", "start"),
    ]
