"""Items by their id and by the text of their fields, as `GET /v1/items?query=` finds them."""

import asyncio
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import merge
from itertools import islice
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import orjson

from turret.data.vocabulary import Id
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.search.catalog_fields import title_of
from turret.tower.bundle.bundle import Bundle

# Pages end here: nobody reads on, and each page searches from the beginning.
MOST_RESULTS = 10_000
_WORD = re.compile(r"[^\W_]+")
# Letters that Unicode does not decompose into a base letter and an accent.
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "\u0131": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d"}
)
_SPARE = 1_000  # outdated texts that the index of changes may have besides as many as there are changes
Key = TypeVar("Key", bound=int | str)
Result = TypeVar("Result")


class CatalogSearch:
    """Searches the items of a version with its overlay, in a thread of its own.

    The texts of a version are read at its first search, a second for 100,000 items, and take about 250 bytes
    an item.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "search")
        self._versions: WeakKeyDictionary[Bundle, _SearchedVersion] = WeakKeyDictionary()

    async def page(
        self, bundle: Bundle, fresh: FreshItems, query: str, start: int, limit: int
    ) -> tuple[list[int], bool]:
        """Return the rows of the best matches from `start`, and whether more follow; "" matches all items.

        Of equally good matches, items that were added since the export come first, the newest first, then the
        most popular.
        """

        def search() -> tuple[list[int], bool]:
            version = self._versions.get(bundle)
            if version is None:
                version = self._versions[bundle] = _SearchedVersion(bundle)
            found = list(islice(version.matches(fresh, query), start, start + limit + 1))
            return found[:limit], len(found) > limit and start + limit < MOST_RESULTS

        return await self.run(search)

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call of about the same cost in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def close(self) -> None:
        """Finish the searches under way."""
        await asyncio.to_thread(self._thread.shutdown)


class _SearchedVersion:
    """The items of one version, the most popular first, and those of its latest overlay."""

    def __init__(self, bundle: Bundle) -> None:  # which it doesn't keep, so that a version can be closed
        self._title = title_of(bundle.catalog)
        self._rows: list[int] = np.argsort(-bundle.popularity, kind="stable").tolist()
        self._places = dict(zip(self._rows, range(len(self._rows)), strict=True))
        catalog, vocabulary = bundle.catalog, bundle.vocabulary
        self._items = _Index[int]()
        self._items.add((row, self._texts(vocabulary.id(row), catalog.json_of(row))) for row in self._rows)
        # The row of a known item, the id of another, with the fields that the index has of it.
        self._changed: dict[int | str, bytes] = {}
        self._changes = _Index[int | str]()
        self._overlay: FreshItems | None = None

    def matches(self, fresh: FreshItems, query: str) -> Iterator[int]:
        """Yield the rows of the matching items that are not withdrawn, best first, each once."""
        seen = set(fresh.withdrawn.tolist())
        for row in self._ranked(fresh, query):
            if row not in seen:
                seen.add(row)
                yield row

    def _ranked(self, fresh: FreshItems, query: str) -> Iterator[int]:
        self._follow(fresh)
        exact = fresh.row(query.strip())
        if exact is not None:
            yield exact
        words = _WORD.findall(fold(query))
        if not words:
            yield from (fresh.first_row + place for place in reversed([*fresh.positions.values()]))
            yield from self._rows
            return
        for rank in _ranks(words):
            found = [key for key in self._changes.matches(rank) if key in self._changed]
            added = (fresh.first_row + fresh.positions[key] for key in found if isinstance(key, str))
            yield from sorted(added, reverse=True)
            replaced = sorted((key for key in found if isinstance(key, int)), key=self._places.__getitem__)
            others = (row for row in self._items.matches(rank) if row not in self._changed)
            yield from merge(replaced, others, key=self._places.__getitem__)

    def _follow(self, fresh: FreshItems) -> None:
        """Index what has changed since the overlay of the last search."""
        if fresh is self._overlay:
            return
        added = [(item, fresh.added.by_row[place]) for item, place in fresh.positions.items()]
        changed: list[tuple[int | str, bytes]] = [*fresh.replaced.by_row.items(), *added]
        fields = dict(changed)
        if len(self._changes) > 2 * len(fields) + _SPARE:
            self._changed, self._changes = {}, _Index[int | str]()
        new = {key: text for key, text in fields.items() if self._changed.get(key) is not text}
        self._changes.add(
            (key, self._texts(key if isinstance(key, str) else fresh.id(key), text))
            for key, text in new.items()
        )
        self._changed, self._overlay = fields, fresh

    def _texts(self, item_id: Id, fields: bytes) -> tuple[str, str, str]:
        """The first words of an item's names (id and title), its names, and its other texts, folded."""
        parsed: dict[str, Any] = orjson.loads(fields)
        title = parsed.pop(self._title, None) if self._title else None
        names = [fold(text) for text in (str(item_id), *_strings(title))]
        first = [word.group() for name in names if (word := _WORD.search(name))]
        others = [fold(text) for value in parsed.values() for text in _strings(value)]
        return " ".join(first), " ".join(names), " ".join(others)


