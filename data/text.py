"""Numbers and tables as people read them: each has one form in commands, reports and documents."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from io import StringIO
from textwrap import fill
from typing import Literal

WIDTH = 100
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
_TIMES = (("days", 86_400, 172_800), ("h", 3600, 7200), ("min", 60, 120))  # unit, seconds, from seconds on


def text_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str] | None],
    title: str | None = None,
    caption: str | None = None,
    width: int = WIDTH,
    right: bool | Collection[str] = True,
) -> str:
    """Return a table of at most `width` characters. None among the rows draws a line.

    The first column is left-aligned, the others are right-aligned. If `right` has headings, only their
    columns are right-aligned.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=caption)
    if isinstance(right, bool):
        right = headings[1:] if right else ()
    for number, heading in enumerate(headings):
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=number == 0)
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*row)
    text = StringIO()
    Console(file=text, width=width, markup=False, emoji=False, highlight=False).print(table)
    return text.getvalue().rstrip()


def paragraph(text: str, first: str = "", further: str = "") -> str:
    """Return a sentence in lines of at most `WIDTH` characters, which begin with `first` and `further`."""
    return fill(text, WIDTH, initial_indent=first, subsequent_indent=further, break_on_hyphens=False)


def figure(value: Mapping[str, float] | float) -> str:
    """Return a metric, or the mean of a metric, with four decimals."""
    return f"{value if isinstance(value, int | float) else value['mean']:.4f}"


def with_interval(value: Mapping[str, float] | float) -> str:
    """Return a metric with its 95 % interval, if it has an interval."""
    if isinstance(value, int | float):
        return figure(value)
    return f"{figure(value)} [{value['low']:.4f}, {value['high']:.4f}]"


def signed_with_interval(value: Mapping[str, float]) -> str:
    """Return a paired difference with its 95 % interval."""
    return f"{value['mean']:+.4f} [{value['low']:+.4f}, {value['high']:+.4f}]"


def percent(value: float) -> str:
    """Return a share in per cent; a share below 10 % keeps a decimal."""
    return f"{100 * value:.1f} %" if abs(value) < 0.1 else f"{100 * value:.0f} %"


def count(value: float | None) -> str:
    """Return a whole number with thousands separators; an empty text for None."""
    return "" if value is None else f"{value:,.0f}"


def size(count: float) -> str:
    """Return bytes in decimal units: 340 MB, 1.2 GB, 12 TB."""
    unit, scale = next(((unit, scale) for unit, scale in _BYTES if count >= scale), _BYTES[-1])
    return f"{_digits(count / scale)} {unit}"


def duration(seconds: float) -> str:
    """Return seconds in the unit that people would use: 29 s, 12 min, 3.1 h, 2.4 days."""
    unit, length = next(((unit, length) for unit, length, least in _TIMES if seconds >= least), ("s", 1))
    return f"{_digits(seconds / length)} {unit}"


def _digits(value: float) -> str:
    """Return a small number with one decimal, and another number rounded to an integer."""
    return f"{value:.1f}" if 1 <= value < 9.95 else f"{max(value, 1):,.0f}"
