"""Texts as search compares them: without case, accents and punctuation."""

import unicodedata

# Letters that Unicode does not decompose into a base letter and an accent.
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "\u0131": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d"}
)
_ASCII = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))


def fold(text: str) -> str:
    """Return the words of a text in lower case, without accents, separated by single spaces.

    >>> fold("Amélie - Straße Nr. 5")
    'amelie strasse nr 5'
    """
    if text.isascii():
        return " ".join(text.lower().translate(_ASCII).split())
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(letter for letter in decomposed if not unicodedata.combining(letter)).translate(_LETTERS)
    return " ".join("".join(letter if letter.isalnum() else " " for letter in bare).split())
