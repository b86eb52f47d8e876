"""Moments that a user writes: dates, times and numbers as milliseconds since 1970."""

from datetime import UTC, datetime

YEAR_1990, YEAR_2100 = 631_152_000, 4_102_444_800  # seconds since 1970
# Of numbers that are times between these years, no unit takes those of another.
PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
FORMS = "write it like 2024-05-01 or 2024-05-01T12:30, or as seconds or milliseconds since 1970"


def parse_moment(moment: str | float) -> float | None:
    """Parse a date or time (UTC without an offset), or a number in a unit of `PER_SECOND` since 1970.

    Returns milliseconds, or None for anything else; numbers are told apart as times between 1990 and 2100. A
    date may be without separators: 20240501.
    """
    if (number := as_number(moment)) is not None:
        for scale in PER_SECOND.values():
            if YEAR_1990 * scale <= number < YEAR_2100 * scale:
                return number * 1000.0 / scale
    try:
        date = datetime.fromisoformat(str(moment).strip())
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000.0


def milliseconds(time: str) -> int:
    """Milliseconds since 1970 of a time in ISO 8601 that Turret has written."""
    return round(datetime.fromisoformat(time).timestamp() * 1000.0)


def as_number(text: str | float) -> float | None:
    """Parse a number; None for other texts."""
    try:
        return float(text)
    except ValueError:
        return None
