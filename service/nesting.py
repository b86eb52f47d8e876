"""How deeply JSON may be nested."""

import re

DEPTH_LIMIT = 32
# A text, also one that never ends; possessive, as going back would take the square of its length.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = b"[]{}"
_ALIKE = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(one for one in range(256) if one not in _BRACKETS)


def is_too_deep(body: bytes, limit: int = DEPTH_LIMIT) -> bool:
    """Whether lists and objects are nested more than `limit` deep; looked at before anything is parsed.

    A body with no more brackets than that can't be, which two counts tell of nearly every request. Else the
    innermost pairs are taken out level by level: `limit` passes over the brackets, however many there are.
    """
    if body.count(b"[") + body.count(b"{") <= limit:
        return False
    left = _TEXT.sub(b"", body).translate(_ALIKE, _OTHERS)
    for _ in range(limit):
        shorter = left.replace(b"[]", b"")
        if len(shorter) == len(left):
            break
        left = shorter
    # What is left has pairs further in, or brackets that no other closes, which no parser should go into.
    return b"[]" in left or left.count(b"[") > limit
