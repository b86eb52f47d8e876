"""The client: every call of a service in the process, retries, refusals, and events of any number."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import orjson
import pytest
from fastapi.testclient import TestClient

from tests.conftest import USER_FEATURES, contents
from tests.support.item_towers import publish_described
from tests.support.places import ROOT, python_blocks
from tests.support.service_app import KEY, serving
from turret.client import AnswerError, AsyncClient, Client, ClientError, Event, calls
from turret.service.http.routes.probes import STATIC
from turret.tower.bundle.publish import publish
from turret.tower.format.listing import point

URL = "http://turret.test:8000"
ANSWER = {"version": "v1", "items": [], "degraded": []}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = tmp_path_factory.mktemp("client")
    publish_described(root)
    publish_described(root, "v2", seed=1)
    point(root, "v1")
    with serving(root) as service:
        yield service


# ---- The calls


def test_every_call_of_the_api_has_a_method_with_a_typed_answer(service: TestClient) -> None:
    sent: list[tuple[str, str]] = []
    service.event_hooks["request"] = [lambda request: sent.append((request.method, request.url.path))]
    with Client("http://testserver", KEY, retries=0, http=service) as client:
        assert client.alive().status == "alive"
        assert client.ready().version == "v1"
        assert "turret_" in client.metrics()
        assert client.version().item_count == 60
        assert [one.version for one in client.versions().versions] == ["v1", "v2"]

        at = datetime(2024, 5, 1, tzinfo=UTC)
        events = client.store_events(
            [
                {"event_id": "e1", "user_id": "me", "item_id": 101, "time": at, "answer_id": "a" * 32},
                {"event_id": "e2", "user_id": "me", "item_id": np.int64(102), "time": 1714557600},  # type: ignore[typeddict-item]
            ]
        )
        assert (events.stored, events.duplicates) == (2, 0)
        assert [event.item_id for event in client.user("me").events] == [101, 102]
        assert [event.answer_id for event in client.user("me").events] == ["a" * 32, None]
        assert client.random_user().user_id == "me"

        answer = client.recommend(user_id="me", k=5, filter={"new": {"equals": True}}, explain=True)
        assert len(answer.items) == 5
        assert answer.items[0].source == "towers"
        assert answer.items[0].fields["new"] is True
        assert answer.explanation is not None
        assert answer.explanation.plan.allowed == 30
        assert answer.cursor is not None
        with pytest.raises(AnswerError, match="not for queries: POST /v1/recommend"):
            client.search("lamp")
        results = client.recommend_batch([{"history": [101, 999]}, {"user_id": "me"}]).results
        assert [result.unknown_items for result in results] == [(999,), ()]

        assert client.find_items("Item 7").items[0].fields["title"] == "Item 7"
        assert [item.id for item in client.find_items(ids=[103, "104"]).items] == [103, 104]
        assert len(client.similar_items(101, k=3).items) == 3
        assert client.popular("week", k=3).version == "v1"
        vectors = client.vectors([101, 999], [{"history": [101]}, {"history": []}])
        assert [vectors.items[1].vector, vectors.requests[1]] == [None, None]
        assert len(client.similar_items(101, exclude=[102]).items) == 10
        assert client.put_item(900, {"tags": ["drama"]}, {"title": "New"}).vector == "features"
        assert client.patch_item(900, fields={"stock": 3}).vector == "features"
        assert client.item(900).fields == {"title": "New", "stock": 3}
        changed = client.change_items([{"id": 900, "method": "PATCH", "fields": {"stock": 4}}, {"id": 901}])
        assert [(result.id, result.status) for result in changed.results] == [(900, 200), (None, 422)]
        assert client.item(900).fields["stock"] == 4
        assert client.set_rules({"new": {"filter": {"new": {"equals": True}}}}).who == "admin"
        assert len(client.recommend(k=60, rules=["new"]).items) == 30
        assert client.set_rules({}).rules == {}
        since = client.rules().since
        assert since is not None
        for _ in range(2):
            assert list(client.roll_back_rules(since).rules) == ["new"]
        assert list(client.rules().rules) == ["new"]
        assert client.item(900).fresh
        assert client.withdraw_item("900").withdrawn
        assert [field.kind for field in client.fields().fields if field.name == "year"] == ["number"]
        for of_map in (  # this bundle has none
            client.item_map,
            client.map_points,
            lambda: client.map_colours("genres"),
            lambda: client.map_items(points=[1]),
        ):
            with pytest.raises(AnswerError, match="404"):
                of_map()

        with pytest.raises(AnswerError, match="logs no answers"):
            client.outcomes(["buy"], within="1h")
        assert client.open_comparison("v2").version == "v2"
        assert client.comparison().version == "v2"
        assert client.compare({"user_id": "me", "k": 3}).other.version == "v2"
        assert client.overlap(users=1, k=3).histories == 1
        assert client.close_comparison("v2").version is None
        shared = client.set_routes(shadow={"version": "v2", "share": 0.5}).shadow
        assert shared is not None
        assert shared.share == 0.5
        assert client.set_routes(shadow=None).shadow is None
        assert client.routes().live == "v1"
        assert client.activate("v2", force=True).previous == "v1"
        assert client.roll_back("v2").version == "v1"
        assert client.activations().activations[0].version == "v1"
        assert client.forget_user("me").deleted == 2
        assert client.user("a/b c?é").user_id == "a/b c?é"
    described = orjson.loads((STATIC / "openapi.json").read_bytes())["paths"]
    for path, methods in described.items():
        pattern = re.sub(r"\{\w+\}", ".+", path)
        for method in methods:
            assert any(re.fullmatch(pattern, one) for verb, one in sent if verb == method.upper()), path


def test_a_refusal_names_the_field_and_the_remedy(service: TestClient) -> None:
    client = Client("http://testserver", KEY, http=service)
    with pytest.raises(AnswerError, match=r"answered 422: k: send a number from 1") as refused:
        client.recommend(k=0)
    assert (refused.value.status, refused.value.field, refused.value.value) == (422, "k", 0)
    with pytest.raises(AnswerError, match="401"):
        Client("http://testserver", "another-key-of-32-characters-xxx", http=service).routes()


def test_the_asynchronous_client_has_the_same_calls(service: TestClient) -> None:
    async def ask() -> None:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(service.app))
        async with AsyncClient("http://testserver", KEY, http=http) as client:
            several = await asyncio.gather(*(client.recommend(history=[101], k=k) for k in (1, 2, 3)))
            assert [len(answer.items) for answer in several] == [1, 2, 3]
            stored = await client.store_events({"user_id": "many", "item_id": 101} for _ in range(1_200))
            assert (stored.stored, stored.duplicates) == (1_200, 0)
            assert (await client.forget_user("many")).deleted == 1_200

    asyncio.run(ask())


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"i{number:04}" for number in range(60)]
    shop = contents(ids=ids, features=USER_FEATURES, times=True)
    publish(tmp_path, replace(shop, fields=shop.fields | {"year": list(range(1960, 2020))}))
    with serving(tmp_path) as service:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(service.app))
        monkeypatch.setattr("turret.client.client.httpx2.Client", lambda **_: service)
        monkeypatch.setattr("turret.client.client.httpx2.AsyncClient", lambda **_: http)
        monkeypatch.setattr(service, "close", lambda: None)
        exec("\n".join(python_blocks(ROOT / "docs" / "client.md")), {"__name__": "client.md"})


# ---- Retries


class Script:
    """A service that gives these answers in order, then the last one again; it notes the sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers, self.sent, self.slept = list(answers), list[httpx2.Request](), list[float]()
        monkeypatch.setattr("turret.client.client.time.sleep", self.slept.append)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body, *headers = answer
        return httpx2.Response(status, json=body, headers=dict(headers))

    def client(self, **others: Any) -> Client:
        return Client(URL, http=httpx2.Client(transport=httpx2.MockTransport(self)), **others)


