"""The texts of catalogs and requests as numbers, lists, levels of paths, dates and grams."""

import json
import math
import re
from itertools import islice

import numpy as np

QUERY = "query"
"""The feature that holds the text of a query."""

# The unit separator, which no text has, stands between the text and the context of a query in its id.
CONTEXT = "\x1f"


def text_of(query: object) -> str:
    """Return the text of a query by its id, which may have the digest of a context behind it."""
    return str(query).partition(CONTEXT)[0]


SEPARATORS = ">/|"
"""The separators of the levels of a path, with or without spaces around them."""
BETWEEN = " > "
"""The separator in `levels`."""
MOST_LEVELS = 10
"""The levels of a path that are read; further ones are left out."""

LIST_SEPARATOR = "|"
"""The separator of lists in texts where no other is stated or found."""

FORM_SEPARATOR = "|"
"""The separator of the formats of dates in `Feature.written`."""

SIGNS = r"[\s\u00a0\u202f'\u2019%]|[$€£¥₹]|\b(?:EUR|USD|GBP|CHF|SEK|NOK|DKK|PLN|JPY|CNY|INR|kr|zł|Fr\.)"
"""A pattern of signs in texts of numbers that are left out, for `re` and for Polars."""
_SIGN = re.compile(SIGNS)
_WORD = re.compile(r"\w+")
_AS_SLASHES = str.maketrans(SEPARATORS, "/" * len(SEPARATORS))


def levels(path: str) -> list[str]:
    """Return a path and the paths above it, the highest first.

    >>> levels("Women > Shoes/Boots")
    ['Women', 'Women > Shoes', 'Women > Shoes > Boots']
    """
    # An expression with the blanks around a separator would scan a long run of blanks again from each of its
    # blanks; an expression of the separators alone takes twice as long, and a client's path may hold nothing
    # else.
    parts = list(islice(filter(None, map(str.strip, path.translate(_AS_SLASHES).split("/"))), MOST_LEVELS))
    return [BETWEEN.join(parts[:count]) for count in range(1, len(parts) + 1)]


def number_form(decimal: str) -> str:
    """Return the pattern of a number without signs; the other one of "." and "," groups thousands."""
    thousands = "." if decimal == "," else ","
    grouped = rf"[0-9]{{1,3}}(?:[{thousands}][0-9]{{3}})+(?:[{decimal}][0-9]*)?"
    simple = rf"(?:[0-9]+(?:[{decimal}][0-9]*)?|[{decimal}][0-9]+)(?:[eE][+-]?[0-9]+)?"
    return rf"[+-]?(?:{grouped}|{simple})"


_FORMS = {decimal: re.compile(number_form(decimal)) for decimal in ".,"}


def number_of(text: str, mark: str = "") -> float | None:
    """Read a text with one number as in a column of numbers; None if the decimal mark is ambiguous.

    A stated decimal `mark` resolves the ambiguity.

    >>> number_of("€ 1,299.00"), number_of("12,5 %"), number_of("1.299")
    (1299.0, 12.5, None)
    """
    bare, readings = _SIGN.sub("", text), set()
    for decimal, thousands in (".,", ",."):
        if mark in ("", decimal) and _FORMS[decimal].fullmatch(bare):
            readings.add(float(bare.replace(thousands, "").replace(decimal, ".")))
    value = readings.pop() if len(readings) == 1 else math.inf
    return value if math.isfinite(value) else None


def list_of(text: str, separator: str) -> list[str] | None:
    """Read a list in JSON, or values between separators; None for a text in brackets that is no JSON.

    >>> list_of("red; blue", ";"), list_of('["red", "blue"]', ";")
    (['red', 'blue'], ['red', 'blue'])
    """
    values = text.split(separator)
    if text.startswith("[") and text.endswith("]"):
        try:
            values = json.loads(text)  # brackets hold a list
        except (ValueError, RecursionError):
            return None
    printed = (str(value).strip() for value in values if value is not None)
    return [value for value in printed if value]


def date_features(name: str, days: float) -> dict[str, object]:
    """Return the features of a date in days since 1970: an item's age, up to a constant, and its season."""
    month = np.datetime64(int(days), "D").astype("datetime64[M]").astype(int) % 12 + 1
    return dict(zip(date_names(name), (days, str(month)), strict=True))


def date_names(name: str) -> tuple[str, str]:
    """Return the names of the two features of a date."""
    return f"{name}_days", f"{name}_month"


def grams(text: str, words: bool) -> list[str]:
    """Return the letter trigrams of a text and, with `words`, then its words, each marked as "=good"."""
    windows = trigrams(text)
    return [*windows, *(f"={word}" for word in _WORD.findall(text.casefold()))] if words else windows


def trigrams(text: str) -> list[str]:
    """Split `text` into the letter trigrams of its words, in order and with repeats.

    Every word is folded to lower case, set between '#' marks and cut into windows of three letters:
    "good" gives "#go", "goo", "ood", "od#" (Huang et al. 2013, "Learning deep structured semantic models
    for web search using clickthrough data", section 3.2). A word is a run of letters, digits and
    underscores; a word of one letter gives one trigram.
    """
    marked = (f"#{word}#" for word in _WORD.findall(text.casefold()))
    return [word[start : start + 3] for word in marked for start in range(len(word) - 2)]
