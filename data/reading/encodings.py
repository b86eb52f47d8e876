"""Advice on the encoding of a text that is not in its stated encoding, without loss of any letter."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

_HEAD = 1 << 20
_FEWEST = 0.7
# These are the letters of western Europe. A sign between them, or a capital after a small letter, shows
# another encoding, and so do the letters of Iceland, which stand for frequent letters of Turkish.
_SMALL, _CAPITAL = "a-zªºß-ïñ-öø-üÿšžœ", "A-ZÀ-ÏÑ-ÖØ-ÜŠŽŒŸ"
_LETTER = _SMALL + _CAPITAL
_FOREIGN = re.compile(
    rf"[ðþýÐÞÝ]|[{_LETTER}][^\x00-\x7f{_LETTER}\xad\u2019·][{_LETTER}]|[{_SMALL}][À-ÏÑ-ÖØ-ÜŠŽŒŸ]"
)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7fß\u2019]+")
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


def encoding_sentence(path: Path, encoding: str, content: Path | None = None) -> str:
    """Return the message that the text of `path` is not in `encoding`; `content` has the plain bytes.

    Another encoding is advised only if it gives plausible text: latin-1 decodes the bytes of every encoding.
    """
    place, remedy = "", "state its own with --encoding, such as gbk, big5, shift_jis, cp1250 or cp1251"
    if content is not None:
        with content.open("rb") as stream:
            head = stream.read(_HEAD)
        place = _first_wrong(content, encoding)
        if advised := next((name for name in _plausible(head) if not _is_same(name, encoding)), None):
            remedy = f"try --encoding {advised}"
        elif _is_same(encoding, "utf-8") and _is_nearly_utf8(head):
            remedy = "correct this byte"
    return f"{path} is not text in the encoding {encoding!r}{place}; {remedy}"


def _is_same(encoding: str, other: str) -> bool:
    return codecs.lookup(encoding).name == codecs.lookup(other).name


def _is_nearly_utf8(head: bytes) -> bool:
    """Tell whether most characters beyond ASCII are in UTF-8; some characters of GBK are by chance."""
    text = head.decode(errors="replace")
    wrong = text.count("\ufffd")
    return 5 * wrong <= sum(map(len, _BEYOND_ASCII.findall(text)))


def _first_wrong(content: Path, encoding: str) -> str:
    """Return the first line and byte that are not in the encoding, if its lines end as in ASCII."""
    with content.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError as error:
                is_wide = encoding.startswith(("utf-16", "utf-32"))
                return "" if is_wide else f" (line {number:,}, byte {error.start + 1:,})"
            except UnicodeError:
                return ""
    return ""


def _plausible(head: bytes) -> Iterator[str]:
    """Yield the encodings in which the first bytes of a file are plausible text."""
    if b"\0" in head:
        for wide in _WIDE:
            text = _decoded(head, wide)
            if text and "\n" in text and "\0" not in text:
                yield wide
        return
    if _decoded(head, "utf-8") is not None:
        yield "utf-8"
    western = _decoded(head, "cp1252") or ""
    runs = _BEYOND_ASCII.findall(western)
    # Letters of other scripts are many and stand side by side, and letters of two bytes always do.
    if runs and not _FOREIGN.search(western) and sum(len(run) == 1 for run in runs) >= _FEWEST * len(runs):
        yield "cp1252"


def _decoded(head: bytes, encoding: str) -> str | None:
    """Return the text of the first bytes, whose last character may be cut off."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head, final=len(head) < _HEAD)
    except UnicodeError:
        return None