class _Index(Generic[Key]):
    """A full-text index in memory of items by a key; of those added under one key it finds the last."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._last: dict[Key, int] = {}
        # Searched by one thread, but any may drop the version.
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        # FTS5 keeps no texts, and ready lists for one and two letters, which most words begin with.
        options = "content='', columnsize=0, prefix='1 2', tokenize='unicode61 remove_diacritics 2'"
        self._index.execute(f"CREATE VIRTUAL TABLE items USING fts5(first, names, others, {options})")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, items: Iterable[tuple[Key, tuple[str, str, str]]]) -> None:
        """Add items by their first words, names and other texts."""
        insert = "INSERT INTO items (rowid, first, names, others) VALUES (?, ?, ?, ?)"
        with self._index:  # one transaction; other threads run during each statement
            self._index.executemany(insert, ((self._place(key), *texts) for key, texts in items))

    def matches(self, expression: str) -> Iterator[Key]:
        """Yield the keys of the items that match an expression of FTS5, in the order in which they came."""
        found = "SELECT rowid FROM items WHERE items MATCH ? ORDER BY rowid"
        for (place,) in self._index.execute(found, (expression,)):
            key = self._keys[place]
            if self._last[key] == place:
                yield key

    def _place(self, key: Key) -> int:
        self._last[key] = len(self._keys)
        self._keys.append(key)
        return self._last[key]


def _ranks(words: Sequence[str]) -> Iterator[str]:
    """The expressions of all matches, the best first; each word of the query is the beginning of one.

    A name begins with the first word, and names have all words; names have all; any texts have all.
    """
    beginnings = [f'"{word}"*' for word in words]
    each = " AND ".join(beginnings)
    yield f"first : {beginnings[0]} AND names : ({each})"
    yield f"names : ({each})"
    yield each


def fold(text: str) -> str:
    """Return a text without accents, which the index ignores too, and with letters that have none replaced.

    >>> fold("Amélie - Straße Nr. 5")
    'amelie - strasse nr. 5'
    """
    if text.isascii():  # the index ignores case
        return text
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter)).translate(_LETTERS)


def _strings(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return (value,)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()


def items_json(bundle: Bundle, fresh: FreshItems, rows: Sequence[int]) -> bytes:
    """The JSON array of items: id, fields, training events (null for a fresh item), and maybe `withdrawn`."""
    view, withdrawn = ItemView(bundle, fresh), set(fresh.withdrawn.tolist())
    items = []
    for row in rows:
        events = b"%d" % bundle.popularity[row] if row < fresh.first_row else b"null"
        mark = b',"withdrawn":true' if row in withdrawn else b""
        items.append(b'{%b,"training_events":%b%b}' % (view.item_json(row), events, mark))
    return b"[%b]" % b",".join(items)
