"""Elements of HTML and SVG. All text is escaped here, and nowhere else."""

from collections.abc import Iterable
from html import escape

VOID = ("br", "meta")


class Html(str):
    """Text that is markup already; any other text is escaped where it enters an element."""

    __slots__ = ()


Child = str | int | None | Iterable[str]
"""The content of an element: text, markup, a number, several of them, or None for nothing."""


def element(name: str, /, *children: Child, **attributes: str | float | None) -> Html:
    """Build an element; children and attributes that are not `Html` are escaped.

    Args:
        name: the tag.
        children: the content, in order.
        attributes: by name; a trailing underscore is dropped (`class_`), others become hyphens
            (`text_anchor`), and None leaves the attribute out.
    """
    given = {key: value for key, value in attributes.items() if value is not None}
    words = [name, *(f'{_attribute(key)}="{_value(value)}"' for key, value in given.items())]
    opening = f"<{' '.join(words)}>"
    return Html(opening) if name in VOID else Html(f"{opening}{joined(*children)}</{name}>")


def joined(*children: Child) -> Html:
    """Markup of several children after one another."""
    return Html("".join(_markup(child) for child in children))


def _markup(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int):
        return escape(_printable(str(child)), quote=True)
    return "".join(_markup(part) for part in child)


def _printable(text: str) -> str:
    """The text with a mark in place of characters that HTML or UTF-8 do not allow."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter >= " " or letter in "\n\t" else "\ufffd" for letter in plain)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    """A number in a drawing needs no more than a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(_markup(value))
