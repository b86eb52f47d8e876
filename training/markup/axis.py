"""The scale of an axis, with round ticks."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log10

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def of(cls, values: Iterable[float], start: float, end: float, margin: float = 0.0) -> "Axis":
        """An axis for these values, at least one, with a margin as a share of their span."""
        known = list(values)
        low, high = min(known), max(known)
        room = margin * (high - low) or (0.0 if high > low else abs(high) * 0.1 or 1.0)
        return cls(low - room, high + room, start, end)

    def at(self, value: float) -> float:
        """The position of a value."""
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 5) -> list[float]:
        """At most `most` + 1 round values on the axis."""
        least = (self.high - self.low) / most
        magnitude = 10.0 ** floor(log10(least))
        step = next(size * magnitude for size in STEPS if size * magnitude >= least * (1 - 1e-9))
        first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def tick_text(value: float) -> str:
    """A tick without digits that say nothing."""
    return "0" if abs(value) < 1e-12 else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
