"""Curves over the steps of a training, drawn as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from turret.training.markup.axis import Axis, tick_text
from turret.training.markup.elements import Html, element

WIDTH, HEIGHT = 460, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 14, 22
UNIT_ROOM = 40
# Points of longer lines are not drawn.
MOST_DOTS = 40


@dataclass(frozen=True)
class Line:
    """One line: its label, values by step, and a class of the stylesheet such as `c1`."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]
    style: str = "c1"


@dataclass(frozen=True)
class Mark:
    """A point that stands out, with words."""

    step: float
    value: float
    label: str
    style: str = "c1"


def line_chart(title: str, lines: Sequence[Line], marks: Sequence[Mark] = (), legend: bool = False) -> Html:
    """A figure with one chart; without any value it says so."""
    drawn = [line for line in lines if line.values]
    caption = element("figcaption", title, _legend(drawn) if legend else None)
    if not drawn:
        return element("figure", caption, element("p", "Nothing was recorded.", class_="note"))
    x = Axis.of([0.0, *(step for line in drawn for step in line.steps)], LEFT, WIDTH - RIGHT)
    y = Axis.of((value for line in drawn for value in line.values), HEIGHT - BOTTOM, TOP, margin=0.06)
    body = [*_grid(x, y), *(part for line in drawn for part in _line(line, x, y))]
    body += [part for mark in marks for part in _mark(mark, x, y)]
    return element(
        "figure",
        caption,
        element("svg", body, class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title),
    )


def _grid(x: Axis, y: Axis) -> list[Html]:
    parts = []
    for value in y.ticks():
        height = y.at(value)
        parts += [
            element("line", x1=x.start, x2=x.end, y1=height, y2=height, class_="grid"),
            element("text", tick_text(value), x=LEFT - 6, y=height + 3.5, text_anchor="end"),
        ]
    for value in x.ticks():
        if x.end - x.at(value) < UNIT_ROOM or not value.is_integer():
            continue  # the unit stands there, or there is no such step
        parts.append(
            element("text", tick_text(value), x=x.at(value), y=HEIGHT - BOTTOM + 15, text_anchor="middle")
        )
    parts.append(element("text", "step", x=x.end, y=HEIGHT - BOTTOM + 15, text_anchor="end"))
    return parts


def _line(line: Line, x: Axis, y: Axis) -> list[Html]:
    points = [(x.at(step), y.at(value)) for step, value in zip(line.steps, line.values, strict=True)]
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
    parts = [element("polyline", points=path, class_=f"line {line.style}")]
    if len(points) <= MOST_DOTS:
        for (across, down), step, value in zip(points, line.steps, line.values, strict=True):
            tip = element("title", f"{line.label}: {value:.4g} at step {step:,.0f}")
            parts.append(element("circle", tip, cx=across, cy=down, r=2.0, class_=f"dot {line.style}"))
    return parts


def _mark(mark: Mark, x: Axis, y: Axis) -> list[Html]:
    across, down = x.at(mark.step), y.at(mark.value)
    is_right = across > (x.start + x.end) / 2
    is_high = down < y.end + 22
    return [
        element("line", x1=across, x2=across, y1=y.start, y2=y.end, class_=f"best {mark.style}"),
        element("circle", cx=across, cy=down, r=4.5, class_=f"ring {mark.style}"),
        element(
            "text",
            mark.label,
            x=across - 8 if is_right else across + 8,
            y=down + 20 if is_high else down - 9,
            text_anchor="end" if is_right else "start",
            class_="label",
        )
        if mark.label
        else Html(),
    ]


def _legend(lines: Sequence[Line]) -> Html:
    labels = {line.label: line.style for line in lines}
    return element("span", [key(label, style) for label, style in labels.items()], class_="legend")


def key(label: str, style: str) -> Html:
    """An entry of a legend: a swatch and a label."""
    swatch = element(
        "svg",
        element("rect", width=10, height=10, rx=2, class_=f"fill {style}"),
        viewBox="0 0 10 10",
        width=10,
        height=10,
        aria_hidden="true",
    )
    return element("span", swatch, label, class_="key")
