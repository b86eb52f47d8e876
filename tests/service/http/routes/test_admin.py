from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fastapi.testclient import TestClient

from tests.support.bundle_damage import rewrite
from turret.service.http.app import create_admin_app, create_app
from turret.service.models.activation_state import activation_lock
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.pointer import current

Make = Callable[..., BundleContents]


def failing(tower: bytes) -> bytes:
    """Let a tower sum over an axis that its history doesn't have."""
    model = onnx.load_from_string(tower)
    axis = next(tensor for tensor in model.graph.initializer if tensor.name == "axis1")
    axis.CopyFrom(onnx.numpy_helper.from_array(np.array([7], np.int64), "axis1"))
    serialised: bytes = model.SerializeToString()
    return serialised


@pytest.fixture
def two(bundles: Path, make_contents: Make) -> Path:
    publish(bundles, make_contents("v2", ids=range(200, 230), seed=1))
    return bundles


def activate(client: TestClient, admin: dict[str, str], version: Any) -> Any:
    return client.post("/admin/activate", json={"version": version}, headers=admin)


def test_another_version_answers_after_its_activation(
    fresh_client: TestClient, admin: dict[str, str], two: Path
) -> None:
    answer = activate(fresh_client, admin, "v2")
    assert (answer.status_code, answer.json()) == (200, {"version": "v2", "previous": "v1"})
    found = fresh_client.post("/v1/recommend", json={"history": [201]}).json()
    assert found["version"] == "v2"
    assert all(200 <= item["id"] < 230 for item in found["items"])
    assert current(two) == "v2"
    assert 'turret_live_version{version="v2"} 1.0' in fresh_client.get("/metrics").text
    assert fresh_client.get("/readyz").json()["version"] == "v2"


def test_a_damaged_bundle_is_refused_and_the_old_one_stays(
    fresh_client: TestClient, admin: dict[str, str], two: Path
) -> None:
    path = two / "v2" / "index.faiss"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4])
    answer = activate(fresh_client, admin, "v2")
    assert answer.status_code == 409
    assert "index.faiss" in answer.json()["error"]["message"]
    assert fresh_client.post("/v1/recommend", json={}).json()["version"] == current(two) == "v1"
    assert 'turret_activations_total{outcome="refused"} 1.0' in fresh_client.get("/metrics").text


def test_a_tower_that_fails_when_it_is_run_is_refused(
    fresh_client: TestClient, admin: dict[str, str], two: Path, make_contents: Make
) -> None:
    """A checksum of the manifest's own making, and a tower that reads what it should but not in that form."""
    rewrite(two / "v2", "user_tower.onnx", failing((two / "v2" / "user_tower.onnx").read_bytes()))
    answer = activate(fresh_client, admin, "v2")
    assert answer.status_code == 409
    assert "user_tower.onnx" in answer.json()["error"]["message"]


def test_an_unknown_version_is_refused_with_the_known_ones(
    fresh_client: TestClient, admin: dict[str, str], two: Path
) -> None:
    answer = activate(fresh_client, admin, "v3")
    assert answer.status_code == 409
    assert "there are: v1, v2" in answer.json()["error"]["message"]


@pytest.mark.parametrize("version", ["../v1", "/etc", "", ".", "current", "v" * 65, 1, None, ["v1"], "v1\n"])
def test_what_is_no_name_of_a_version_is_refused(
    fresh_client: TestClient, admin: dict[str, str], version: object
) -> None:
    answer = activate(fresh_client, admin, version)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "version"


def test_a_rollback_makes_the_one_before_live(
    fresh_client: TestClient, admin: dict[str, str], two: Path
) -> None:
    assert fresh_client.post("/admin/rollback", headers=admin).status_code == 409
    activate(fresh_client, admin, "v2")
    activate(fresh_client, admin, "v2")
    assert fresh_client.post("/admin/rollback", headers=admin).json() == {"version": "v1", "previous": "v2"}
    assert current(two) == "v1"
    assert fresh_client.post("/admin/rollback", headers=admin).json() == {"version": "v2", "previous": "v1"}


def test_the_first_version_can_be_activated(settings: Settings, admin: dict[str, str], two: Path) -> None:
    (two / "current").unlink()
    client = TestClient(create_app(settings.model_copy(update={"wait": True})))
    refused = activate(client, admin, "v3")
    assert refused.status_code == 409
    assert refused.json()["error"]["message"].endswith("no version is live yet")
    assert client.post("/admin/rollback", headers=admin).status_code == 409
    assert activate(client, admin, "v2").json() == {"version": "v2", "previous": None}
    assert client.get("/readyz").json()["version"] == current(two) == "v2"


def test_a_rollback_works_though_the_newest_bundle_is_gone(
    fresh_client: TestClient, admin: dict[str, str], two: Path
) -> None:
    activate(fresh_client, admin, "v2")
    (two / "v2").rename(two / ".gone")
    assert fresh_client.post("/admin/rollback", headers=admin).status_code == 200


def test_an_activation_that_gets_no_turn_is_refused(
    settings: Settings, admin: dict[str, str], two: Path
) -> None:
    """As while one hangs in another process; nothing has changed then."""
    impatient = settings.model_copy(update={"activation_seconds": 0.05})
    with TestClient(create_app(impatient)) as client, activation_lock(two):
        answer = activate(client, admin, "v2")
        routes = client.post("/admin/routes", json={"canary": None}, headers=admin)
    for refused in (answer, routes):
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert "another activation" in refused.json()["error"]["message"]
    assert current(two) == "v1"


@pytest.mark.parametrize(
    "header", [None, "", "a-key-of-sixteen", "Bearer", "Bearer wrong", "bearer é", "Basic YTpi"]
)
@pytest.mark.parametrize("path", ["/admin/activate", "/admin/rollback"])
def test_without_the_key_nothing_is_done(
    fresh_client: TestClient, two: Path, path: str, header: str | None
) -> None:
    headers = {} if header is None else {b"Authorization": header.encode()}
    answer = fresh_client.post(path, json={"version": "v2"}, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["field"] == "Authorization"
    assert "TURRET_ADMIN_KEY" in answer.json()["error"]["message"]
    assert "a-key-of-sixteen" not in answer.text
    assert fresh_client.get("/v1/version").json()["version"] == "v1"


def test_with_an_admin_port_the_calls_are_only_there(settings: Settings, admin: dict[str, str]) -> None:
    app = create_app(settings.model_copy(update={"admin_port": 1}))
    with TestClient(app) as client:
        assert activate(client, admin, "v1").status_code == 404
        beside = TestClient(create_admin_app(app))
        assert activate(beside, admin, "v1").status_code == 200
        assert beside.post("/v1/recommend", json={}).status_code == 200


def test_without_the_page_the_admin_port_has_the_admin_calls_alone(
    settings: Settings, admin: dict[str, str]
) -> None:
    app = create_app(settings.model_copy(update={"admin_port": 1, "page": False}))
    with TestClient(app):
        beside = TestClient(create_admin_app(app))
        assert activate(beside, admin, "v1").status_code == 200
        assert beside.post("/v1/recommend", json={}).status_code == 404
