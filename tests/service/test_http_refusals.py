"""Requests that do not fit: each is refused with its status, the field that is wrong and a sentence."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any
from urllib.parse import quote

import httpx2
import numpy as np
import orjson
import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.item_towers import with_item_tower
from tests.support.service_app import ADMIN, serving
from turret.data import errors
from turret.service.http.routes.probes import STATIC
from turret.tower.bundle.publish import publish

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose version has all that a request may ask for: an item tower and a map."""
    points = np.random.default_rng(0).integers(0, 65_536, (60, 2)).astype(np.uint16)
    root = tmp_path_factory.mktemp("whole")
    publish(root, with_item_tower(replace(contents(), item_map=points)))
    with serving(root) as client:
        yield client


# Paths with the field that is named.
PARAMETERS = [
    ("/v1/items?limit=0", "limit"),
    ("/v1/items?cursor=-1", "cursor"),
    (f"/v1/items?query={'a' * 201}", "query"),
    ("/v1/items?query=a&id=1", "id"),
    ("/v1/items?id=1&id=%FF", "id"),
    ("/v1/items?" + "&".join(["id=1"] * 101), "id"),
    *((f"/v1/items/101/similar?k={k}", "k") for k in ("0", "1001", "", "1e3", "10.5", "9" * 20, "%D9%A3")),
    ("/v1/items/10%fe", "id"),
    ("/v1/map/items", "point"),
    ("/v1/map/items?point=1&id=101", "point"),
    ("/v1/map/colours?field=%3Cb%3E", "field"),
    ("/admin/comparison/overlap?k=0", "k"),
    ("/admin/comparison/overlap?version=current", "version"),
    ("/v1/items/101/similar?k=5&k=6", "k"),
    ("/v1/items/101/similar?k=5&in_stock=true", "in_stock"),
]


EVENT: dict[str, Any] = {"event_id": 1, "user_id": 1, "item_id": 1}
# Values by the field of a recommendation that they do not fit; the field that is named, unless it is that.
VALUES: dict[str, list[Any]] = {
    "k": [0, -1, 1001, 10**30, True, "10", 10.5, None, "x" * 900_000],
    "user_id": [1.5, "", True, 2**63, "x" * 513, {"a": 1}],
    "history": ["101", {"0": 101}, [1] * 1001, [{"item": 1}] * 1001],
    "history_times": [[1], [], [1, 2]],
    "at": ["yesterday", True],
    "exclude": [[1] * 1001, None],
    "exclude_seen": ["yes", 1, [1], ["x" * 101], ["x"] * 101],
    "session_id": [1.5, "", "x" * 505],
    "features": [[], {"a": "x" * 2001}, {str(n): 1 for n in range(101)}],
    "filter": ["drama"],
    "explain": ["yes"],
    "min_score": ["high"],
    "diversity": [1.5],
    "cap": [{str(n): 1 for n in range(11)}],
    "cursor": ["", "x" * 301, "e30", "\u2713"],
    "min_version": [""],
    "K": [10],
}
POSTED: list[tuple[str, Any, str]] = [
    *(("/v1/recommend", {field: value}, field) for field, values in VALUES.items() for value in values),
    ("/v1/recommend", [], "body"),
    *(
        ("/v1/recommend", {"history": [item]}, "history.0")
        for item in (101.5, 1e30, [101], {"item": 1, "kin": 1})
    ),
    ("/v1/recommend", {"history": [101], "history_times": [1, 2]}, "history_times"),
    ("/v1/recommend", {"history": [101, 102], "history_times": [2, 1]}, "history_times"),
    *(
        ("/v1/recommend", {"history": [101], "history_times": [time]}, "history_times.0")
        for time in (None, "soon", 1_700_000_000_000)
    ),
    ("/v1/recommend", {"history": [101], "history_times": [9], "at": 8}, "at"),
    ("/v1/recommend", {"diversity": 0.5, "cursor": "v1~0~a~3~3f800000"}, "cursor"),
    *(("/v1/recommend/batch", {"requests": [{}] * count}, "requests") for count in (0, 101)),
    ("/v1/recommend/batch", {"requests": [{"k": 1}, {"k": 1, "filter": {"x": 1}}]}, "requests.1.filter.x"),
    ("/v1/recommend/batch", {"requests": [7]}, "requests.0"),
    ("/v1/events", {"events": [EVENT] * 1001}, "events"),
    ("/v1/events", {"events": [{}]}, "events.0.event_id"),
    ("/v1/events", {"events": [EVENT | {"x": 1}]}, "events.0.x"),
    *(("/v1/events", {"events": [EVENT | {"kind": kind}]}, "events.0.kind") for kind in ("x" * 101, 3)),
    ("/v1/events", {"events": [{"event_id": 1, "item_id": 1}]}, "events.0.session_id"),
    ("/v1/events", {"events": [EVENT | {"user_id": "session:s"}]}, "events.0.user_id"),
    ("/v1/events", {"events": [EVENT | {"session_id": "x" * 505}]}, "events.0.session_id"),
]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (method, path)
        for path, calls in orjson.loads((STATIC / "openapi.json").read_bytes())["paths"].items()
        for method, call in calls.items()
        if "probes" not in call["tags"]
    ],
)
def test_no_call_ignores_a_parameter(client: TestClient, method: str, path: str) -> None:
    """An answer without the filter that was asked for would be taken for one with it."""
    answer = client.request(method, f"{path}?in_stock=a-secret", json={}, headers=ADMIN)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "in_stock")
    assert "unknown query parameter; " in answer.text
    assert "a-secret" not in answer.text


