"""Where a page ended: what the next one begins after, in one version's order."""

import base64
import binascii
import math
from dataclasses import dataclass
from typing import Any

import orjson

from service.errors import RequestError
from tower.pointer import is_version

_MESSAGE = "this is no cursor of an answer; send `cursor` of the page before as it came, or leave it out"
LENGTH = 300


@dataclass(frozen=True)
class Cursor:
    """The place after an item in the order of one version.

    Attributes:
        version: whose order it is.
        asked: when the first page was asked for, in milliseconds since 1970: what a user does after
            that does not move the pages that follow.
        shown: how many items the pages so far had.
        score: of the last of them.
        row: of the last of them, which comes before higher rows of the same score.
    """

    version: str
    asked: int
    shown: int
    score: float
    row: int

    def text(self) -> str:
        """Write it in letters that a URL may have."""
        parts = (self.version, self.asked, self.shown, self.score, self.row)
        return base64.urlsafe_b64encode(orjson.dumps(parts)).rstrip(b"=").decode()


def read_cursor(text: str) -> Cursor:
    """Read what `Cursor.text` wrote. Raises RequestError (422) for anything else."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        parts = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        parts = None
    if not _is_sound(parts):
        raise RequestError(422, "cursor", text, _MESSAGE)
    version, asked, shown, score, row = parts
    return Cursor(version, asked, shown, float(score), row)


def _is_sound(parts: Any) -> bool:
    if not isinstance(parts, list) or len(parts) != 5:
        return False
    version, asked, shown, score, row = parts
    return (
        isinstance(version, str)
        and is_version(version)
        and all(type(one) is int for one in (asked, shown, row))
        and type(score) in (int, float)
        and math.isfinite(score)
        and abs(asked) < 2**53
        and 0 <= shown < 2**31
        and 0 <= row < 2**31
    )
