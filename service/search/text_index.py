"""Search of words in the texts of many items, in an order of preference.

All texts stand in blocks of bytes, and `bytes.find` scans a block of 256 KB in about .1 ms. So a query of
100,000 items takes some milliseconds at most, and an index of words would need several times the memory.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

_BLOCK_BYTES = 256 * 1024
# Before each name of an item, and before each of its other texts. The words of a text have a space before
# them, so that the start of a word can be found.
_NAME, _OTHER = b"\x1d", b"\x1f"


def searchable(names: Iterable[str], others: Iterable[str]) -> bytes:
    """Join the folded texts of an item: its names (id and title), and the others."""
    pieces = [_NAME + b" " + name.encode() for name in names]
    pieces += [_OTHER + b" " + text.encode() for text in others]
    return b"".join(pieces)


class TextIndex:
    """The texts of items, in their order of preference; see `searchable`."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._blocks: list[tuple[int, bytes, list[int]]] = []  # first position, texts, offsets
        self._count = 0
        pending: list[bytes] = []
        size = 0
        for text in texts:
            pending.append(text)
            size += len(text)
            if size >= _BLOCK_BYTES:
                self._add(pending)
                pending, size = [], 0
        self._add(pending)

    def __len__(self) -> int:
        return self._count

    def _add(self, texts: Sequence[bytes]) -> None:
        offsets = [0]
        for text in texts:
            offsets.append(offsets[-1] + len(text))
        self._blocks.append((self._count, b"".join(texts), offsets))
        self._count += len(texts)

    def matches(self, needle: bytes, accepts: Callable[[bytes], bool]) -> Iterator[int]:
        """Yield the positions of the texts that hold `needle` and are accepted, in order."""
        for first, block, offsets in self._blocks:
            at = block.find(needle)
            while at >= 0:
                position = bisect_right(offsets, at) - 1
                end = offsets[position + 1]
                if accepts(block[offsets[position] : end]):
                    yield first + position
                at = block.find(needle, end)
            time.sleep(0)  # lets other threads run: a scan holds the interpreter


class Rank:
    """One way in which the words of a folded query match an item; better ones come first."""

    def __init__(self, needle: str, accepts: Callable[[bytes], bool]) -> None:
        self._needle = needle.encode()
        self._accepts = accepts

    def matches(self, index: TextIndex) -> Iterator[int]:
        """Yield the positions in an index, in order."""
        return index.matches(self._needle, self._accepts)


def ranks(query: str) -> tuple[Rank, ...]:
    """The ranks of a folded query that is not empty.

    A name begins with the query; each word of the query begins a word of a name; each begins a word of any
    text; each occurs somewhere.
    """
    words = query.split()
    longest = max(words, key=len)
    begun = [f" {word}".encode() for word in words]
    inside = [word.encode() for word in words]
    return (
        Rank(f"{_NAME.decode()} {query}", lambda text: True),
        Rank(f" {longest}", lambda text: _has_all(text.partition(_OTHER)[0], begun)),
        Rank(f" {longest}", lambda text: _has_all(text, begun)),
        Rank(longest, lambda text: _has_all(text, inside)),
    )


def _has_all(text: bytes, words: Sequence[bytes]) -> bool:
    return all(word in text for word in words)
