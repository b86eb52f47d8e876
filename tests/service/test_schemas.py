"""Times and cursors in requests and answers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from turret.service.schemas.fields import Cursor, CursorText, check_time, read_cursor, show_time

CURSOR = TypeAdapter(CursorText)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
NO_TIMES = (
    *("1" * 8, "1" * 100, "20240101", "20240101T101112Z", "2024-W01", "2024-1-1", "now", ""),
    *("2024-01-01T10:00:00.", "2024-02-30", "2024-01-01T25:00", "2024-01-01T10:60", "2024-01-01T10:00+24:00"),
    *(" 2024-01-01", "2024-01-01\n", "2024-01-01T10:00:00Z1", "\u0662\u0660\u0662\u0664-01-01"),
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
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01 00:01", 60_000),
        ("1970-01-01t00:00:01z", 1_000),
        ("1970-01-01T00:00:01,5", 1_500),
        ("1970-01-01T00:00:00.123456789Z", 123),
        ("1970-01-01T01:00+01", 0),
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