def event(**more: Any) -> dict[str, Any]:
    return {"events": [{"event_id": 1, "user_id": 7, "item_id": 101, **more}]}


TIMES = [1577934245000, -1e12, 1e300, True, "yesterday", "1577934245", "", [], "0000-01-01", "9999-99-99"]
NO_VERSIONS = ["../v1", "/etc", "", ".", "current", "v" * 65, 1, None, ["v1"], "v1\n"]
NO_IDS = ["x", "0900", "9" * 30, "%ff", ""]
BODIES = [
    *(("GET", path, None, 422, field) for path, field in PARAMETERS),
    *(("POST", path, body, 422, field) for path, body, field in POSTED),
    *(("POST", "/v1/events", event(time=time), 422, "events.0.time") for time in TIMES),
    *(("POST", "/admin/activate", {"version": version}, 422, "version") for version in NO_VERSIONS),
    ("POST", "/v1/recommend", {"history": [101], "cursor": "v2~0~a~3~3f800000"}, 409, "cursor"),
    ("POST", "/v1/recommend/batch", {"requests": [{"k": 1000}] * 10 + [{"k": 1}]}, 422, "requests"),
    ("POST", "/admin/routes", {"canary": {"version": "../v1", "share": 1}}, 422, "canary.version"),
    ("POST", "/admin/comparison", {"version": "v2", "force": True}, 422, "force"),
    ("POST", "/admin/comparison/recommend", {"min_version": "v1"}, 422, "min_version"),
    ("POST", "/admin/comparison/recommend", {"shoe": 1}, 422, "shoe"),
    ("PUT", "/v1/items/900", {"features": [1]}, 422, "features"),
    ("PUT", "/v1/items/900", {"features": {"colour": "red"}}, 422, "features.colour"),
    ("PUT", "/v1/items/900", {"features": {"tags": ["new"] * 2001}}, 422, "features"),
    ("PUT", "/v1/items/900", {"features": {}, "fields": {"text": "x" * 48_000}}, 413, "fields"),
    *(("PUT", f"/v1/items/{item}", {"features": {}}, 422, "id") for item in NO_IDS),
    ("POST", "/v1/items/101/similar", {"history": [102]}, 422, "history"),
    ("POST", "/v1/items/101/similar", {"filter": {"nofield": 1}}, 422, "filter.nofield"),
    ("POST", "/v1/items/7/similar", {}, 404, "id"),
    ("PATCH", "/v1/items/100", {"features": {}, "fields": {}}, 422, "body"),
    ("PATCH", "/v1/items/100", {"fields": {"a": 1}, "more": 3}, 422, "more"),
    ("PATCH", "/v1/items/901", {"fields": {"stock": 1}}, 404, "id"),
    ("DELETE", "/v1/items/10%fe", None, 422, "id"),
    ("DELETE", "/v1/items/901", None, 404, "id"),
]


@pytest.mark.fault(27)
@pytest.mark.parametrize(("method", "path", "body", "status", "field"), BODIES, ids=range(len(BODIES)))
def test_what_does_not_fit_is_refused_with_the_name_of_its_field_and_changes_nothing(
    whole: TestClient, method: str, path: str, body: Any, status: int, field: str
) -> None:
    answer = whole.request(method, path, json=body, headers=ADMIN)
    assert (answer.status_code, answer.json()["error"]["field"]) == (status, field), answer.text
    assert answer.json()["error"]["message"]
    assert len(answer.content) < 2000
    assert len(whole.post("/v1/recommend", json={"k": 100}).json()["items"]) == 60
    assert whole.get("/v1/users/7").json()["total"] == 0


