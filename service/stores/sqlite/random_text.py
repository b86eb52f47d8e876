"""A random text between two others, to draw a key of an index without reading it."""

import random
from itertools import takewhile

_LENGTH = 8  # random characters: more than enough to tell keys apart
_DIGITS = "0123456789"


def text_between(first: str, last: str) -> str:
    """Return a random text, in the order of code points not before `first` and perhaps after `last`.

    It begins as both do; then comes a character between the first two that differ, then any that they have.
    """
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = "".join(letter for letter, _ in equal)
    letters: list[str] = sorted({*first[len(shared) :], *last[len(shared) :]})
    if not letters:
        return shared
    if all(letter in _DIGITS for letter in letters):
        letters = list(_DIGITS)
    low, high = first[len(shared) : len(shared) + 1], last[len(shared) : len(shared) + 1]
    begin = [letter for letter in letters if low <= letter <= high] or [high]
    return shared + random.choice(begin) + "".join(random.choice(letters) for _ in range(_LENGTH))
