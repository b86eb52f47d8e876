"""Times in requests and answers; the service keeps milliseconds since 1970."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The milliseconds of the years 1 to 9999, which ISO 8601 can write.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
_FIRST_SECOND, _LAST_SECOND = _FIRST_TIME / 1000, _LAST_TIME / 1000
# The extended form of ISO 8601, a superset of RFC 3339. `fromisoformat` alone accepts more: digits of any
# length in some releases of Python, and a number of seconds sent as text as a date (20240101).
_TEXT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?([Zz]|[+-][0-9]{2}(:?[0-5][0-9])?)?)?"
)
_KINDS = [
    {"type": "number", "minimum": _FIRST_SECOND, "maximum": _LAST_SECOND},
    {"type": "string", "format": "date-time"},
]


def check_time(value: object) -> int:
    """Convert seconds since 1970 or ISO 8601 (UTC without a zone) to milliseconds since 1970.

    ISO 8601 with hyphens and colons: a date, or a date with at least hours and minutes. Truncates to whole
    milliseconds.
    """
    try:
        milliseconds = _milliseconds(value)
    except (ValueError, OverflowError):
        milliseconds = None
    if milliseconds is None or not _FIRST_TIME <= milliseconds <= _LAST_TIME:
        raise PydanticCustomError(
            "time", "send seconds (not milliseconds) since 1970, or ISO 8601 like 2024-05-01T12:30:00Z"
        )
    return milliseconds


def _milliseconds(value: object) -> int | None:
    if isinstance(value, str):
        if not _TEXT.fullmatch(value):
            return None
        moment = datetime.fromisoformat(value.upper())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1000) if _FIRST_SECOND <= value <= _LAST_SECOND else None
    return None


def show_time(milliseconds: int) -> str:
    """Format milliseconds since 1970 as ISO 8601 in UTC."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


Time = Annotated[int, PlainValidator(check_time), WithJsonSchema({"anyOf": _KINDS})]
