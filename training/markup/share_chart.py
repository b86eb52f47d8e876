"""Shares in groups as bars beside each other, drawn as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from turret.training.markup.axis import Axis
from turret.training.markup.elements import Html, element
from turret.training.markup.line_chart import key

WIDTH, HEIGHT = 940, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 4, 12, 36
GAP = 0.28


@dataclass(frozen=True)
class Bars:
    """One bar a group: a label, shares between 0 and 1, and a class of the stylesheet."""

    label: str
    shares: Sequence[float]
    style: str


def share_chart(title: str, unit: str, groups: Sequence[str], series: Sequence[Bars]) -> Html:
    """A figure with the bars of all series beside each other in every group."""
    highest = max(share for bars in series for share in bars.shares)
    y = Axis(0.0, highest * 1.05 or 1.0, HEIGHT - BOTTOM, TOP)
    width = (WIDTH - LEFT - RIGHT) / len(groups)
    legend = element("span", [key(bars.label, bars.style) for bars in series], class_="legend")
    body = [*_grid(y), *_labels(groups, unit, width)]
    for number, bars in enumerate(series):
        body += _bars(bars, groups, number, len(series), y, width)
    chart = element(
        "svg", body, class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title
    )
    return element("figure", element("figcaption", title, legend), chart, class_="wide")


def _grid(y: Axis) -> list[Html]:
    parts = []
    for value in y.ticks(4):
        height = y.at(value)
        parts += [
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=height, y2=height, class_="grid"),
            element(
                "text",
                f"{value:.3g}" if not value else f"{value * 100:.3g} %",
                x=LEFT - 6,
                y=height + 3.5,
                text_anchor="end",
            ),
        ]
    return parts


def _labels(groups: Sequence[str], unit: str, width: float) -> list[Html]:
    labels = [
        element("text", group, x=LEFT + (index + 0.5) * width, y=HEIGHT - BOTTOM + 15, text_anchor="middle")
        for index, group in enumerate(groups)
    ]
    return [*labels, element("text", unit, x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end")]


def _bars(bars: Bars, groups: Sequence[str], number: int, of: int, y: Axis, width: float) -> list[Html]:
    thick = width * (1 - GAP) / of
    parts = []
    for index, (group, share) in enumerate(zip(groups, bars.shares, strict=True)):
        left = LEFT + index * width + width * GAP / 2 + number * thick
        tip = element("title", f"{bars.label}, {group}: {share:.1%}")
        top = y.at(share)
        parts.append(
            element(
                "rect",
                tip,
                x=left,
                y=top,
                width=max(thick - 1.5, 1.0),
                height=max(y.start - top, 0.0),
                rx=1.5,
                class_=f"fill {bars.style}",
            )
        )
    return parts
