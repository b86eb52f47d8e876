"""Search of words in the texts of many items, in an order of preference."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from turret.service.search.postings import Mask, Postings

# How an item matches, best first.
NAME_BEGINS, NAME_HAS_WORDS, HAS_WORDS, HAS_PARTS = range(4)


class ItemTexts(NamedTuple):
    """The folded texts of an item: its names (id and title), and the others."""

    names: list[str]
    others: list[str]


class TextIndex:
    """The texts of items, in their order of preference."""

    def __init__(self, texts: Iterable[ItemTexts]) -> None:
        items = list(texts)
        self._first = Postings([name.split(maxsplit=1)[0] for name in item.names if name] for item in items)
        self._names = Postings(" ".join(item.names).split() for item in items)
        self._all = Postings(" ".join([*item.names, *item.others]).split() for item in items)

    def matches(self, query: str) -> Iterator[tuple[int, int]]:
        """Yield the rank and the position of each item that a folded query matches, best first.

        The ranks: a name begins with the first word, and names have all words; names have all
        words; any texts have them; they have them inside of words. But in the last rank, a word of the query
        matches one that begins with it.
        """
        words = query.split()
        seen = np.zeros(self._all.count, dtype=np.bool_)
        for rank, mask in enumerate(self._masks(words)):
            yield from ((rank, position) for position in np.flatnonzero(mask & ~seen).tolist())
            seen |= mask

    def _masks(self, words: list[str]) -> Iterator[Mask]:
        in_names = _all_of(self._names.beginning_with(word) for word in words)
        yield in_names & self._first.beginning_with(words[0])
        yield in_names
        yield _all_of(self._all.beginning_with(word) for word in words)
        yield _all_of(self._all.containing(word) for word in words)


def _all_of(masks: Iterable[Mask]) -> Mask:
    return np.logical_and.reduce(list(masks))  # type: ignore[no-any-return]
