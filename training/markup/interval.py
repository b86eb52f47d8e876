"""An interval as a line with a dot, for a cell of a table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from turret.training.markup.elements import Html, element

WIDTH, HEIGHT, MARGIN = 150, 14, 5


@dataclass(frozen=True)
class Scale:
    """The values at the left and the right end of a column of intervals."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[Mapping[str, float]]) -> "Scale":
        """A scale that holds all of these intervals, and zero."""
        ends = [end for value in values for end in (value["low"], value["high"])]
        return cls(min(0.0, *ends), max(0.0, *ends))

    def x(self, value: float) -> float:
        """The position of a value in pixels."""
        span = (self.high - self.low) or 1.0
        return MARGIN + (WIDTH - 2 * MARGIN) * (value - self.low) / span


def interval_line(value: Mapping[str, float], scale: Scale, is_own: bool = True) -> Html:
    """Draw `{mean, low, high}`; `is_own` has the colour of the run, others are grey."""
    middle, zero = HEIGHT / 2, scale.x(0.0)
    style = "own" if is_own else "other"
    line = {"y1": middle, "y2": middle}
    return element(
        "svg",
        element("line", x1=zero, x2=zero, y1=0, y2=HEIGHT, class_="zero"),
        element("line", x1=scale.x(value["low"]), x2=scale.x(value["high"]), class_=f"span {style}", **line),
        element("circle", cx=scale.x(value["mean"]), cy=middle, r=3.2, class_=f"dot {style}"),
        class_="interval",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        aria_hidden="true",
    )
