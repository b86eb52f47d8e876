"""The picture of the whole for README: docs/overview.toml drawn as SVG, in light and dark colours.

The text is what people edit and compare; `make docs` draws the pictures from it.
"""

import tomllib
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks.pages import render

Scheme = Literal["light", "dark"]
TEXT = Path(__file__).parent.parent / "docs" / "overview.toml"
PICTURES: dict[str, Scheme] = {"overview_light.svg": "light", "overview_dark.svg": "dark"}
# The colours of the page in the browser (service/page/static/style.css).
COLOURS: dict[Scheme, dict[str, str]] = {
    "light": {"box": "#ffffff", "line": "#c9c4ba", "ink": "#1c1e21", "soft": "#565a61", "accent": "#0b6b5d"},
    "dark": {"box": "#1b1e21", "line": "#444a50", "ink": "#e9e7e2", "soft": "#a7abb2", "accent": "#6bd0bd"},
}
# In units of the picture: two columns of boxes, so that texts can be read on a telephone.
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 280, 112, 84, 34, 4


class Step(NamedTuple):
    """A box of the picture: its texts, and its upper left corner."""

    name: str
    holds: str
    by: str
    x: int
    y: int


def overview(scheme: Scheme) -> str:
    """The picture as SVG, in the colours of a scheme."""
    text = tomllib.loads(TEXT.read_text("utf-8"))
    rows = len(text["steps"]) // 2
    places = [(0, row) for row in range(rows)] + [(1, row) for row in reversed(range(rows))]
    steps = [
        Step(
            **step,
            x=MARGIN + column * (BOX_WIDTH + GAP_X),
            y=MARGIN + row * (BOX_HEIGHT + GAP_Y),
        )
        for step, (column, row) in zip(text["steps"], places, strict=True)
    ]
    size = {
        "width": 2 * (BOX_WIDTH + MARGIN) + GAP_X,
        "height": rows * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN,
        "box_width": BOX_WIDTH,
        "box_height": BOX_HEIGHT,
    }
    arrows = [_arrow(start, end) for start, end in zip(steps, [*steps[1:], steps[0]], strict=True)]
    back = {"name": text["back"]["name"], "x": MARGIN + BOX_WIDTH + GAP_X // 2, "y": MARGIN + BOX_HEIGHT // 2}
    return render("overview.svg", steps=steps, arrows=arrows, back=back, colours=COLOURS[scheme], **size)


def _arrow(start: Step, end: Step) -> tuple[int, int, int, int]:
    """The ends of the line from a box to a box beside, above or below it."""
    if start.x == end.x:
        x = start.x + BOX_WIDTH // 2
        return (x, start.y + BOX_HEIGHT, x, end.y) if start.y < end.y else (x, start.y, x, end.y + BOX_HEIGHT)
    y = start.y + BOX_HEIGHT // 2
    return (start.x + BOX_WIDTH, y, end.x, y) if start.x < end.x else (start.x, y, end.x + BOX_WIDTH, y)
