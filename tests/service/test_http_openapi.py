"""The document of the calls: what it says, also of the live version, and to whom."""

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st

from tests.conftest import USER_FEATURES, contents
from tests.support.described_shop import publish_described
from tests.support.service_app import activate, client_of, serving
from turret.data.features import Feature
from turret.service.auth.access import needed_scope
from turret.service.http.app import create_admin_app, create_app
from turret.service.http.openapi.docs_page import docs_page
from turret.service.http.openapi.document import whole
from turret.service.http.openapi.live_schemas import feature_schema, live_schemas
from turret.service.http.routes.responses import IndexChoiceAnswer, VersionAnswer
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record
from turret.service.settings import Settings
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.catalog.filters import compile_filter
from turret.tower.errors import EncodingError, FilterError
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
}


def calls(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            yield f"{method.upper()} {path}", call


def described_by(client: TestClient) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/openapi.json").json()
    return document


# ---- The whole document


def test_every_call_says_and_needs_its_key() -> None:
    """The metrics are open unless the operator closes them, which the document of a service says."""
    found = {name: call.get("security") for name, call in calls(whole())}
    assert found == {name: [{"key": [scope]}] if scope else None for name, scope in SCOPES.items()}
    for name, scope in SCOPES.items():
        assert needed_scope(*name.split()) == ("read" if name == "GET /metrics" else scope), name


def test_every_call_says_how_it_is_refused() -> None:
    for name, call in calls(whole()):
        statuses = set(call["responses"])
        assert statuses >= {"200", "422", "429", "503", "4XX", "5XX"}, name
        assert (statuses >= {"401", "403"}) == (SCOPES[name] is not None), name
        assert (statuses >= {"400", "413", "415"}) == ("requestBody" in call), name
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


def test_everything_is_on_the_page_to_read_and_its_links_lead_somewhere() -> None:
    document = whole()
    schema = document["components"]["schemas"]["Caps"]
    schema["properties"] = {"<script>alert(1)</script>": {"type": "integer"}}
    page = docs_page(document)
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            assert f"<code>{method.upper()} {path}</code>" in page
            assert f">{method.upper()} {path}</a> {call['description'].splitlines()[0]}" in unescape(page)
            assert all(f"<code>{status}</code>" in page for status in call["responses"])
    links = set(re.findall(r'href="#(\w+)"', page))
    assert links
    assert links <= set(re.findall(r'id="(\w+)"', page))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


# ---- The document of a service


@pytest.mark.parametrize("page", [True, False])
def test_a_service_describes_what_it_answers_itself(settings: Settings, page: bool) -> None:
    """With the page the port of the admin calls has the others too."""
    app = create_app(settings.model_copy(update={"admin_port": 0, "page": page}))
    with TestClient(app) as client, TestClient(create_admin_app(app)) as beside:
        public, admin = ({name for name, _ in calls(described_by(one))} for one in (client, beside))
    assert public == {name for name in SCOPES if "/admin" not in name}
    assert admin == (set(SCOPES) if page else set(SCOPES) - public)


def test_an_open_service_asks_for_no_key_and_a_closed_one_does(
    fresh_client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.service.auth.keyring.CHECK_SECONDS", 0.0)

    def secured() -> set[str]:
        return {name for name, call in calls(described_by(fresh_client)) if "security" in call}

    assert secured() == {name for name, scope in SCOPES.items() if scope == "admin"}
    add_key(settings.keys, record("shop", new_key("shop"), ("read",)))
    assert secured() == {name for name, scope in SCOPES.items() if scope}


def test_a_closed_service_tells_what_its_version_knows_to_those_who_may_read(settings: Settings) -> None:
    """The bounds of a feature are its mean and deviation over all users."""
    keys = {scope: new_key(scope) for scope in ("read", "write")}
    for scope, key in keys.items():
        add_key(settings.keys, record(scope, key, (scope,)))
    publish(settings.bundles, contents("v2", features=USER_FEATURES))
    point(settings.bundles, "v2")
    with client_of(settings) as client:

        def tells(key: str | None) -> bool:
            header = {"Authorization": f"Bearer {key}"} if key else {}
            schemas = client.get("/openapi.json", headers=header).json()["components"]["schemas"]
            return "properties" in schemas["UserFeatures"]

        told = [tells(key) for key in (None, keys["write"], keys["read"], None)]
        assert told == [False, False, True, False]
        assert client.get("/openapi.json", headers={"Authorization": "Bearer no"}).status_code == 401
        assert "country" not in client.get("/docs").text


def test_it_follows_an_activation(fresh_client: TestClient, settings: Settings) -> None:
    assert described_by(fresh_client)["components"]["schemas"]["UserFeatures"]["properties"] == {}
    publish_described(settings.bundles, "v2", seed=1)
    assert activate(fresh_client, "v2", force=True).is_success
    schemas = described_by(fresh_client)["components"]["schemas"]
    assert set(schemas["UserFeatures"]["properties"]) == {"country", "age", "likes"}
    assert set(schemas["ItemFeatures"]["properties"]) == {*(f"n{n}" for n in range(8)), "kind", "tags"}
    fields = {"title", "genres", "year", "sizes", "new", "country", "anything", "nothing"}
    assert set(schemas["Filter"]["properties"]) == fields | {"all", "any", "not"}
    assert set(schemas["Caps"]["properties"]) == fields
    assert schemas["Filter"]["additionalProperties"] is False
    assert "gte" not in schemas["Filter"]["properties"]["new"]["properties"]
    assert set(schemas["Filter"]["properties"]["anything"]["properties"]) == {"not_null"}


def test_the_page_is_of_the_live_version_and_loads_and_runs_nothing(described: Path) -> None:
    with serving(described) as client:
        answer = client.get("/docs")
        assert client.head("/docs").status_code == 200
        assert client.get("/redoc").status_code == 404
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<code>sizes</code>" in answer.text
    sections = re.findall(r'<section id="(\w+)"', answer.text)
    assert sections[0] == "post_v1_recommend", "probes are for machines"
    assert sections.index("get_v1_version") < sections.index("get_livez")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "frame-ancestors 'none'" in policy
    assert not re.findall(r"<script|<link|src=|https?://", answer.text)
    assert answer.headers["Referrer-Policy"] == "no-referrer"


# ---- What requests may name of a version: the service refuses what the schemas refuse


NUMBERS = st.integers(-5, 2000) | st.floats(-1e3, 1e3)
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["nl", ""])
FIELDS = st.sampled_from(
    ["title", "genres", "year", "sizes", "new", "country", "anything", "nothing", "unknown"]
)
OPERATORS = st.sampled_from(["equals", "any_of", "none_of", "not_null", "gte", "lt", "like"])
CONDITIONS = FIELDS.flatmap(
    lambda field: st.dictionaries(OPERATORS, SCALARS | st.lists(SCALARS, max_size=3), max_size=2).map(
        lambda asked: {field: asked}
    )
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda some: {"all": some})
        | st.lists(inner, max_size=2).map(lambda some: {"any": some})
        | inner.map(lambda one: {"not": one})
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("described")
    publish_described(root)
    return root


@pytest.fixture(scope="module")
def bundle(described: Path) -> Bundle:
    return Bundle.open(described / "v1")


@cache
def _validator(bundle: Bundle | None, name: str) -> Any:
    document = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": live_schemas(bundle)}}
    return jsonschema_rs.validator_for(document)


def fits(bundle: Bundle | None, name: str, value: Any) -> bool:
    return bool(_validator(bundle, name).is_valid(value))


def is_read(bundle: Bundle, wanted: Any) -> bool:
    try:
        compile_filter(wanted, bundle.catalog)
    except FilterError:
        return False
    return True


@given(FILTERS)
@example({"anything": {"any_of": []}})
@example({"anything": {"none_of": []}})
def test_a_filter_fits_if_it_is_read(bundle: Bundle, wanted: dict[str, Any]) -> None:
    assert fits(bundle, "Filter", wanted) == is_read(bundle, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        {"year": {"gte": 1970, "lt": 2000.5}},
        {"genres": {"any_of": ["noir"]}},
        {"sizes": {"none_of": [1, 2]}, "new": {"equals": True}},
        {"anything": {"not_null": True}},
        {"all": [{"any": [{"title": {"equals": "Item 1"}}, {"not": {"country": {"any_of": ["nl"]}}}]}]},
        {},
    ],
)
def test_a_filter_of_a_version_fits_where_no_version_is_known(bundle: Bundle, wanted: dict[str, Any]) -> None:
    assert is_read(bundle, wanted)
    assert fits(bundle, "Filter", wanted)
    assert fits(None, "Filter", wanted)


