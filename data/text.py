"""Text as letter trigrams, the word hashing of DSSM."""

import re

_WORD = re.compile(r"\w+")


def trigrams(text: str) -> list[str]:
    """Split `text` into the letter trigrams of its words, in order and with repeats.

    Every word is folded to lower case, set between '#' marks and cut into windows of three letters:
    "good" gives "#go", "goo", "ood", "od#" (Huang et al. 2013, "Learning deep structured semantic models
    for web search using clickthrough data", section 3.2). A word is a run of letters, digits and
    underscores; a word of one letter gives one trigram.
    """
    marked = (f"#{word}#" for word in _WORD.findall(text.casefold()))
    return [word[start : start + 3] for word in marked for start in range(len(word) - 2)]