BUSY = (503, {"error": {"field": "store", "value": None, "message": "busy"}}, ("Retry-After", "2"))
LIMITED = (429, {"error": {"field": "key", "value": None, "message": "too many"}}, ("Retry-After", "1"))
LOST, UNREACHED = httpx2.ReadError("lost"), httpx2.ConnectError("refused")
SWAPPED = {"version": "v2", "previous": "v1"}


@pytest.mark.parametrize("failure", [BUSY, LIMITED, LOST, UNREACHED])
def test_a_call_without_a_second_effect_is_sent_again(monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    """After the seconds of Retry-After, where the service gives them."""
    script = Script(monkeypatch, failure, failure, (200, ANSWER))
    assert script.client().recommend(history=[1]).version == "v1"
    assert len(script.sent) == 3
    if isinstance(failure, tuple):
        assert script.slept == [float(failure[2][1])] * 2
    else:
        assert 0 < script.slept[0] <= 0.1 < script.slept[1] * 2 <= 0.4


@pytest.mark.parametrize(("failure", "count"), [(BUSY, 1), (LOST, 1), (LIMITED, 2), (UNREACHED, 2)])
@pytest.mark.parametrize(
    "change", [lambda client: client.activate("v2"), lambda client: client.roll_back("v1")]
)
def test_a_change_of_the_version_is_sent_again_only_if_the_service_has_not_received_it(
    monkeypatch: pytest.MonkeyPatch, failure: Any, count: int, change: Callable[[Client], Any]
) -> None:
    script = Script(monkeypatch, failure, (200, SWAPPED))
    with pytest.raises(ClientError) if count == 1 else nullcontext():
        assert change(script.client()).version == "v2"
    assert len(script.sent) == count


def test_retries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their number, for a long Retry-After, and at once for probes and for refusals that would last."""
    script = Script(monkeypatch, BUSY)
    with pytest.raises(AnswerError, match="503: store: busy") as refused:
        script.client(retries=2).recommend()
    assert (len(script.sent), refused.value.retry_after) == (3, 2)
    long = (*BUSY[:2], ("Retry-After", "3600"))
    for answer, call in ((long, calls.recommend()), (BUSY, calls.ready()), ((500, {}), calls.recommend())):
        script = Script(monkeypatch, answer)
        with pytest.raises(AnswerError):
            script.client().send(call)
        assert (len(script.sent), script.slept) == (1, [])


def test_events_are_sent_in_calls_that_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 a call and less than a megabyte, each event with an id that its repetition keeps."""
    answer = {"stored": 1, "duplicates": 2, "clamped": 1}
    script = Script(monkeypatch, LOST, (200, answer), (200, answer | {"warning": "kinds"}), (200, answer))
    long = "x" * 2_000
    events = [Event(user_id="a", item_id=long)] * 500 + [Event(user_id="b", item_id=1)] * 1_001
    total = script.client().store_events(events)
    bodies = [json.loads(request.content)["events"] for request in script.sent]
    assert bodies[0] == bodies[1], "sent again with the same ids"
    del bodies[0]
    assert max(len(body) for body in bodies) <= 1_000
    assert max(len(request.content) for request in script.sent) < 1_000_000
    ids = [event["event_id"] for body in bodies for event in body]
    assert len(set(ids)) == len(ids) == 1_501
    assert total.stored == len(bodies)
    assert (total.duplicates, total.clamped, total.warning) == (2 * len(bodies), len(bodies), "kinds")
    assert script.client().store_events([]).stored == 0


# ---- Sentences


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((404, "<html>"), "answered 404: it did not say why; is it a Turret service?"),
        ((302, {}), "answered 302: it did not say why"),
        ((200, {"items": []}), "answers, but not as Turret does (version: Field required)"),
        ((200, [1]), "answers, but not as Turret does"),
        (httpx2.ConnectError("Connection refused"), "no service answers there (Connection refused)"),
        (httpx2.ReadTimeout(""), "/v1/recommend: no answer within 30 s"),
        (httpx2.DecodingError("not gzip"), "no service answers there (not gzip)"),
    ],
)
def test_what_is_no_answer_of_turret_is_said(
    monkeypatch: pytest.MonkeyPatch, answer: Any, sentence: str
) -> None:
    with pytest.raises(ClientError) as refused:
        Script(monkeypatch, answer).client(retries=0).recommend()
    assert str(refused.value).startswith(URL)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "file:///etc/hostname", "http://a b", "http://me:pa/ss@host:8000", "http://a:b"]
)
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ClientError, match="is not the address of a service") as refused:
        Client(url)
    assert "pa/ss" not in str(refused.value)