@pytest.mark.parametrize("item", ["99", "0101", "x", "%00", "-1", "9" * 30, "a/b", ""])
def test_an_unknown_item_is_not_found(client: TestClient, item: str) -> None:
    for call in ("", "/similar"):
        answer = client.get(f"/v1/items/{item}{call}")
        assert (answer.status_code, answer.json()["error"]["field"]) == (404, "id")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/recommend", "POST"),
        ("TRACE", "/v1/users/7", "DELETE, GET"),
        ("POST", "/v1/items/101", "DELETE, GET, PATCH, PUT"),
        ("DELETE", "/docs", "GET, HEAD"),
    ],
)
def test_another_method_is_told_all_that_there_are(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path, headers=ADMIN)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.json()["error"]["field"] == "method"


@pytest.mark.parametrize("path", ["/nowhere", "/" + "x" * 5000, "/%ff%00"])
def test_another_path_is_refused_in_the_form_of_all_refusals(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["field"]) == (404, "path")
    assert len(answer.content) < 600


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 200),
        ({"Content-Type": "Application/JSON; charset=utf-8"}, 200),
        ({"Content-Type": "application/x+json"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({}, 200),
        ({"Origin": "http://example.com"}, 415),
        ({"Origin": "http://example.com", **JSON}, 200),
        ({"Content-Encoding": "identity", **JSON}, 200),
        *(({"Content-Encoding": packing, **JSON}, 415) for packing in ("br", "deflate, gzip", "GZIP")),
    ],
)
def test_bodies_that_any_web_page_can_send_and_packed_ones_are_refused(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    """One without a type is a program's, unless it has an origin."""
    answer = client.post("/v1/recommend", content=b"{}", headers=headers)
    assert answer.status_code == status
    field = "Content-Encoding" if "Content-Encoding" in headers else "Content-Type"
    assert status == 200 or answer.json()["error"]["field"] == field


DESCRIBED = orjson.loads((STATIC / "openapi.json").read_bytes())
HOSTILE = f"x://a{',a' * 70}:x"


def bodies_of(call: dict[str, Any]) -> Iterator[Any]:
    """Bodies with the hostile text in the place of each field, and in lists and objects there."""
    for content in call.get("requestBody", {"content": {}})["content"].values():
        reference = content["schema"].get("x-line", content["schema"])["$ref"]
        for name in DESCRIBED["components"]["schemas"][reference.rpartition("/")[2]]["properties"]:
            inner: Any = HOSTILE
            for key in (HOSTILE, "genres", HOSTILE):
                yield {name: inner}
                yield {"id": 101, "features": {}, "requests": [{name: inner}], name: [inner]}
                inner = {key: inner}


def hostile_requests() -> Iterator[tuple[str, str, Any]]:
    for path, calls in DESCRIBED["paths"].items():
        for method, call in calls.items():
            word = quote(HOSTILE, safe="")
            named = path.replace("{item_id}", word).replace("{user_id}", word)
            for query in [f"?{name['name']}={word}" for name in call.get("parameters", ())] + [f"?{word}"]:
                yield method, named + query, {}
            yield from ((method, named, body) for body in bodies_of(call))


def test_the_words_of_a_client_are_not_searched_for_addresses(
    whole: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever parameter or field of a call has them."""
    searched: list[str] = []
    real = errors.text_without_credentials

    def counted(text: str) -> str:
        searched.append(text)
        return real(text)

    monkeypatch.setattr(errors, "text_without_credentials", counted)
    quoted = 0
    for method, path, body in hostile_requests():
        answer = whole.request(method, path, json=body, headers=ADMIN)
        assert answer.status_code < 500, (method, path, body, answer.text)
        quoted += answer.status_code == 422 and HOSTILE[:20] in answer.json()["error"]["message"]
    assert quoted
    assert not [text for text in searched if HOSTILE[:20] in text]


def named(answer: httpx2.Response) -> list[str]:
    """The fields of a refusal."""
    assert answer.status_code == 422, answer.text
    told = answer.json()
    return [one["field"] for one in (told["error"], *told["others"]) if one["message"]]


def test_all_faults_of_a_body_are_named(whole: TestClient) -> None:
    """Each field once, unknown ones too, up to a number, and those of the first faulty id of a history."""
    body = {
        "k": 0,
        "min_score": "high",
        "shelf": 1,
        "colour": 2,
        "history": [{"item": 1, "knd": "x", "kind": 5}],
    }
    found = named(whole.post("/v1/recommend", json=body))
    assert sorted(found) == ["colour", "history.0", "k", "min_score", "shelf"]
    batch = whole.post("/v1/recommend/batch", json={"requests": [{"k": 0, "shelf": 1}, {}, {"k": True}]})
    assert named(batch) == ["requests.0.shelf", "requests.0.k", "requests.2.k"]
    assert set(named(whole.get("/v1/items?limit=0&cursor=x"))) == {"limit", "cursor"}
    assert named(whole.get("/v1/items?limit=zz&k=-1&q=a&k=1")) == ["k", "q", "limit"]
    many = whole.post("/v1/recommend", json={f"x{number}": 1 for number in range(1000)}).json()
    assert len(many["others"]) == 20
    assert "others" not in whole.post("/v1/recommend", json={"k": 0}).json()


def test_all_that_a_version_can_not_read_is_named(whole: TestClient) -> None:
    """Of a request, also in a batch, of an item, and of an item in a line."""
    asked = {
        "filter": {"nix": {"gt": 1}, "title": {"gx": 1, "gy": 1}, "any": [{"genres": 3}, {"not": 4}]},
        "cap": {"nope": 1, "title": 2},
        "features": {"shoe": 43},
    }
    lacking = ["filter.nix", "filter.title.gx", "filter.title.gy", "filter.any.0.genres", "filter.any.1.not"]
    lacking += ["cap.nope", "features.shoe"]
    assert named(whole.post("/v1/recommend", json=asked)) == lacking
    batch = whole.post("/v1/recommend/batch", json={"requests": [{}, asked]})
    assert named(batch) == [f"requests.1.{field}" for field in lacking]
    features = {"n0": "cheap", "kind": [1], "colour": "red", "size": 4}
    wrong = ["features.colour", "features.size", "features.n0", "features.kind"]
    assert named(whole.put("/v1/items/900", json={"features": features})) == wrong
    line = orjson.dumps({"id": 900, "features": features})
    (result,) = whole.post("/v1/items", content=line, headers=JSON).json()["results"]
    assert [one["field"] for one in (result["error"], *result["others"])] == wrong


def test_the_faults_of_all_events_of_a_call_are_named(whole: TestClient) -> None:
    events = [{"event_id": 1}, EVENT, EVENT | {"time": "yesterday"}, EVENT | {"x": 1, "user_id": True}, 7]
    assert named(whole.post("/v1/events", json={"events": events})) == [
        *("events.0.session_id", "events.0.item_id", "events.2.time", "events.3.x", "events.3.user_id"),
        "events.4",
    ]
    assert len(named(whole.post("/v1/events", json={"events": [{}] * 900}))) == 21


def test_a_refused_request_leaves_no_frames(whole: TestClient) -> None:
    """Else each waits, with its body, for a collection of all objects, which stops the event loop."""
    refused = [
        ("POST", "/v1/recommend", b'{"k": 0}'),
        ("POST", "/v1/recommend", b"{"),
        ("POST", "/v1/recommend", b'{"history": [101], "cursor": "v2~0~a~3~3f800000"}'),
        ("POST", "/v1/recommend", b'{"history": [101], "filter": {"x": 1, "y": 1}, "features": {"x": 1}}'),
        ("POST", "/v1/search", b'{"query": "film"}'),
        ("POST", "/v1/recommend/batch", b'{"requests": [{}, {"filter": {"x": 1}}]}'),
        ("GET", "/v1/items/900", None),
        ("GET", "/nowhere", None),
        ("PUT", "/v1/items/900", b'{"features": {"colour": "red"}}'),
        ("POST", "/admin/activate", b'{"version": "v9"}'),
    ]
    lines = b'{"id": 900, "features": {"colour": "red"}}\n{"id": "x"}\n{\n'

    def ask() -> None:
        for method, path, body in refused:
            answer = whole.request(method, path, content=body, headers=ADMIN | JSON)
            assert 400 <= answer.status_code < 500, (path, answer.text)
        assert whole.post("/v1/items", content=lines, headers=ADMIN | JSON).json()["refused"] == 3

    ask()
    gc.collect()
    gc.disable()
    try:
        ask()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        codes = [found.f_code for found in gc.garbage if isinstance(found, FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert [code.co_qualname for code in codes if "/turret/service/" in code.co_filename] == []
