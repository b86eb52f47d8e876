"""An inverted index: words in order, and the positions of the texts that have each.

The positions of the words with a common beginning are a slice. Scanning the texts takes about ten times as
long for a rare word; benchmarks/page.py measures a search of 100,000 items.
"""

import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
_PORTION = 64  # texts
# Above every character of a folded word.
_LAST = chr(0x10FFFF)


class Postings:
    """The words of `count` texts; `words` has those of each, in the order of the texts."""

    def __init__(self, words: Iterable[Sequence[str]]) -> None:
        codes: dict[str, int] = {}
        coded, positions = array("q"), array("q")
        self.count = 0
        for position, of_text in enumerate(words):
            coded.extend([codes.setdefault(word, len(codes)) for word in of_text])
            positions.extend([position] * len(of_text))
            self.count = position + 1
            if not position % _PORTION:
                time.sleep(0)  # lets other threads run
        self._words = sorted(codes)
        rank = np.empty(len(codes), dtype=np.int64)
        rank[[codes[word] for word in self._words]] = np.arange(len(codes))
        size = max(1, self.count)
        keys = np.unique(rank[np.array(coded, dtype=np.int64)] * size + np.array(positions, dtype=np.int64))
        self._positions = (keys % size).astype(np.int32)
        self._starts = np.searchsorted(keys, np.arange(len(codes) + 1, dtype=np.int64) * size)

    def beginning_with(self, beginning: str) -> Mask:
        """Return the mask of the texts with a word that begins so."""
        first = bisect_left(self._words, beginning)
        last = bisect_left(self._words, beginning + _LAST)
        mask = np.zeros(self.count, dtype=np.bool_)
        mask[self._positions[self._starts[first] : self._starts[last]]] = True
        return mask

    def containing(self, part: str) -> Mask:
        """Return the mask of the texts with a word that has `part` anywhere."""
        has_part = np.fromiter((part in word for word in self._words), np.bool_, len(self._words))
        mask = np.zeros(self.count, dtype=np.bool_)
        mask[self._positions[np.repeat(has_part, np.diff(self._starts))]] = True
        return mask