@pytest.mark.parametrize("key", ["", "two words", "a\nb", "clé"])
def test_what_is_no_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ClientError, match="this is no key"):
        Client(URL, key)


def test_a_value_that_json_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Script(monkeypatch, (200, ANSWER)).client()
    with pytest.raises(ClientError, match="is no JSON value"):
        client.recommend(features={"country": object()})
    with pytest.raises(ClientError, match="not JSON compliant"):
        client.recommend(min_score=float("nan"))
    with pytest.raises(ClientError, match=r"POST /v1/events: .* is no JSON value"):
        client.store_events([{"user_id": "me", "item_id": object()}])  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda client: client.store_events({"item_id": "a"}), r"events can't be .*: give a list"),
        (lambda client: client.store_events(["abc"]), "events can't have 'abc': give dictionaries"),
        (lambda client: client.recommend_batch(None), "requests can't be None"),
        (lambda client: client.change_items([None]), "changes can't have None"),
        (lambda client: client.find_items(ids="abc"), "ids can't be 'abc'"),
        (lambda client: client.forget_user(None), "user_id can't be None"),
        (lambda client: client.item(""), "item_id can't be ''"),
        (lambda client: client.item("x" * 513), "1 to 512 characters"),
        (lambda client: client.user("\ud800"), "user_id can't be"),
        (lambda client: client.user(10**5_000), "64-bit integer"),
        (lambda client: client.find_items("\ud800"), "can't be sent"),
        (lambda client: client.find_items("x" * 10**6), "can't be sent"),
    ],
)
def test_arguments_that_no_call_can_have_are_named(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], object], sentence: str
) -> None:
    """Nothing is sent."""
    script = Script(monkeypatch)
    with pytest.raises(ClientError, match=sentence):
        call(script.client())
    assert not script.sent


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": None},
        {"key": 5},
        {"timeout": None},
        {"timeout": float("nan")},
        {"timeout": 0},
        {"retries": "5"},
        {"retries": -1},
    ],
)
def test_settings_of_a_client_are_checked_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match=r"is not the address|is no key|can't be"):
        Client(**{"url": URL} | wrong)


