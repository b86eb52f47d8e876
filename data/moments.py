"""Moments since 1970 (dates, times and numbers) and pauses, as a user writes them, in milliseconds."""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

YEAR_1990, YEAR_2100 = 631_152_000, 4_102_444_800  # seconds since 1970
# Between these years the ranges of the units do not overlap, so the unit of a number is unambiguous.
PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
FORMS = "write it like 2024-05-01 or 2024-05-01T12:30, or as seconds or milliseconds since 1970"


_CLOCKS = ("", " %H:%M", " %H:%M:%S")


def parse_moment(moment: str | float, forms: Iterable[str] = ()) -> float | None:
    """Parse a date or time (UTC without an offset), or a number in a unit of `PER_SECOND` since 1970.

    Returns milliseconds, or None for anything else. The unit of a number is the one in which it is a time
    between 1990 and 2100. A date may have no separators (20240501), or one of the formats `forms` of days,
    with or without a time.
    """
    if (number := as_number(moment)) is not None:
        for scale in PER_SECOND.values():
            if YEAR_1990 * scale <= number < YEAR_2100 * scale:
                return number * 1000.0 / scale
    text = str(moment).strip()
    readers: list[Callable[[str], datetime]] = [
        datetime.fromisoformat,
        *(partial(_in_form, form + clock) for form in forms for clock in _CLOCKS),
    ]
    for read in readers:
        with suppress(ValueError):
            date = read(text)
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000.0
    return None


def _in_form(form: str, text: str) -> datetime:
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def milliseconds(time: str) -> int:
    """Return the milliseconds since 1970 of a time in ISO 8601 that Turret has written."""
    return round(datetime.fromisoformat(time).timestamp() * 1000.0)


def as_number(text: str | float) -> float | None:
    """Parse a number; None for other texts."""
    try:
        return float(text)
    except ValueError:
        return None


_MILLISECONDS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_DAYS = 100_000  # the sum of a pause and a time since 1970 stays within 64 bits


def milliseconds_of(pause: str) -> float:
    """Read a number with a unit (s, m, h or d) as milliseconds. Raises ValueError for other texts."""
    try:
        duration = float(pause[:-1]) * _MILLISECONDS[pause[-1:]]
    except (KeyError, ValueError):
        duration = 0.0
    if not 0 < duration < math.inf:
        raise ValueError(f"{pause!r} is no pause; give a number and a unit, such as 90s, 30m, 12h or 1d")
    if duration > _MOST_DAYS * _MILLISECONDS["d"]:
        raise ValueError(f"{pause!r} is longer than {_MOST_DAYS}d; give a shorter pause")
    return duration