@given(
    st.dictionaries(
        st.sampled_from(["country", "age", "likes", "other"]),
        SCALARS | st.lists(SCALARS, max_size=3) | st.sampled_from([1e6, 1e8, 10_000_040.0, 10_000_041.0]),
    )
)
def test_features_fit_if_they_are_read(bundle: Bundle, features: dict[str, Any]) -> None:
    try:
        bundle.encoder.check([features])
    except EncodingError:
        assert not fits(bundle, "UserFeatures", features)
    else:
        assert fits(bundle, "UserFeatures", features)
        assert fits(None, "UserFeatures", features)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_the_bounds_of_a_number_are_the_last_that_are_read(mean: float, deviation: float) -> None:
    feature = Feature(name="age", kind="number", mean=mean, deviation=deviation)
    number, _ = feature_schema(feature)["anyOf"]
    for bound in (number["minimum"], number["maximum"]):
        encoded = feature.encode_one(bound)
        assert isinstance(encoded, float)
        assert 0.999999e6 < abs(encoded) <= 1e6


def test_ids_are_of_the_catalogs_kind_and_caps_of_known_fields(bundle: Bundle) -> None:
    assert all(fits(bundle, "ItemId", text) for text in ("7", "-7", "0"))
    assert not any(fits(bundle, "ItemId", text) for text in ("", "a", "07", "-0", "7.0", "x" * 513))
    assert fits(None, "ItemId", "a/b")
    assert fits(bundle, "Caps", {"genres": 2})
    assert not fits(bundle, "Caps", {"genres": 0})
    assert not fits(bundle, "Caps", {"unknown": 2})
    assert fits(None, "Caps", {"unknown": 2})