def test_ids_that_clients_take_for_folders_and_a_closed_client(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, (404, {}))
    with pytest.raises(AnswerError):
        script.client().forget_user("..")
    assert script.sent[0].url.raw_path == b"/v1/users/%2E%2E"
    client = Client(URL)
    client.close()
    with pytest.raises(ClientError, match="this client is closed"):
        client.ready()


def test_a_service_on_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    made, used = dict[httpx2.HTTPTransport, Any](), list[Any]()
    make = httpx2.HTTPTransport.__init__

    def record(transport: httpx2.HTTPTransport, **given: Any) -> None:
        make(transport, **given)
        made[transport] = given.get("proxy")

    def answer(transport: httpx2.HTTPTransport, request: httpx2.Request) -> httpx2.Response:
        used.append(made[transport])
        return httpx2.Response(200, json=ANSWER)

    monkeypatch.setattr(httpx2.HTTPTransport, "__init__", record)
    monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", answer)
    for host in ("localhost", "127.0.0.1", "[::1]", "turret.test"):
        with Client(f"http://{host}:8000") as client:
            client.recommend()
    assert used[:3] == [None] * 3
    assert used[3] is not None


@pytest.mark.parametrize(
    ("url", "is_verified"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost/below", False),
        ("https://127.0.0.1:8000", True),
        ("https://turret.test", True),
        ("http://127.0.0.1.turret.test", True),
        ("http://turret.test", True),
    ],
)
def test_only_plain_http_on_this_machine_reads_no_certificates(
    monkeypatch: pytest.MonkeyPatch, url: str, is_verified: bool
) -> None:
    """A proxy may be reached over TLS where the service is not."""
    given = list[Any]()
    for name in ("Client", "AsyncClient"):
        monkeypatch.setattr(httpx2, name, lambda verify, mounts: given.append(verify))
    Client(url), AsyncClient(url)
    assert given == [is_verified] * 2
