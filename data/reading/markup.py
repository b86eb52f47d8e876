"""HTML in the texts of a catalog: entities become letters, and tags are left out."""

from collections.abc import Iterator
from html import unescape
from html.entities import html5
from typing import TypeVar

Value = TypeVar("Value")

MARKS = "<&"
"""Every text with markup has one of these signs."""

# Words end at the borders of block elements, and not at those of inline elements.
_BLOCK_NAMES = """
    address article aside blockquote body br caption center dd div dl dt fieldset figcaption figure footer
    form h1 h2 h3 h4 h5 h6 head header hr html iframe img li main nav ol option p pre section select table
    tbody td tfoot th thead tr ul video
"""
_INLINE_NAMES = """
    a abbr b bdi bdo big button cite code del dfn em font i ins kbd link mark meta nobr o:p picture q s samp
    script small source span strike strong style sub sup svg tt u wbr
"""
_BLOCKS, _INLINE = frozenset(_BLOCK_NAMES.split()), frozenset(_INLINE_NAMES.split())
_LONGEST_NAME = max(map(len, _BLOCKS | _INLINE))
# The keys begin parts that nobody sees, and the values end them.
_HIDDEN = {"<!--": "-->", "<script": "</script>", "<style": "</style>"}
_LONGEST_ENTITY = max(map(len, html5))


def plain_text(text: str) -> str:
    """Return a text without the tags of HTML elements, and with its entities as letters, each decoded once.

    A tag has the name of an element of HTML: "a < b", "<3" and "List<Item>" are no tags, and "R&D" has no
    entity, as entities end with a semicolon. Without its tags, a text has single blanks. The work is linear
    in the length of the text.

    >>> plain_text("<p>Cups &amp;&nbsp;plates</p><p>H<sub>2</sub>O, 3 <4> 5, R&D</p>")
    'Cups & plates H2O, 3 <4> 5, R&D'
    """
    if not any(mark in text for mark in MARKS):
        return text
    bare = "".join(_without_tags(text)) if "<" in text else text
    decoded = _decoded(bare) if "&" in bare else bare
    if bare != text:
        return " ".join(decoded.split())
    return decoded if decoded == text else decoded.replace("\xa0", " ").strip()


def plain_value(value: Value) -> Value:
    """Apply `plain_text` to a text, or to the texts of a list; other values are unchanged."""
    if isinstance(value, str):
        return plain_text(value)  # type: ignore[return-value]
    if isinstance(value, list):
        return [plain_text(entry) if isinstance(entry, str) else entry for entry in value]  # type: ignore[return-value]
    return value


def _without_tags(text: str) -> Iterator[str]:
    """Yield the parts of a text between its tags, and a blank for the tag of a block."""
    lasts = {opening: text.rfind(ending) for opening, ending in _HIDDEN.items()}
    start, at = 0, text.find("<")
    while at >= 0:
        following = text.find("<", at + 1)
        end, blank = _tag(text, at, following if following >= 0 else len(text))
        hidden = next((begin for begin in _HIDDEN if text.startswith(begin, at) and lasts[begin] > at), None)
        if hidden is not None and (end or hidden == "<!--"):
            end = text.find(_HIDDEN[hidden], at) + len(_HIDDEN[hidden])
            following = text.find("<", end)
        if end:
            yield text[start:at]
            yield blank
            start = end
        at = following
    yield text[start:]


def _tag(text: str, at: int, following: int) -> tuple[int, str]:
    """Return the end of the tag at "<", before the next "<", and the text in its place; 0 for no tag."""
    closes, end = text.startswith("</", at), text.find(">", at, following)
    inner = text[at + 1 + closes : end] if end >= 0 else ""
    name = inner[: _LONGEST_NAME + 1].replace("/", " ").partition(" ")[0].split("\n")[0].strip().lower()
    rest = inner[len(name) :].strip()
    if name not in _BLOCKS and name not in _INLINE:
        return 0, ""
    # "a <b and c> d" compares.
    if rest not in ("", "/") and (closes or (len(name) == 1 and "=" not in rest)):
        return 0, ""
    return end + 1, " " if name in _BLOCKS else ""


def _decoded(text: str) -> str:
    first, *others = text.split("&")
    return first + "".join(map(_entity, others))


def _entity(text: str) -> str:
    """Return the text behind a "&" with the letter in place of its entity, or with the "&"."""
    name = text[: text.find(";", 0, _LONGEST_ENTITY) + 1]
    if name in html5:
        return html5[name] + text[len(name) :]
    # `unescape` would read only a part of a number with other signs behind it.
    letter = unescape(f"&{name}") if name.startswith("#") else ""
    return letter + text[len(name) :] if len(letter) == 1 else f"&{text}"
