"""The catalog for people: search by text, a summary of its fields, colours of the map."""

import asyncio
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.data.configuration import Shown
from turret.data.features.texts import levels
from turret.data.vocabulary import Id
from turret.service.errors import InvalidFieldError, NotFoundError
from turret.service.overlay.fresh import FreshItems, empty_overlay
from turret.service.ranking.item_view import ItemView
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import Column, ColumnSummary, Interval, Mask, summary_of

# Pages end here: nobody reads on, and each page searches from the beginning.
MOST_RESULTS = 10_000
_WORD = re.compile(r"[^\W_]+")
# Letters that Unicode does not decompose into a base letter and an accent.
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "\u0131": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d"}
)
_ADD = "INSERT INTO items (rowid, first, names, others) VALUES (?, ?, ?, ?)"
_REMOVE = "INSERT INTO items (items, rowid, first, names, others) VALUES ('delete', ?, ?, ?, ?)"
_FIND = "SELECT rowid FROM items WHERE items MATCH ? ORDER BY rowid"
Result = TypeVar("Result")
_Item = tuple[Id, bytes]  # an id, and fields as a JSON object


class CatalogSearch:
    """Searches the items of a version with its overlay, in a thread of its own.

    The texts of a version are read at its first search, which takes a second for 100,000 items, and take
    about 250 bytes an item.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "search")
        self._versions: WeakKeyDictionary[Bundle, _SearchedVersion] = WeakKeyDictionary()
        self._colours: WeakKeyDictionary[Bundle, str | None] = WeakKeyDictionary()

    async def page(
        self, bundle: Bundle, fresh: FreshItems, query: str, start: int, limit: int
    ) -> tuple[list[int], bool]:
        """Return the rows of the best matches from `start`, and whether more follow; "" matches all items.

        Among equally good matches, items that were added since the export come first, the newest first, then
        the most popular.
        """

        def search() -> tuple[list[int], bool]:
            version = self._versions.get(bundle)
            if version is None:
                version = self._versions[bundle] = _SearchedVersion(bundle)
            rows = list(islice(version.matches(bundle, fresh, query), start, start + limit + 1))
            return rows[:limit], len(rows) > limit and start + limit < MOST_RESULTS

        return await self.run(search)

    async def colour_of(self, bundle: Bundle) -> str | None:
        """The field that tells most about the item vectors of a version; it is measured once."""

        def measure() -> str | None:
            if bundle not in self._colours:
                view = ItemView(bundle, empty_overlay(bundle))
                rows = np.unique(np.linspace(0, len(bundle.catalog) - 1, _MEASURED, dtype=np.int64))
                self._colours[bundle] = telling_field(bundle.catalog, rows, view.directions(rows))
            return self._colours[bundle]

        return await self.run(measure)

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call in the thread; it should cost about as much as a search."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def close(self) -> None:
        """Finish the searches under way."""
        await asyncio.to_thread(self._thread.shutdown)


class _SearchedVersion:
    """A full-text index of the items of one version with its latest overlay.

    The number of a row is its place in the order of popularity; the numbers of added items are below 0, the
    newest the lowest.
    """

    def __init__(self, bundle: Bundle) -> None:  # the bundle is not kept, so that a version can be closed
        self._title = title_of(bundle.catalog)
        self._rows: list[int] = np.argsort(-bundle.popularity, kind="stable").tolist()
        self._places = np.argsort(self._rows)
        self._items: dict[int, _Item] = {}  # the changed and added items, by row
        self._overlay = empty_overlay(bundle)
        # One thread searches the index, but any thread may drop the version.
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        # FTS5 keeps no texts, but ready lists of prefixes of one and two letters, which match the most words.
        options = "content='', columnsize=0, prefix='1 2', tokenize='unicode61 remove_diacritics 2'"
        self._index.execute(f"CREATE VIRTUAL TABLE items USING fts5(first, names, others, {options})")
        with self._index:  # one transaction; other threads run during each statement
            self._index.executemany(_ADD, (self._entry(row, _of_bundle(bundle, row)) for row in self._rows))

    def matches(self, bundle: Bundle, fresh: FreshItems, query: str) -> Iterator[int]:
        """Yield the rows of the matching items that are not withdrawn, best first, each once."""
        self._follow(bundle, fresh)
        seen: set[int] = set()
        for row in self._ranked(fresh, query):
            if row not in seen and not fresh.is_withdrawn(row):
                seen.add(row)
                yield row

    def _ranked(self, fresh: FreshItems, query: str) -> Iterator[int]:
        exact, first_added = fresh.row(query.strip()), fresh.first_row
        if exact is not None:
            yield exact
        words = _WORD.findall(fold(query))
        if not words:
            yield from (first_added + int(place) for place in np.flatnonzero(fresh.is_served)[::-1])
            yield from self._rows
            return
        for rank in _ranks(words):
            for (number,) in self._index.execute(_FIND, (rank,)):
                yield self._rows[number] if number >= 0 else first_added - 1 - number

    def _follow(self, bundle: Bundle, fresh: FreshItems) -> None:
        """Index the changes since the overlay of the last search."""
        with self._index:
            for row in fresh.rows_changed_since(self._overlay):
                old, fields = self._items.pop(row, None), fresh.fields_of(row)
                new = None if fields is None else (fresh.id(row), fields)
                if new is not None:
                    self._items[row] = new
                if old == new:
                    continue
                catalogued = _of_bundle(bundle, row) if row < fresh.first_row else None
                if indexed := old or catalogued:
                    self._index.execute(_REMOVE, self._entry(row, indexed))
                if present := new or catalogued:
                    self._index.execute(_ADD, self._entry(row, present))
        self._overlay = fresh

    def _entry(self, row: int, item: _Item) -> tuple[int, str, str, str]:
        """The number of a row, the first words of its names (id and title), its names, its other texts."""
        item_id, fields = item
        parsed: dict[str, Any] = orjson.loads(fields)
        title = parsed.pop(self._title, None) if self._title else None
        names = [fold(text) for text in (str(item_id), *_strings(title))]
        first = [word.group() for name in names if (word := _WORD.search(name))]
        others = [fold(text) for value in parsed.values() for text in _strings(value)]
        count = len(self._rows)
        number = int(self._places[row]) if row < count else count - 1 - row
        return number, " ".join(first), " ".join(names), " ".join(others)


def _of_bundle(bundle: Bundle, row: int) -> _Item:
    return bundle.vocabulary.id(row), bundle.catalog.json_of(row)


def _ranks(words: Sequence[str]) -> Iterator[str]:
    """The expressions of all matches, the best first; each word of the query is the beginning of a word.

    The first expression needs a name that begins with the first word, and all words in names; the second, all
    words in names; the third, all words in any texts. A word that begins another word only adds work.
    """
    longest = [
        word
        for word in dict.fromkeys(words)
        if not any(other.startswith(word) for other in {*words} - {word})
    ]
    each = " AND ".join(f'"{word}"*' for word in longest)
    yield f'first : "{words[0]}"* AND names : ({each})'
    yield f"names : ({each})"
    yield each


def fold(text: str) -> str:
    """Return a text without accents, which the index ignores too, and with letters that have none replaced.

    >>> fold("Amélie - Straße Nr. 5")
    'amelie - strasse nr. 5'
    """
    if text.isascii():  # the index ignores case
        return text
    # Accents that stand alone are removed first: sorting a run of them takes the square of its length.
    decomposed = unicodedata.normalize("NFKD", _without_accents(text.casefold()))
    return _without_accents(decomposed).translate(_LETTERS)


def _without_accents(text: str) -> str:
    return "".join(letter for letter in text if not unicodedata.combining(letter))


def _strings(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return (value,)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()


def items_json(bundle: Bundle, fresh: FreshItems, rows: Sequence[int]) -> bytes:
    """The JSON array of items: id, fields, training events (null for a fresh item), and maybe `withdrawn`."""
    view = ItemView(bundle, fresh)
    items = []
    for row in rows:
        events = b"%d" % bundle.popularity[row] if row < fresh.first_row else b"null"
        mark = b',"withdrawn":true' if fresh.is_withdrawn(row) else b""
        items.append(b'{%b,"training_events":%b%b}' % (view.item_json(row), events, mark))
    return b"[%b]" % b",".join(items)


MOST_VALUES = 100
# Values are listed if items share them: there are fewer distinct values than this share of the items.
_SHARED = 0.5
_NAMES = ("title", "name", "label", "headline")
_PICTURES = re.compile(r"image|img|picture|photo|poster|thumb|cover", re.IGNORECASE)
_PICTURE_FILES = re.compile(r"\.(avif|gif|jpe?g|png|svg|webp)([?#]|$)", re.IGNORECASE)
# The least share of distinct values in a field that names items.
_DISTINCT = 0.5
_SAMPLE = 20  # values
_MEASURED = 5_000  # items, by which a colour is chosen
MOST_GROUPS = 10  # more colours can't be told apart
NO_GROUP = 255
_RANGES = 8
_ALL_VALUES = 1_000_000
_MOST_PATHS = 2_000  # that are split into levels, in some milliseconds
Summary = dict[str, Any]


def summarise(catalog: Catalog) -> Summary:
    """Summarise the fields: kinds, frequent values, bounds, labels, and the fields that people see."""
    return {
        "title": title_of(catalog),
        "picture": _picture_of(catalog),
        "show": [name for name in catalog.display.show if name in catalog.kinds],
        "fields": [_field(catalog, name) for name in catalog.kinds],
    }


def _field(catalog: Catalog, name: str) -> Summary:
    kind = catalog.kinds[name]
    summary = summary_of(catalog.column(name), MOST_VALUES)
    shown = catalog.display.show.get(name, Shown())
    described: Summary = {"name": name, "kind": kind, **shown.model_dump()}
    described["missing"] = len(catalog) - summary.present
    if kind in ("number", "numbers"):
        described |= {"minimum": summary.low, "maximum": summary.high}
    if kind in ("text", "texts") and _are_shared(summary):
        described["values"] = [{"value": value, "items": count} for value, count in summary.frequent]
    return described


def title_of(catalog: Catalog) -> str | None:
    """Return the field that names an item.

    It is the title of the catalog's `display`, else a text field with such a name, else the text field with
    the most distinct values.
    """
    if catalog.display.title in catalog.kinds:
        return catalog.display.title
    texts = [
        name for name, kind in catalog.kinds.items() if kind == "text" and not _are_addresses(catalog, name)
    ]
    known = {name.lower(): name for name in texts}
    for name in _NAMES:
        if name in known:
            return known[name]
    summaries = {name: summary_of(catalog.column(name), 0) for name in texts}
    shares = {name: summary.distinct / max(1, summary.present) for name, summary in summaries.items()}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] > _DISTINCT else None


def _picture_of(catalog: Catalog) -> str | None:
    """The text field that holds addresses of pictures, if there is one."""
    for name, kind in catalog.kinds.items():
        if kind != "text" or not _are_addresses(catalog, name):
            continue
        if _PICTURES.search(name) or all(_PICTURE_FILES.search(text) for text in _sample(catalog, name)):
            return name
    return None


def _are_addresses(catalog: Catalog, name: str) -> bool:
    sample = _sample(catalog, name)
    return bool(sample) and all(text.startswith(("https://", "http://")) for text in sample)


def _sample(catalog: Catalog, name: str) -> Sequence[str]:
    return [str(value) for value, _ in summary_of(catalog.column(name), _SAMPLE).frequent]


def map_of(bundle: Bundle) -> NDArray[np.uint16]:
    """Open the map of a version. Raises NotFoundError if it has none, BundleError if it is damaged."""
    points = bundle.item_map()
    if points is None:
        version = bundle.manifest.version
        message = f"version {version} has no map of its items; export the run again with `turret export`"
        raise NotFoundError("version", version, message)
    return points


def colouring(catalog: Catalog, name: str) -> tuple[list[dict[str, Any]], NDArray[np.uint8]]:
    """Group the rows by a field: by its most frequent texts, by ranges of its numbers, or by true and false.

    Paths are grouped by a level that has few paths. Return the label of each group and the number of its
    items, and the number of the group of each row [N]; NO_GROUP for a row without a value. A row with several
    values belongs to the most frequent value. Raises InvalidFieldError.
    """
    fields = [field for field, kind in catalog.kinds.items() if kind not in ("mixed", "none")]
    if name not in fields:
        known = (
            f"the map can be coloured by {', '.join(fields)}" if fields else "items have no field to colour"
        )
        raise InvalidFieldError("field", name, known)
    kind, column = catalog.kinds[name], catalog.column(name)
    if kind in ("text", "texts"):
        groups = _by_value(column)
    elif kind == "boolean":
        groups = [("true", column.among([True])), ("false", column.among([False]))]
    else:
        groups = _by_range(column)
    codes = np.full(len(catalog), NO_GROUP, dtype=np.uint8)
    for number in reversed(range(len(groups))):  # so that the first of several groups stays
        codes[groups[number][1]] = number
    sizes = np.bincount(codes, minlength=NO_GROUP + 1).tolist()
    return [{"label": label, "items": sizes[number]} for number, (label, _) in enumerate(groups)], codes


def telling_field(catalog: Catalog, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> str | None:
    """The field whose groups by `colouring` explain the largest share of the variance of vectors [B, D].

    The share is the adjusted R² of a one-way analysis of variance, so that many small groups are no gain.
    Texts that few items share, such as titles, don't count. None if no field explains anything.
    """
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    total, best, field = float(np.square(centred).sum()), 0.0, None
    for name, kind in catalog.kinds.items():
        summary = summary_of(catalog.column(name), 0)
        if kind in ("mixed", "none") or (kind in ("text", "texts") and not _are_shared(summary)):
            continue
        _, numbers, sizes = np.unique(
            colouring(catalog, name)[1][rows], return_inverse=True, return_counts=True
        )
        sums = (numbers == np.arange(len(sizes))[:, None]) @ centred
        within = total - float((np.square(sums).sum(axis=1) / sizes).sum())
        freedom = len(rows) - len(sizes)
        share = 1 - within * (len(rows) - 1) / (total * freedom) if total and freedom else 0.0
        if share > best:
            best, field = share, name
    return field


def _are_shared(summary: ColumnSummary) -> bool:
    """Whether the values of a field are shared by items."""
    return summary.distinct <= _SHARED * max(1, summary.present)


def _by_value(column: Column) -> list[tuple[str, Mask]]:
    summary = summary_of(column, _MOST_PATHS)
    if MOST_GROUPS < summary.distinct <= _MOST_PATHS and (paths := _above(summary)):
        return [(path, column.under(path)) for path in paths]
    has_others = summary.distinct > MOST_GROUPS
    values = [value for value, _ in summary.frequent][: MOST_GROUPS - has_others]
    groups = [(str(value), column.among([value])) for value in values]
    return [*groups, ("other", column.present())] if has_others else groups


def _above(summary: ColumnSummary) -> list[str]:
    """Paths of the lowest level above the values that has few, most frequent first; none for other texts."""
    of_values = [(paths, count) for value, count in summary.frequent if (paths := levels(str(value)))]
    for level in reversed(range(max((len(paths) for paths, _ in of_values), default=0) - 1)):
        counts = Counter[str]()
        for paths, count in of_values:
            counts[paths[: level + 1][-1]] += count
        if len(counts) <= MOST_GROUPS:
            return [path for path, _ in counts.most_common()] if len(counts) > 1 else []
    return []


def _by_range(column: Column) -> list[tuple[str, Mask]]:
    """Group few numbers by value, and more numbers by ranges with about as many rows each."""
    values, counts = zip(*sorted(summary_of(column, _ALL_VALUES).frequent), strict=True)
    if len(values) <= _RANGES:
        return [(f"{value:g}", column.among([value])) for value in values]
    shares = np.linspace(0, 1, _RANGES + 1)
    bounds = np.unique(np.quantile(np.repeat(values, counts), shares, method="inverted_cdf")).tolist()
    groups = []
    for low, high in pairwise(bounds):
        within = column.within(Interval(low, high, high_open=high < bounds[-1]))
        groups.append((f"{low:g} to {high:g}", within))
    return groups
