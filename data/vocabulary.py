"""Ids and their rows."""

import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from unicodedata import combining, normalize

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError

Id = int | str
ID_LENGTH = 512  # characters: the longest id that data may hold and a request may name
STRANGER = "session:"  # begins the id of a user who is known by a session alone; the session's id follows

NORMAL_FORM: Literal["NFC"] = "NFC"
"""The Unicode form of all ids, in which é is one character."""

_WITHOUT_WIDTH = "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\ufeff"
BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001)))) + _WITHOUT_WIDTH
"""Characters that belong to no id at its ends: blanks, and marks of byte order or direction of writing."""

_MOST_SIGNS = 4
# Slots of a look-up table for an id, at least: one id of nine, or fewer, loses its slot to another.
SLOTS = 4
Keys = NDArray[np.int64]
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}")


class Vocabulary:
    """Ids (all integers or all strings) by row, and rows by id.

    An integer vocabulary returns integers, a string vocabulary strings. Look-up converts between integers and
    strings where that is unambiguous, because ids travel through URLs and CSV files: "42" finds 42 and 42
    finds "42", but "042" finds neither.

    Raises DataError when an id occurs twice or the ids are of mixed kinds.
    """

    kind: Literal["integer", "string"]
    all_ids: list[Id]
    """The ids by row."""

    def __init__(self, ids: Sequence[int] | Sequence[str]) -> None:
        self.all_ids = list(ids)
        types = set(map(type, self.all_ids))
        if not (types <= {int} or types == {str}):
            names = ", ".join(sorted(kind.__name__ for kind in types))
            raise DataError(f"a vocabulary holds either integers or strings, not {names}")
        self.kind = "string" if types == {str} else "integer"
        # Integers are their own keys. Texts have Python's hashes of 64 bits, whose secret key each process
        # draws: of 10^12 unknown ids none is likely to have the key of one of a million.
        self._key: Callable[[Any], int] = hash if self.kind == "string" else operator.index
        # Ascending ids, as in prepared data, are distinct: no dictionary is built to check it.
        is_ascending = all(map(operator.lt, self.all_ids, islice(self.all_ids, 1, None)))
        if not is_ascending and len(self._rows) != len(self.all_ids):
            repeated, _ = Counter(self.all_ids).most_common(1)[0]
            raise DataError(f"id {repeated!r} occurs twice in a vocabulary; ids have to be unique")

    def __len__(self) -> int:
        return len(self.all_ids)

    @cached_property
    def _rows(self) -> dict[Id, int]:
        return dict(zip(self.all_ids, range(len(self.all_ids)), strict=True))

    @cached_property
    def _table(self) -> tuple[Keys, NDArray[np.int32]]:
        """The keys by row, and rows by slot (the low bits of a key): of the ids of one slot, one is found."""
        keys = np.fromiter(map(self._key, self.all_ids), np.int64, len(self))
        slots = np.zeros(1 << (SLOTS * len(self)).bit_length(), dtype=np.int32)
        slots[keys & (len(slots) - 1)] = np.arange(len(self), dtype=np.int32)
        return keys, slots

    def row(self, outside_id: Id) -> int | None:
        """Return the row of an id, or None if it is unknown."""
        if isinstance(outside_id, bool):
            return None
        if self.kind == "string":
            return self._rows.get(str(outside_id))
        if isinstance(outside_id, str):
            return self._rows.get(int(outside_id)) if is_canonical_integer(outside_id) else None
        return self._rows.get(outside_id)

    def known_rows(self, ids: Iterable[Id]) -> tuple[NDArray[np.int32], list[Id]]:
        """Return the rows of the known ids, in the order given, and the unknown ids."""
        ids = ids if isinstance(ids, list | tuple) else list(ids)
        # Hot path: reads of a table overlap, where those of a dictionary follow each other. Of 100,000 ids, a
        # request finds 50 in 16 us, and in a dictionary in 24 to 29. A boolean would be found among integers
        # as the 0 or 1 that it equals.
        if len(self) and set(map(type, ids)) == {int if self.kind == "integer" else str}:
            try:
                wanted, (keys, slots) = np.fromiter(map(self._key, ids), np.int64, len(ids)), self._table
            except OverflowError:  # an integer of more than 64 bits
                return find_rows(self.row, ids)
            rows = slots[wanted & (len(slots) - 1)]
            others = (keys[rows] != wanted).nonzero()[0].tolist()
            found = [self._rows.get(ids[place], -1) for place in others]
            if others:
                rows[others] = found
            if -1 not in found:
                return rows, []
        return find_rows(self.row, ids)

    def id(self, row: int) -> Id:
        """Return the id at `row`. Raises IndexError for a row outside 0 .. len - 1 (there is no row -1)."""
        if not 0 <= row < len(self.all_ids):
            raise IndexError(f"row {row} is outside a vocabulary of {len(self.all_ids)} ids")
        return self.all_ids[row]

    def ids(self, rows: Iterable[int] | NDArray[np.integer]) -> list[Id]:
        """Return the ids at `rows`, in their order. Raises IndexError as `id` does."""
        return [self.id(int(row)) for row in rows]

    def save(self, path: Path) -> None:
        """Write the vocabulary to `path` as JSON: `{"kind": ..., "ids": [...]}`."""
        stored = {"kind": self.kind, "ids": self.all_ids}
        path.write_text(json.dumps(stored, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a file of `save`. Raises DataError for another file."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            vocabulary = cls(stored["ids"])
            if len(vocabulary) and vocabulary.kind != stored["kind"]:
                raise ValueError(f"it states {stored['kind']!r} ids, but the ids are {vocabulary.kind}s")
            vocabulary.kind = stored["kind"]
            _ = vocabulary._rows, vocabulary._table  # built now, so that no request waits for them
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(f"{path} does not hold a vocabulary: {error!r}") from None
        return vocabulary


def find_rows(row_of: Callable[[Id], int | None], ids: Iterable[Id]) -> tuple[NDArray[np.int32], list[Id]]:
    """Return the rows that `row_of` gives, in the order of the ids, and the ids for which it gives None."""
    rows: list[int] = []
    unknown: list[Id] = []
    for outside_id in ids:
        row = row_of(outside_id)
        if row is None:
            unknown.append(outside_id)
        else:
            rows.append(row)
    return np.array(rows, dtype=np.int32), unknown


def plain_id(text: str) -> str:
    """Return a text as an id: without blanks around it, and in one Unicode form. A text of blanks stays."""
    if not text.isascii() and _is_quickly_normalized(text):
        text = normalize(NORMAL_FORM, text)
    return text.strip(BLANKS) or text


def _is_quickly_normalized(text: str) -> bool:
    """Tell whether no letter has more combining signs than scripts have: sorting takes quadratic time."""
    run = 0
    for character in text:
        run = run + 1 if combining(character) else 0
        if run > _MOST_SIGNS:
            return False
    return True


def is_canonical_integer(text: str) -> bool:
    """Tell whether an integer of 64 bits prints itself as `text`: "7" and "-3", but not "007" or "7.0"."""
    return _CANONICAL.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63
