"""The table of calls, and their document and its page: scopes, lanes, names, and what they say."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from benchmarks.api_document import api_page
from turret.service.calls import call_of
from turret.service.http.routes.probes import STATIC

DOCUMENT: dict[str, Any] = orjson.loads((STATIC / "openapi.json").read_bytes())

CALLS = {
    "read": "POST /v1/recommend, POST /v1/recommend/batch, POST /v1/search, GET /v1/fields, GET /v1/map,"
    "GET /v1/map/points, GET /v1/map/colours, GET /v1/map/items, GET /v1/items, GET /v1/items/{item_id},"
    "GET /v1/items/{item_id}/similar, POST /v1/items/{item_id}/similar, GET /v1/rules, GET /v1/version,"
    "GET /v1/versions, GET /v1/activations",
    "write": "POST /v1/events, POST /v1/items, PUT /v1/items/{item_id}, PATCH /v1/items/{item_id},"
    "DELETE /v1/items/{item_id}, GET /v1/random-user, GET /v1/users/{user_id}, DELETE /v1/users/{user_id}",
    "rules": "PUT /v1/rules, POST /v1/rules/rollback",
    "admin": "POST /admin/activate, POST /admin/rollback, GET /admin/routes, POST /admin/routes,"
    "POST /admin/comparison, GET /admin/comparison, DELETE /admin/comparison,"
    "POST /admin/comparison/recommend, GET /admin/comparison/overlap",
    None: "GET /livez, GET /readyz, GET /metrics",
}
SCOPES = {call.strip(): scope for scope, calls in CALLS.items() for call in calls.split(",")}


def calls(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            yield f"{method.upper()} {path}", call


# ---- The table


@pytest.mark.parametrize(
    ("lane", "calls"),
    [
        ("recommend", ["POST /v1/recommend", "GET /v1/items/7/similar", "POST /v1/items/7/similar"]),
        ("batch", ["POST /v1/recommend/batch"]),
        ("store", ["POST /v1/events", "GET /v1/users/7", "PUT /v1/items/7", "PATCH /v1/items/7"]),
        ("store", ["DELETE /v1/items/a/b", "DELETE /v1/items/7/similar"]),
        ("read", ["GET /v1/items/7", "GET /v1/versions", "GET /nowhere"]),
        ("probe", ["GET /livez", "GET /readyz"]),
        ("open", ["GET /docs", "GET /page/app/main.js"]),
        ("operator", ["GET /metrics", "POST /admin/activate", "POST /admin/nothing"]),
    ],
)
def test_writes_reads_recommendations_and_the_operator_have_lanes_of_their_own(
    lane: str, calls: list[str]
) -> None:
    assert {call_of(*call.split()).lane for call in calls} == {lane}


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/admin", "admin"),
        ("GET", "/admin/nothing", "admin"),
        ("GET", "/docs", None),
        ("POST", "/v1/something/new", "write"),
        ("GET", "/v1/something/new", "read"),
        ("GET", "/v1/users/u/history", "write"),
        *(("GET", path, "read") for path in ("/livez/", "//livez", "/v1/../livez", "/LIVEZ", "/docs/x")),
    ],
)
def test_a_path_without_a_rule_is_closed(method: str, path: str, scope: str | None) -> None:
    """Also one that only looks like an open one; stored data of users is not for keys that read."""
    assert call_of(method, path).scope == scope


def test_a_path_that_a_client_made_up_is_no_label_of_the_metrics() -> None:
    assert {call_of("GET", path).name for path in ("/nowhere", "/admin/nothing", "/pages")} == {"unknown"}


# ---- The whole document


def test_every_call_says_and_needs_its_key() -> None:
    """The metrics are open unless the operator closes them, which the document cannot know."""
    found = {name: call.get("security") for name, call in calls(DOCUMENT)}
    assert found == {name: [{"key": [scope]}] if scope else None for name, scope in SCOPES.items()}
    for name, scope in SCOPES.items():
        assert call_of(*name.split()).scope == ("read" if name == "GET /metrics" else scope), name


def test_every_call_describes_its_answer() -> None:
    """Schemas of answers are written by hand: `make docs` adds a new call without one."""
    for name, call in calls(DOCUMENT):
        (content,) = call["responses"]["200"]["content"].values()
        assert content["schema"], name


def test_every_call_is_on_the_page_and_its_links_lead_somewhere() -> None:
    page = api_page(DOCUMENT)
    for name, call in calls(DOCUMENT):
        assert f">{name}</a> {call['description'].splitlines()[0]}" in unescape(page)
    links = set(re.findall(r'href="#(\w+)"', page))
    assert links <= set(re.findall(r'id="(\w+)"', page))
    assert len(links) >= len(SCOPES)


# ---- The files of a service


def test_a_service_answers_with_its_document(client: TestClient) -> None:
    answer = client.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.content == (STATIC / "openapi.json").read_bytes()
    assert client.head("/docs").status_code == 200


def test_the_page_loads_and_runs_nothing(client: TestClient) -> None:
    answer = client.get("/docs")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert not re.findall(r"<script|<link|src=|https?://", answer.text)
