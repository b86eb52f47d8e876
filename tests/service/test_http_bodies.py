"""Bodies: strict JSON within limits, whose faults are named with their fields; times and cursors in them."""

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from turret.data.vocabulary import BLANKS, plain_id
from turret.service.errors import InvalidFieldError, RequestError
from turret.service.schemas.bodies import SHORT_BODY, parse, read_body, read_schema
from turret.service.schemas.fields import Cursor, CursorText, check_time, read_cursor, show_time
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
def test_some_wrong_values_are_enough(schema: type[BaseModel], body: dict[str, Any], field: str) -> None:
    """An error object of each would take seconds; a list that is too long is refused by its length.

    Of lists of ids the first wrong value is enough.
    """
    with pytest.raises(RequestError) as caught:
        read_schema(json.dumps(body).encode(), schema)
    assert caught.value.field == field
    assert ("too long; send" in str(caught.value)) == (str(caught.value.field) in body)
    with pytest.raises(ValidationError) as errors:
        schema.model_validate(body)
    assert errors.value.error_count() <= (4 if schema is RecommendRequest else 24)


@pytest.mark.fault(42)
@pytest.mark.parametrize(("size", "is_beside"), [(10, False), (SHORT_BODY, True)])
async def test_long_bodies_are_parsed_outside_the_event_loop_with_the_same_errors(
    size: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    read = RecommendRequest.model_validate

    def noting(parsed: Any) -> RecommendRequest:
        threads.append(threading.get_ident())
        return read(parsed)

    monkeypatch.setattr(RecommendRequest, "model_validate", noting)
    body = {"filter": {"a": "x" * size}}
    found = await read_body(json.dumps(body).encode(), RecommendRequest)
    assert found.filter == body["filter"]
    assert (threads != [threading.get_ident()]) == is_beside
    with pytest.raises(InvalidFieldError) as caught:
        await read_body(json.dumps({"k": 0, **body}).encode(), RecommendRequest)
    assert caught.value.field == "k"


# ---- Times and cursors

CURSOR = TypeAdapter(CursorText)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
NO_TIMES = (
    *("1" * 100, "20240101", "20240101T101112Z", "2024-W01", "2024-1-1", "", "2024-02-30", "2024-01-01\n"),
    *("2024-01-01T10:00:00.", "2024-01-01T10:00+24:00", "\u0662\u0660\u0662\u0664-01-01"),
    *("0001-01-01T00:00+00:01", "9999-12-31T23:59:59-00:01"),
)


@given(MOMENTS)
def test_a_time_is_shown_as_it_was_sent_to_the_millisecond(moment: datetime) -> None:
    stored = check_time(moment.isoformat())
    cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert datetime.fromisoformat(show_time(stored)) == cut


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(PydanticCustomError, match="send seconds"):
        check_time(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01 00:01", 60_000),
        ("1970-01-01t00:00:01z", 1_000),
        ("1970-01-01T00:00:01,5", 1_500),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1970-01-01T01:00+0100", 0),
        ("1969-12-31T23:00:00.000-01:00", 0),
    ],
)
def test_a_text_that_is_a_time_counts(text: str, milliseconds: int) -> None:
    assert check_time(text) == milliseconds


@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True).filter(lambda name: name != "current"),
    st.integers(-(2**50), 2**50),
    st.integers(0, 2**28 - 1),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.integers(0, 2**28 - 1),
)
def test_a_cursor_is_read_as_it_was_written(
    version: str, asked: int, shown: int, score: float, row: int
) -> None:
    cursor = Cursor(version, asked, shown, score, row)
    assert read_cursor(CURSOR.validate_python(cursor.text())) == cursor


@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "a", "\u2713", "v1", "v1~0~1~3", "../v1~0~1~3~40000000"),
        *("v1~0~-1~3~40000000", "v1~0~1~3~2.0", "v1~0~1~3~40000000\n", "v1~\u0663~1~3~40000000"),
        *("v1~0~1~3~7f800000", "v1~0~1~3~7fc00000", "v1~0~1~3~ffffffff"),
        *("v1~0~1~fffffffff~40000000", "v1~ffffffffffffffff~1~3~40000000"),
    ],
)
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        CURSOR.validate_python(text)


@pytest.mark.parametrize(
    "text", ["a b", "\0", "e\u0301", *BLANKS, *(f"{blank}a" for blank in BLANKS), *map("a{}".format, BLANKS)]
)
def test_each_text_of_a_history_is_read_as_an_id_of_its_own(text: str) -> None:
    for history in ([text], [text, "i1"], ["i1", text]):
        assert RecommendRequest(history=history).history == [plain_id(each) for each in history]
