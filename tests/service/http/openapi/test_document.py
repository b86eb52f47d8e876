"""The document of the calls: what it says."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.described_shop import publish_described
from turret.data.features import Feature
from turret.service.http.app import create_admin_app, create_app
from turret.service.http.openapi.document import whole
from turret.service.http.routes.responses import IndexChoiceAnswer, VersionAnswer
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.manifest import IndexChoice, Manifest
from turret.tower.format.pointer import point

SCOPES = {
    "POST /v1/recommend": "read",
    "POST /v1/recommend/batch": "read",
    "GET /v1/items": "read",
    "GET /v1/fields": "read",
    "GET /v1/map": "read",
    "GET /v1/map/points": "read",
    "GET /v1/map/colours": "read",
    "GET /v1/map/items": "read",
    "GET /v1/items/{item_id}/similar": "read",
    "GET /v1/items/{item_id}": "read",
    "PUT /v1/items/{item_id}": "write",
    "DELETE /v1/items/{item_id}": "write",
    "POST /v1/events": "write",
    "GET /v1/random-user": "write",
    "GET /v1/users/{user_id}": "write",
    "DELETE /v1/users/{user_id}": "write",
    "GET /v1/version": "read",
    "GET /v1/versions": "read",
    "GET /v1/activations": "read",
    "POST /admin/activate": "admin",
    "POST /admin/rollback": "admin",
    "GET /admin/routes": "admin",
    "POST /admin/routes": "admin",
    "POST /admin/comparison": "admin",
    "GET /admin/comparison": "admin",
    "DELETE /admin/comparison": "admin",
    "POST /admin/comparison/recommend": "admin",
    "GET /admin/comparison/overlap": "admin",
    "GET /admin/comparison/catalog": "admin",
    "GET /livez": None,
    "GET /readyz": None,
    "GET /metrics": None,
    "GET /metrics/recent": "read",
}


def calls(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            yield f"{method.upper()} {path}", call


def test_every_call_says_which_key_it_needs() -> None:
    found = {name: call.get("security") for name, call in calls(whole())}
    assert found == {name: [{"key": [scope]}] if scope else None for name, scope in SCOPES.items()}


def test_every_call_says_how_it_is_refused() -> None:
    for name, call in calls(whole()):
        statuses = set(call["responses"])
        assert statuses >= {"200", "429", "503", "4XX", "5XX"}, name
        assert (statuses >= {"401", "403"}) == (SCOPES[name] is not None), name
        assert (statuses >= {"400", "413", "415"}) == ("requestBody" in call), name
        assert ("422" in statuses) == ("requestBody" in call or "parameters" in call), name
        for status in statuses & {"429", "503"}:
            assert call["responses"][status]["headers"]["Retry-After"]["required"] is True
        for status in statuses - {"200"}:
            schema = call["responses"][status]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}


def test_nothing_but_what_is_described_may_be_in_a_body() -> None:
    schemas = whole()["components"]["schemas"]
    bodies = [name for name in schemas if name.endswith(("Request", "Body"))]
    assert len(bodies) == 10
    assert all(schemas[name]["additionalProperties"] is False for name in bodies)


def test_a_version_is_described_with_all_that_its_manifest_has() -> None:
    assert set(VersionAnswer.model_fields) == set(Manifest.model_fields) - {"files"} | {"since"}
    assert set(IndexChoiceAnswer.model_fields) <= set(IndexChoice.model_fields)


def test_every_reference_leads_somewhere_and_no_schema_is_left_over(fresh_client: TestClient) -> None:
    for document in (whole(), fresh_client.get("/openapi.json").json()):
        references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
        assert references == set(document["components"]["schemas"])


def test_a_service_describes_what_it_answers_itself(settings: Settings) -> None:
    apart = settings.model_copy(update={"admin_port": 0, "page": False})
    app = create_app(apart)
    with TestClient(app) as client, TestClient(create_admin_app(app)) as admin:
        public, other = (
            {name for name, _ in calls(one.get("/openapi.json").json())} for one in (client, admin)
        )
    assert public | other == set(SCOPES)
    assert all("/admin" in name for name in other)
    assert not public & other


def test_with_the_page_the_admin_port_describes_the_calls_of_both(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"admin_port": 0}))
    with TestClient(app), TestClient(create_admin_app(app)) as admin:
        assert {name for name, _ in calls(admin.get("/openapi.json").json())} == set(SCOPES)


def test_an_open_service_asks_for_no_key_and_a_closed_one_does(
    fresh_client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.service.auth.keyring.CHECK_SECONDS", 0.0)

    def secured() -> set[str]:
        return {name for name, call in calls(fresh_client.get("/openapi.json").json()) if "security" in call}

    assert secured() == {name for name, scope in SCOPES.items() if scope == "admin"}
    add_key(settings.keys, record("shop", new_key("shop"), ("read",)))
    assert secured() == {name for name, scope in SCOPES.items() if scope}


def test_a_closed_service_tells_what_its_version_knows_to_those_who_may_read(
    settings: Settings, make_contents: Callable[..., BundleContents], user_features: tuple[Feature, ...]
) -> None:
    """The bounds of a feature are its mean and deviation over all users."""
    keys = {scope: new_key(scope) for scope in ("read", "write")}
    for scope, key in keys.items():
        add_key(settings.keys, record(scope, key, (scope,)))
    publish(settings.bundles, make_contents("v2", features=user_features))
    point(settings.bundles, "v2")
    with TestClient(create_app(settings)) as client:

        def tells(key: str | None) -> bool:
            header = {"Authorization": f"Bearer {key}"} if key else {}
            schemas = client.get("/openapi.json", headers=header).json()["components"]["schemas"]
            return "properties" in schemas["UserFeatures"]

        assert [tells(key) for key in (None, keys["write"], keys["read"], None)] == [
            False,
            False,
            True,
            False,
        ]
        assert client.get("/openapi.json", headers={"Authorization": "Bearer no"}).status_code == 401
        assert "country" not in client.get("/docs").text


@pytest.fixture
def described(tmp_path: Path, settings: Settings) -> Iterator[TestClient]:
    publish_described(tmp_path / "described")
    with TestClient(create_app(settings.model_copy(update={"bundles": tmp_path / "described"}))) as client:
        yield client


def test_it_names_what_the_live_version_knows(described: TestClient) -> None:
    schemas = described.get("/openapi.json").json()["components"]["schemas"]
    assert set(schemas["UserFeatures"]["properties"]) == {"country", "age", "likes"}
    assert set(schemas["ItemFeatures"]["properties"]) == {*(f"n{n}" for n in range(8)), "kind", "tags"}
    fields = {"title", "genres", "year", "sizes", "new", "country", "anything", "nothing"}
    assert set(schemas["Filter"]["properties"]) == fields | {"all", "any", "not"}
    assert set(schemas["Caps"]["properties"]) == fields
    assert schemas["Filter"]["additionalProperties"] is False
    assert "gte" not in schemas["Filter"]["properties"]["new"]["properties"]
    assert set(schemas["Filter"]["properties"]["anything"]["properties"]) == {"not_null"}


def test_it_follows_an_activation(
    fresh_client: TestClient,
    settings: Settings,
    admin: dict[str, str],
    make_contents: Callable[..., BundleContents],
    user_features: Any,
) -> None:
    def features() -> Any:
        schemas = fresh_client.get("/openapi.json").json()["components"]["schemas"]
        return schemas["UserFeatures"]["properties"]

    assert features() == {}
    publish(settings.bundles, make_contents("v2", features=user_features))
    assert fresh_client.post(
        "/admin/activate", json={"version": "v2", "force": True}, headers=admin
    ).is_success
    assert set(features()) == {"country", "age", "likes"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/recommend", "POST"),
        ("TRACE", "/v1/users/7", "DELETE, GET"),
        ("POST", "/v1/items/101", "DELETE, GET, PUT"),
        ("POST", "/v1/items/101/similar", "GET"),
        ("PUT", "/v1/items/101/similar", "GET"),
        ("DELETE", "/v1/items/101/similar", "GET"),
        ("PUT", "/admin/routes", "GET, POST"),
        ("DELETE", "/docs", "GET, HEAD"),
    ],
)
def test_another_method_is_told_all_that_there_are(
    fresh_client: TestClient, admin: dict[str, str], method: str, path: str, allowed: str
) -> None:
    answer = fresh_client.request(method, path, headers=admin)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == allowed
    assert answer.json()["error"]["field"] == "method"


def test_there_is_a_page_to_read(fresh_client: TestClient) -> None:
    assert fresh_client.get("/docs").status_code == 200
