"""Access: the table of calls, its document and its page; scopes, rates and wrong keys."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from benchmarks.api_document import api_page
from tests.support.virtual_time import Clock
from turret.service.calls import CALLS as TABLE
from turret.service.calls import find
from turret.service.error_responses import write_error
from turret.service.http.access import Authentication
from turret.service.http.admission import Admission
from turret.service.http.app import create_app
from turret.service.http.edge import Edge
from turret.service.http.routes.probes import STATIC
from turret.service.keys.keys import Keyring, add_key, new_key, record
from turret.service.observing.metrics import Metrics
from turret.service.settings import Settings

DOCUMENT: dict[str, Any] = orjson.loads((STATIC / "openapi.json").read_bytes())

CALLS = {
    "read": "POST /v1/recommend, POST /v1/recommend/batch, POST /v1/search, POST /v1/popular,"
    "POST /v1/vectors, GET /v1/fields, GET /v1/map,"
    "GET /v1/map/points, GET /v1/map/colours, GET /v1/map/items, GET /v1/items, GET /v1/items/{item_id},"
    "GET /v1/items/{item_id}/similar, POST /v1/items/{item_id}/similar, GET /v1/rules, GET /v1/version,"
    "GET /v1/versions, GET /v1/activations",
    "write": "POST /v1/events, POST /v1/items, PUT /v1/items/{item_id}, PATCH /v1/items/{item_id},"
    "DELETE /v1/items/{item_id}, GET /v1/random-user, GET /v1/users/{user_id}, DELETE /v1/users/{user_id}",
    "rules": "PUT /v1/rules, POST /v1/rules/rollback",
    "admin": "POST /admin/activate, POST /admin/rollback, GET /admin/routes, POST /admin/routes,"
    "GET /admin/outcomes,"
    "POST /admin/comparison, GET /admin/comparison, DELETE /admin/comparison,"
    "POST /admin/comparison/recommend, GET /admin/comparison/overlap",
    None: "GET /livez, GET /readyz, GET /metrics",
}
SCOPES = {call.strip(): scope for scope, calls in CALLS.items() for call in calls.split(",")}


def calls(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            yield f"{method.upper()} {path}", call


# Other paths than `{0}`, by one character at its end, its beginning or between; the first one is the same.
ODD = (
    *("{0}", "{0}%0A", "{0}%0D", "{0}%00", "{0}%20", "{0}%09", "{0}%0B", "{0}%1C", "{0}%85", "{0}%C2%85"),
    *("{0}/", "{0}//", "{0}%2F", "{0}/.", "{0}/../x", "{0}/%2E%2E", "{0};x", "{0}%3Bx", "{0}%23", "{0}%3F"),
    *(
        "{0}%E2%80%A8",
        "{0}%E2%80%A9",
        "{0}%C2%A0",
        "{0}%E2%80%8B",
        "{0}\uff0f",
        "{upper}",
        "/%0A{0}",
        "/.{0}",
    ),
    *("/%2E{0}", "//x/..{0}", "{0}.", "{0}%5C", "{0}%0D%0A", "{0}%7F", "{0}.json"),
)
METHOD_SCOPES = dict.fromkeys(("GET", "HEAD"), "read") | dict.fromkeys(
    ("POST", "PUT", "PATCH", "DELETE"), "write"
)


# ---- The table


@pytest.mark.parametrize(
    ("lane", "calls"),
    [
        ("recommend", ["POST /v1/recommend", "GET /v1/items/7/similar", "POST /v1/items/7/similar"]),
        ("batch", ["POST /v1/recommend/batch"]),
        ("store", ["POST /v1/events", "GET /v1/users/7", "PUT /v1/items/7", "PATCH /v1/items/7"]),
        ("store", ["DELETE /v1/items/a/b", "PUT /v1/items/7/similar/"]),
        ("read", ["GET /v1/items/7", "GET /v1/versions", "GET /nowhere"]),
        ("probe", ["GET /livez", "GET /readyz", "HEAD /livez", "HEAD /readyz"]),
        ("open", ["GET /docs", "GET /page/app/main.js"]),
        ("operator", ["POST /admin/activate", "POST /admin/rollback", "POST /admin/nothing"]),
        ("rules", ["PUT /v1/rules", "POST /v1/rules/rollback"]),
        ("metrics", ["GET /metrics"]),
    ],
)
def test_writes_reads_recommendations_and_the_operator_have_lanes_of_their_own(
    lane: str, calls: list[str]
) -> None:
    assert {find(*call.split()).lane for call in calls} == {lane}


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
    assert find(method, path).scope == scope


@pytest.mark.parametrize("written", ODD)
def test_only_the_whole_path_of_a_call_is_that_call(written: str) -> None:
    """Another path is unknown, or has all of its odd characters in the id of an item or a user."""
    for method, name in TABLE:
        path = unquote(written.format(name, upper=name.upper()))
        found = find(method, path)
        if path == name:
            assert found.name == name
        elif found.parameters:
            assert found.name.format(**found.parameters) == path
            assert TABLE.get((method, found.name), found).scope == found.scope
        else:
            assert found.name == "unknown"
            assert found.scope == ("admin" if path.startswith("/admin/") else METHOD_SCOPES[method])


def test_a_lane_that_waits_for_operators_has_only_calls_that_always_need_their_key() -> None:
    """Neither clients without a key nor those with a weaker one take the places of a rollback."""
    lanes = Admission(answering, Settings(), Counter[str]().update).lanes
    assert lanes.keys() == {call.lane for call in TABLE.values()} - {"probe"}
    for lane, scope in (("operator", "admin"), ("rules", "rules")):
        assert {call.scope for call in TABLE.values() if call.lane == lane} == {scope}


def test_each_listed_call_has_a_route_and_each_route_is_listed(settings: Settings) -> None:
    app = create_app(settings)
    assert app.calls.keys() == TABLE.keys()
    assert {route.path for route in app.calls.values()} == {name for _, name in TABLE}


def test_a_path_that_a_client_made_up_is_no_label_of_the_metrics() -> None:
    assert {find("GET", path).name for path in ("/nowhere", "/admin/nothing", "/pages")} == {"unknown"}


# ---- The whole document


def test_every_call_says_and_needs_its_key() -> None:
    """The metrics are open unless the operator closes them, which the document cannot know."""
    found = {name: call.get("security") for name, call in calls(DOCUMENT)}
    assert found == {name: [{"key": [scope]}] if scope else None for name, scope in SCOPES.items()}
    for name, scope in SCOPES.items():
        assert find(*name.split()).scope == ("read" if name == "GET /metrics" else scope), name


def test_every_call_describes_its_answer() -> None:
    """Schemas of answers are written by hand: `make docs` adds a new call without one."""
    for name, call in calls(DOCUMENT):
        contents = call["responses"]["200"]["content"].values()
        assert contents, name
        assert all(content["schema"] for content in contents), name


def test_every_call_is_on_the_page_and_its_links_lead_somewhere() -> None:
    """One row each, which opens."""
    page = api_page(DOCUMENT)
    for name, call in calls(DOCUMENT):
        row = f"<details><summary><code>{name}</code> <span>{call['description'].splitlines()[0]}</span>"
        assert row in unescape(page)
    links = set(re.findall(r'href="#(\w+)"', page))
    assert links <= set(re.findall(r'id="(\w+)"', page))
    assert page.count("<section id=") == page.count("<details><summary>") >= len(SCOPES)


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


# ---- Keys


ADMIN_KEY = "the-admin-key-of-32-characters-x"
WRONG = {"Authorization": "Bearer nobody"}
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    await write_error(200, "nothing", None, "")(scope, receive, send)


class Keyed:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"

    def key(self, name: str, *scopes: str, rate: float | None = None) -> dict[str, str]:
        made = new_key(name)
        add_key(self.path, record(name, made, scopes, rate=rate))
        return {"Authorization": f"Bearer {made}"}

    def client(self, **given: Any) -> TestClient:
        layer = Authentication(answering, Keyring(self.path, ADMIN_KEY), **given)
        return TestClient(Edge(layer, Metrics()))


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_without_keys_only_the_admin_calls_need_one(keyed: Keyed) -> None:
    asked = [("/v1/recommend", {}), ("/v1/events", WRONG), ("/admin/routes", {}), ("/admin/routes", ADMIN)]
    statuses = [keyed.client().post(path, headers=headers).status_code for path, headers in asked]
    assert statuses == [200, 200, 401, 200]


@pytest.mark.fault(26)
def test_each_call_needs_a_key_of_its_scope(keyed: Keyed) -> None:
    keys = [keyed.key(scope, scope) for scope in ("read", "write", "admin")]
    client = keyed.client()
    paths = ("/v1/recommend", "/v1/events", "/admin/rollback")
    for place, headers in enumerate((*keys, WRONG)):
        found = [client.post(path, headers=headers).status_code for path in paths]
        assert found == ([401] * 3 if headers is WRONG else [200 if n == place else 403 for n in range(3)])


def test_the_refusals_say_what_would_work(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    client = keyed.client()
    missing = client.get("/v1/version")
    assert missing.headers["WWW-Authenticate"] == "Bearer"
    assert "key is missing" in missing.text
    assert "is wrong" in client.get("/v1/version", headers=WRONG).text
    assert (
        "requires the scope write, and the key shop has read" in client.post("/v1/events", headers=read).text
    )


def test_probes_are_open_and_metrics_if_the_operator_says_so(keyed: Keyed) -> None:
    read = keyed.key("shop", "read")
    assert [keyed.client().get(path).status_code for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
    assert [keyed.client().head(path).status_code for path in ("/livez", "/readyz")] == [200] * 2
    closed = keyed.client(metrics_open=False)
    assert closed.get("/metrics").status_code == 401
    assert closed.get("/metrics", headers=read).status_code == 200


@pytest.mark.parametrize("path", ["/%61dmin/activate", "/admin/activate/", "/admin/../admin/activate"])
def test_no_way_of_writing_the_path_goes_around_the_key(keyed: Keyed, path: str) -> None:
    assert keyed.client().post(path).status_code == 401


def test_a_path_that_is_nearly_one_of_a_stronger_key_answers_nobody(keyed: Keyed, settings: Settings) -> None:
    """The routes match no path that the check of keys reads in another way."""
    keys = [keyed.key(scope, scope) for scope in ("read", "write", "rules", "admin")]
    client = TestClient(create_app(settings.model_copy(update={"keys": keyed.path})))
    for written in (one for one in ODD[1:] if "/." not in one):  # which the client would resolve
        for method, name in (("PUT", "/v1/rules"), ("GET", "/metrics"), ("POST", "/v1/recommend/batch")):
            url = written.format(name, upper=name.upper())
            assert {client.request(method, url, headers=key).status_code for key in keys} <= {403, 404}


@pytest.mark.fault(36)
def test_a_body_of_who_has_no_key_is_not_read(keyed: Keyed, settings: Settings) -> None:
    keyed.key("shop", "read")
    app = create_app(settings.model_copy(update={"keys": keyed.path}))
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body is read")

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/recommend", "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 401


def test_a_burst_passes_and_then_the_rate(keyed: Keyed) -> None:
    """A pause fills it up to the burst only."""
    shop, clock = keyed.key("shop", "read", rate=3), Clock()
    client, begun = keyed.client(clock=clock), clock.now

    def passes(seconds: float) -> bool:
        clock.now = begun + seconds
        return client.get("/v1/version", headers=shop).status_code == 200

    assert [passes(0) for _ in range(4)] == [True, True, True, False]
    assert [passes(second) for second in (0.3, 0.34, 0.34)] == [False, True, False]
    assert sum(passes(1000) for _ in range(50)) == 3


def test_workers_share_the_rate_of_a_key(keyed: Keyed) -> None:
    rare, client = keyed.key("rare", "read", rate=0.08), keyed.client(share=4)
    answers = [client.get("/v1/version", headers=rare) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert 13 < int(answers[1].headers["Retry-After"]) <= 50, "the whole rate would be twelve seconds"
    assert "0.08 requests a second" in answers[1].text
