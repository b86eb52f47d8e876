import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel, ValidationError

from turret.service.errors import RequestError
from turret.service.latency import SHORT_BODY
from turret.service.schemas.requests import BatchRequest, EventsRequest, RecommendRequest
from turret.service.wire.body import parse, read_schema

EVENT = {"event_id": 1, "user_id": 1, "item_id": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b'{"k": NaN}',
        b'{"k": Infinity}',
        b'{"k": 1e400}',
        b'{"user_id": "\\ud800"}',
        b'{"k": 1, "k": 2}',
        b'{"features": {"a": 1, "a": 1}}',
        b'{"a": ' * 5000,
        b"[" * 1020 + b"]" * 1020,
        b"[" * 500_000,
        b'{"k": ' + b"9" * 5000 + b"}",
        b"user_id=7",
        b"--x\r\nContent-Disposition: form-data\r\n",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    ],
)
def test_invalid_json_is_refused(fresh_client: TestClient, body: bytes) -> None:
    answer = fresh_client.post("/v1/recommend", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_repeated_key_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        parse(b'{"history": [], "k": 1, "k": 2}')
    assert caught.value.field == "k"


def test_a_repeated_key_among_very_many_is_found_quickly() -> None:
    """Comparing each with each would hold up everybody else for minutes."""
    keys = ",".join(f'"k{number}":1' for number in range(19_000))
    start = time.perf_counter()
    with pytest.raises(RequestError, match="twice"):
        parse(f'{{{keys},"k18999":2}}'.encode())
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/recommend", [], "body"),
        ("/v1/recommend", "text", "body"),
        ("/v1/recommend", {"k": 0}, "k"),
        ("/v1/recommend", {"k": -1}, "k"),
        ("/v1/recommend", {"k": 1001}, "k"),
        ("/v1/recommend", {"k": 10**9}, "k"),
        ("/v1/recommend", {"k": 10**30}, "k"),
        ("/v1/recommend", {"k": True}, "k"),
        ("/v1/recommend", {"k": "10"}, "k"),
        ("/v1/recommend", {"k": 10.5}, "k"),
        ("/v1/recommend", {"k": 1001.0}, "k"),
        ("/v1/recommend", {"history": [101.5]}, "history.0"),
        ("/v1/recommend", {"history": [1e30]}, "history.0"),
        ("/v1/recommend", {"history": [-9223372036854775809]}, "history.0"),
        ("/v1/recommend", {"k": None}, "k"),
        ("/v1/recommend", {"user_id": 1.5}, "user_id"),
        ("/v1/recommend", {"user_id": ""}, "user_id"),
        ("/v1/recommend", {"user_id": True}, "user_id"),
        ("/v1/recommend", {"user_id": 2**63}, "user_id"),
        ("/v1/recommend", {"user_id": "x" * 513}, "user_id"),
        ("/v1/recommend", {"user_id": {"a": 1}}, "user_id"),
        ("/v1/recommend", {"history": "101"}, "history"),
        ("/v1/recommend", {"history": {"0": 101}}, "history"),
        ("/v1/recommend", {"history": [101, None]}, "history.1"),
        ("/v1/recommend", {"history": [[101]]}, "history.0"),
        ("/v1/recommend", {"history": [1] * 1001}, "history"),
        ("/v1/recommend", {"history_times": [1]}, "history_times"),
        ("/v1/recommend", {"user_id": 7, "history_times": [1]}, "history_times"),
        ("/v1/recommend", {"history": None, "history_times": []}, "history_times"),
        ("/v1/recommend", {"history": [101], "history_times": [1, 2]}, "history_times"),
        ("/v1/recommend", {"history": [101], "history_times": []}, "history_times"),
        ("/v1/recommend", {"history": [101, 102], "history_times": [2, 1]}, "history_times"),
        ("/v1/recommend", {"history": [101], "history_times": [None]}, "history_times.0"),
        ("/v1/recommend", {"history": [101], "history_times": ["soon"]}, "history_times.0"),
        ("/v1/recommend", {"history": [101], "history_times": [1_700_000_000_000]}, "history_times.0"),
        ("/v1/recommend", {"history": [[1]], "history_times": [1]}, "history.0"),
        ("/v1/recommend", {"history": [101], "history_times": [9], "at": 8}, "at"),
        ("/v1/recommend", {"at": "yesterday"}, "at"),
        ("/v1/recommend", {"at": True}, "at"),
        ("/v1/recommend", {"exclude": [1] * 1001}, "exclude"),
        ("/v1/recommend", {"exclude": None}, "exclude"),
        ("/v1/recommend", {"exclude_seen": "yes"}, "exclude_seen"),
        ("/v1/recommend", {"exclude_seen": 1}, "exclude_seen"),
        ("/v1/recommend", {"features": []}, "features"),
        ("/v1/recommend", {"features": {"a": "x" * 2001}}, "features"),
        ("/v1/recommend", {"features": {str(n): 1 for n in range(101)}}, "features"),
        ("/v1/recommend", {"filter": "drama"}, "filter"),
        ("/v1/recommend", {"explain": "yes"}, "explain"),
        ("/v1/recommend", {"min_score": "high"}, "min_score"),
        ("/v1/recommend", {"diversity": 1.5}, "diversity"),
        ("/v1/recommend", {"cap": {"genres": 0}}, "cap.genres"),
        ("/v1/recommend", {"cap": {str(n): 1 for n in range(11)}}, "cap"),
        ("/v1/recommend", {"cursor": ""}, "cursor"),
        ("/v1/recommend", {"cursor": "x" * 301}, "cursor"),
        ("/v1/recommend", {"cursor": "e30"}, "cursor"),
        ("/v1/recommend", {"cursor": "\u2713"}, "cursor"),
        ("/v1/recommend", {"diversity": 0.5, "cursor": "v1~0~a~3~3f800000"}, "cursor"),
        ("/v1/recommend", {"min_version": ""}, "min_version"),
        ("/v1/recommend", {"K": 10}, "K"),
        ("/v1/recommend/batch", {}, "requests"),
        ("/v1/recommend/batch", {"requests": []}, "requests"),
        ("/v1/recommend/batch", {"requests": [{}] * 101}, "requests"),
        ("/v1/recommend/batch", {"requests": [7]}, "requests.0"),
        ("/v1/events", {"events": []}, "events"),
        ("/v1/events", {"events": [EVENT | {"kind": "x" * 101}]}, "events.0.kind"),
        ("/v1/events", {"events": [EVENT | {"kind": 3}]}, "events.0.kind"),
        ("/v1/events", {"events": [EVENT] * 1001}, "events"),
        ("/v1/events", {"events": [{}]}, "events.0.event_id"),
        ("/v1/events", {"events": [EVENT | {"x": 1}]}, "events.0.x"),
        ("/v1/events", {"events": [EVENT | {"item_id": None}]}, "events.0.item_id"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_field(
    fresh_client: TestClient, path: str, body: Any, field: str
) -> None:
    answer = fresh_client.post(path, json=body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["field"] == field
    assert error["message"]
    assert len(answer.content) < 2000


def test_a_body_over_the_limit_is_refused(fresh_client: TestClient) -> None:
    answer = fresh_client.post("/v1/recommend", content=b" " * 1_000_001)
    assert answer.status_code == 413
    assert "1000000 bytes" in answer.json()["error"]["message"]


def test_a_body_of_unknown_length_is_counted_while_it_arrives(fresh_client: TestClient) -> None:
    def chunks() -> Any:
        for _ in range(200):
            yield b" " * 10_000

    assert fresh_client.post("/v1/recommend", content=chunks()).status_code == 413


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", None])
def test_a_body_is_read_if_it_calls_itself_json_or_nothing(
    fresh_client: TestClient, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = fresh_client.post("/v1/recommend", content=json.dumps({"history": [101]}), headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"diversity": 2}, "send a number up to 1"),
        ({"diversity": -0.5}, "send a number from 0"),
        ({"min_score": "high"}, "send a number"),
        ({"min_score": [1]}, "send a number"),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_the_bounds(
    fresh_client: TestClient, body: dict[str, Any], message: str
) -> None:
    answer = fresh_client.post("/v1/recommend", json=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, message)


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    "body",
    [
        b'{"history": [' + b"[]," * 20_000 + b"[]]}",
        b'{"filter": {' + b",".join(b'"%d" :1' % number for number in range(20_001)) + b"}}",
    ],
    ids=["lists", "keys"],
)
def test_a_body_of_very_many_parts_is_refused_before_it_is_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.service.wire.body.orjson.loads", None)
    with pytest.raises(RequestError, match="more than 20000 lists and objects, or keys"):
        parse(body)


def test_long_bodies_with_colons_in_texts_have_no_repeated_key() -> None:
    texts = [f'a": {number}:\\' for number in range(3000)]
    body = json.dumps({"history": texts, "filter": {"a": {"b": [{"c": 1, "d": "e:"}] * 50}}}).encode()
    assert len(body) > SHORT_BODY
    assert parse(body)["history"] == texts
    with pytest.raises(RequestError, match="twice"):
        parse(body.replace(b'"d": "e:"', b'"c": "e:"', 1))


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (RecommendRequest, {"history": [{}] * 900}),
        (RecommendRequest, {"exclude": [None] * 900}),
        (RecommendRequest, {"history": ["a"] * 900, "history_times": ["x"] * 900}),
        (BatchRequest, {"requests": [{"history": [{}] * 150}] * 100}),
        (EventsRequest, {"events": [{}] * 1000}),
    ],
)
def test_the_first_wrong_value_is_enough(schema: type[BaseModel], body: dict[str, Any]) -> None:
    """An error object of each would take seconds."""
    with pytest.raises(ValidationError) as caught:
        schema.model_validate(body)
    assert caught.value.error_count() <= 4


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("schema", "body", "field"),
    [
        (RecommendRequest, {"history": [None] * 19_000}, "history"),
        (RecommendRequest, {"history_times": [None] * 19_000, "history": ["a"]}, "history_times"),
        (RecommendRequest, {"cap": {str(number): None for number in range(19_000)}}, "cap"),
        (BatchRequest, {"requests": [None] * 19_000}, "requests"),
        (EventsRequest, {"events": [None] * 19_000}, "events"),
    ],
)
def test_a_list_that_is_too_long_is_refused_by_its_length(
    schema: type[BaseModel], body: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError, match="too long; send") as caught:
        read_schema(json.dumps(body).encode(), schema)
    assert caught.value.field == field
    with pytest.raises(ValidationError) as errors:
        schema.model_validate(body)
    assert errors.value.error_count() == 1


def test_a_batch_asks_for_a_bounded_number_of_items(fresh_client: TestClient) -> None:
    asked = [{"k": 1000}] * 10
    assert fresh_client.post("/v1/recommend/batch", json={"requests": asked}).status_code == 200
    answer = fresh_client.post("/v1/recommend/batch", json={"requests": [*asked, {"k": 1}]})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "requests"
    assert "10001 items in total; request at most 10000" in answer.json()["error"]["message"]
