"""Tables with aligned numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from turret.training.markup.elements import Child, Html, element, joined


@dataclass(frozen=True)
class Column:
    """A column by its heading; `numeric` aligns right, `drawing` holds a picture or muted text."""

    heading: str
    kind: str = field(default="text")

    @property
    def style(self) -> str | None:
        """The class of its cells."""
        return {"text": None, "numeric": "n", "quiet": "q"}[self.kind]


def numeric(heading: str) -> Column:
    """A column of numbers."""
    return Column(heading, "numeric")


def quiet(heading: str) -> Column:
    """A column that explains the one before it: an interval, or a drawing."""
    return Column(heading, "quiet")


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Child]],
    caption: str | None = None,
    marked: Sequence[int] = (),
) -> Html:
    """A table; the first cell of each row is its heading, and rows whose index is `marked` stand out."""
    head = element(
        "tr", [element("th", column.heading, class_=column.style, scope="col") for column in columns]
    )
    body = [
        element("tr", _cells(columns, row), class_="own" if index in marked else None)
        for index, row in enumerate(rows)
    ]
    parts = [element("thead", head), element("tbody", body)]
    title = [] if caption is None else [element("caption", caption)]
    return element(
        "div",
        element("table", title, parts),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption or columns[0].heading,
    )


def _cells(columns: Sequence[Column], row: Sequence[Child]) -> list[Html]:
    first, *rest = zip(columns, row, strict=True)
    heading = element("th", first[1], class_=first[0].style, scope="row")
    return [heading, *(element("td", cell, class_=column.style) for column, cell in rest)]


def facts(pairs: Sequence[tuple[str, Child]]) -> Html:
    """Names and values below each other."""
    return element("dl", [joined(element("dt", name), element("dd", value)) for name, value in pairs])
