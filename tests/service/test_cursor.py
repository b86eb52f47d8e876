import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cursor import LENGTH, Cursor, read_cursor
from service.errors import RequestError


@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True).filter(lambda name: name != "current"),
    st.integers(0, 2**52),
    st.integers(0, 2**31 - 1),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.integers(0, 2**31 - 1),
)
def test_it_reads_what_it_wrote(version: str, asked: int, shown: int, score: float, row: int) -> None:
    cursor = Cursor(version, asked, shown, score, row)
    assert read_cursor(cursor.text()) == cursor
    assert len(cursor.text()) <= LENGTH


def written(parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "e30",
        "*",
        "a",
        "\u2713",
        written([]),
        written(["v1", 0, 1, 2.0]),
        written(["../v1", 0, 1, 2.0, 3]),
        written(["v1", 0, -1, 2.0, 3]),
        written(["v1", 0, 1, "2", 3]),
        written(["v1", 0, 1, True, 3]),
        written(["v1", 0, 1, 2.0, 2**40]),
        written(["v1", 10**30, 1, 2.0, 3]),
        written([["v1"], 0, 1, 2.0, 3]),
        base64.urlsafe_b64encode(b'["v1",0,1,1e999,3]').decode().rstrip("="),
    ],
)
def test_anything_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(RequestError, match="no cursor") as caught:
        read_cursor(text)
    assert caught.value.status == 422
