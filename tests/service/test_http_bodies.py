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

NO_JSON = [
    *(b"", b"{", b"nonsense", b"\xff\xfe", b"user_id=7", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"),
    *(b'{"k": NaN}', b'{"k": Infinity}', b'{"k": 1e400}', b'{"user_id": "\\ud800"}'),
    *(b'{"k": ' + b"9" * 5000 + b"}", b'{"a": ' * 5000, b"[" * 1020 + b"]" * 1020, b"[" * 500_000),
]


@pytest.mark.fault(19)
@pytest.mark.parametrize("body", NO_JSON, ids=range(len(NO_JSON)))
def test_invalid_json_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/recommend", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_batch_asks_for_a_bounded_number_of_items(client: TestClient) -> None:
    asked = [{"k": 1000}] * 10
    assert client.post("/v1/recommend/batch", json={"requests": asked}).status_code == 200
    answer = client.post("/v1/recommend/batch", json={"requests": [*asked, {"k": 1}]})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "requests")
    assert "10001 items in total; request at most 10000" in answer.json()["error"]["message"]


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
        (RecommendRequest, {"history_times": [None] * 19_000, "history": ["a"]}, "history_times.0"),
        (RecommendRequest, {"cap": {str(number): None for number in range(19_000)}}, "cap.0"),
        (RecommendRequest, {"history": [{}] * 900}, "history.0"),
        (BatchRequest, {"requests": [{"history": [{}] * 150}] * 100}, "requests.0.history.0"),
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
