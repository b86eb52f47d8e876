"""Bodies: strict JSON within limits; a fault is named with its field."""

import asyncio
import json
import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel, ValidationError

from turret.service.errors import InvalidFieldError, RequestError
from turret.service.schemas.bodies import BODY, SHORT_BODY, parse, read_body, read_schema
from turret.service.schemas.requests import BatchRequest, EventsRequest, RecommendRequest

EVENT: dict[str, Any] = {"event_id": 1, "user_id": 1, "item_id": 1}
NO_JSON = [
    *(b"", b"{", b"nonsense", b"\xff\xfe", b"user_id=7", b"--x\r\nContent-Disposition: form-data\r\n"),
    *(b'{"k": NaN}', b'{"k": Infinity}', b'{"k": 1e400}', b'{"user_id": "\\ud800"}'),
    *(
        b'{"k": ' + b"9" * 5000 + b"}",
        b'{"a": ' * 5000,
        b"[" * 1020 + b"]" * 1020,
        b"[" * 500_000,
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    ),
]


@pytest.mark.parametrize("body", NO_JSON, ids=range(len(NO_JSON)))
def test_invalid_json_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/recommend", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


# Values by the field of a recommendation that they do not fit; the field that is named, unless it is that.
VALUES: dict[str, list[Any]] = {
    "k": [0, -1, 1001, 10**9, 10**30, True, "10", 10.5, 1001.0, None],
    "user_id": [1.5, "", True, 2**63, "x" * 513, {"a": 1}],
    "history": ["101", {"0": 101}, [1] * 1001],
    "history_times": [[1]],
    "at": ["yesterday", True],
    "exclude": [[1] * 1001, None],
    "exclude_seen": ["yes", 1],
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
BODIES: list[tuple[str, Any, str]] = [
    *(("/v1/recommend", {field: value}, field) for field, values in VALUES.items() for value in values),
    ("/v1/recommend", [], "body"),
    ("/v1/recommend", "text", "body"),
    *(("/v1/recommend", {"history": [item]}, "history.0") for item in (101.5, 1e30, -(2**63) - 1, [101])),
    ("/v1/recommend", {"history": [101, None]}, "history.1"),
    ("/v1/recommend", {"history": [[1]], "history_times": [1]}, "history.0"),
    ("/v1/recommend", {"user_id": 7, "history_times": [1]}, "history_times"),
    ("/v1/recommend", {"history": None, "history_times": []}, "history_times"),
    *(
        ("/v1/recommend", {"history": [101], "history_times": times}, "history_times")
        for times in ([], [1, 2])
    ),
    ("/v1/recommend", {"history": [101, 102], "history_times": [2, 1]}, "history_times"),
    *(
        ("/v1/recommend", {"history": [101], "history_times": [time]}, "history_times.0")
        for time in (None, "soon", 1_700_000_000_000)
    ),
    ("/v1/recommend", {"history": [101], "history_times": [9], "at": 8}, "at"),
    ("/v1/recommend", {"cap": {"genres": 0}}, "cap.genres"),
    ("/v1/recommend", {"diversity": 0.5, "cursor": "v1~0~a~3~3f800000"}, "cursor"),
    ("/v1/recommend/batch", {}, "requests"),
    *(("/v1/recommend/batch", {"requests": [{}] * count}, "requests") for count in (0, 101)),
    ("/v1/recommend/batch", {"requests": [7]}, "requests.0"),
    ("/v1/events", {"events": []}, "events"),
    ("/v1/events", {"events": [EVENT] * 1001}, "events"),
    ("/v1/events", {"events": [{}]}, "events.0.event_id"),
    ("/v1/events", {"events": [EVENT | {"x": 1}]}, "events.0.x"),
    ("/v1/events", {"events": [EVENT | {"item_id": None}]}, "events.0.item_id"),
    *(("/v1/events", {"events": [EVENT | {"kind": kind}]}, "events.0.kind") for kind in ("x" * 101, 3)),
]


@pytest.mark.parametrize(("path", "body", "field"), BODIES, ids=range(len(BODIES)))
def test_a_wrong_value_is_refused_with_the_name_of_its_field(
    client: TestClient, path: str, body: Any, field: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["field"] == field
    assert error["message"]
    assert len(answer.content) < 2000


def test_a_batch_asks_for_a_bounded_number_of_items(client: TestClient) -> None:
    asked = [{"k": 1000}] * 10
    assert client.post("/v1/recommend/batch", json={"requests": asked}).status_code == 200
    answer = client.post("/v1/recommend/batch", json={"requests": [*asked, {"k": 1}]})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "requests")
    assert "10001 items in total; request at most 10000" in answer.json()["error"]["message"]


def test_of_repeated_keys_the_last_counts(client: TestClient) -> None:
    answer = client.post("/v1/recommend", content=b'{"k": 7, "k": 2}')
    assert len(answer.json()["items"]) == 2


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
    monkeypatch.setattr("turret.service.schemas.bodies.orjson.loads", None)
    with pytest.raises(RequestError, match="more than 20000 lists and objects, or keys"):
        parse(body)


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("schema", "body", "field"),
    [
        (RecommendRequest, {"history": ["a"] * 19_000}, "history"),
        (RecommendRequest, {"history": [None] * 19_000}, "history.0"),
        (RecommendRequest, {"history_times": [None] * 19_000, "history": ["a"]}, "history_times.0"),
        (RecommendRequest, {"cap": {str(number): None for number in range(19_000)}}, "cap"),
        (RecommendRequest, {"history": [{}] * 900}, "history.0"),
        (RecommendRequest, {"exclude": [None] * 900}, "exclude.0"),
        (BatchRequest, {"requests": [None] * 19_000}, "requests.0"),
        (BatchRequest, {"requests": [{"history": [{}] * 150}] * 100}, "requests.0.history.0"),
        (EventsRequest, {"events": [None] * 19_000}, "events.0"),
        (EventsRequest, {"events": [{}] * 1000}, "events.0.event_id"),
    ],
)
def test_the_first_wrong_value_is_enough(schema: type[BaseModel], body: dict[str, Any], field: str) -> None:
    """An error object of each would take seconds; a list that is too long is refused by its length."""
    with pytest.raises(RequestError) as caught:
        read_schema(json.dumps(body).encode(), schema)
    assert caught.value.field == field
    assert ("too long; send" in str(caught.value)) == (str(caught.value.field) in body)
    with pytest.raises(ValidationError) as errors:
        schema.model_validate(body)
    assert errors.value.error_count() <= 4


@pytest.mark.fault(42)
@pytest.mark.parametrize(("size", "is_beside"), [(10, False), (SHORT_BODY, True)])
def test_long_bodies_are_parsed_outside_the_event_loop_with_the_same_errors(
    size: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    read = RecommendRequest.model_validate

    def noting(parsed: Any) -> RecommendRequest:
        threads.append(threading.get_ident())
        return read(parsed)

    monkeypatch.setattr(RecommendRequest, "model_validate", noting)

    async def scenario() -> None:
        body = {"filter": {"a": "x" * size}}
        found = await read_body({BODY: json.dumps(body).encode()}, RecommendRequest)
        assert found.filter == body["filter"]
        assert (threads[0] != threading.get_ident()) == is_beside
        with pytest.raises(InvalidFieldError) as caught:
            await read_body({BODY: json.dumps({"k": 0, **body}).encode()}, RecommendRequest)
        assert caught.value.field == "k"

    asyncio.run(scenario())
