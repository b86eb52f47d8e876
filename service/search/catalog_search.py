"""Items by their id and by the text of their fields, as `GET /v1/items?query=` finds them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import orjson

from turret.data.vocabulary import Id
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.item_view import ItemView
from turret.service.search.field_roles import title_of
from turret.service.search.folding import fold
from turret.service.search.text_index import ItemTexts, TextIndex
from turret.tower.bundle.bundle import Bundle

# Pages end here: nobody reads on, and each page searches from the beginning.
MOST_RESULTS = 10_000
Result = TypeVar("Result")


class ItemsPage(NamedTuple):
    """The rows of one page, and whether more follow."""

    rows: list[int]
    has_more: bool


class CatalogSearch:
    """Searches the items of a version with its overlay, in a thread of its own.

    The texts of a version are read at its first search, a second for 100,000 items, and take about 100 bytes
    an item.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "search")
        self._versions: WeakKeyDictionary[Bundle, _SearchedVersion] = WeakKeyDictionary()

    async def page(self, bundle: Bundle, fresh: FreshItems, query: str, start: int, limit: int) -> ItemsPage:
        """Return the rows of the best matches from `start`; an empty query matches all items.

        The most popular of equally good matches come first, after those that were added since the export.
        """
        return await self.run(partial(self._page, bundle, fresh, query, start, limit))

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call of about the same cost in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def close(self) -> None:
        """Finish the searches under way."""
        await asyncio.to_thread(self._thread.shutdown)

    def _page(self, bundle: Bundle, fresh: FreshItems, query: str, start: int, limit: int) -> ItemsPage:
        version = self._versions.get(bundle)
        if version is None:
            version = self._versions[bundle] = _SearchedVersion(bundle)
        found = list(islice(version.matches(fresh, query), start, start + limit + 1))
        return ItemsPage(found[:limit], len(found) > limit and start + limit < MOST_RESULTS)


class _SearchedVersion:
    """The texts of one version, the most popular items first, and those of its latest overlay."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._title = title_of(bundle.catalog)
        self._order: list[int] = np.argsort(-bundle.popularity, kind="stable").tolist()
        catalog, vocabulary = bundle.catalog, bundle.vocabulary
        self._index = TextIndex(self._text(vocabulary.id(row), catalog.json_of(row)) for row in self._order)
        self._changed: tuple[FreshItems | None, list[int], TextIndex] = (None, [], TextIndex(()))

    def matches(self, fresh: FreshItems, query: str) -> Iterator[int]:
        """Yield the rows of the matching items that are not withdrawn, best first, each once."""
        hidden = set(fresh.withdrawn.tolist())
        seen: set[int] = set()
        for row in self._ranked(fresh, query):
            if row not in seen and row not in hidden:
                seen.add(row)
                yield row

    def _ranked(self, fresh: FreshItems, query: str) -> Iterator[int]:
        folded = fold(query)
        changed, texts = self._changes(fresh)
        exact = fresh.row(query.strip())
        if exact is not None:
            yield exact
        if not folded:
            yield from changed
            yield from self._order
            return
        new = ((rank, changed[position]) for rank, position in texts.matches(folded))
        old = ((rank, self._order[position]) for rank, position in self._index.matches(folded))
        old = (match for match in old if match[1] not in fresh.replaced)
        yield from (row for _, row in merge(new, old, key=itemgetter(0)))

    def _changes(self, fresh: FreshItems) -> tuple[list[int], TextIndex]:
        """The rows of the overlay, latest first, and their texts."""
        known, rows, index = self._changed
        if known is not fresh:
            rows = [*range(fresh.first_row + len(fresh) - 1, fresh.first_row - 1, -1), *fresh.replaced]
            index = TextIndex(self._text(fresh.id(row), fresh.fields_of(row) or b"{}") for row in rows)
            self._changed = (fresh, rows, index)
        return rows, index

    def _text(self, item_id: Id, fields: bytes) -> ItemTexts:
        parsed: dict[str, Any] = orjson.loads(fields)
        title = parsed.pop(self._title, None) if self._title else None
        names = [fold(str(item_id)), *map(fold, _texts(title))]
        return ItemTexts(names, [fold(text) for value in parsed.values() for text in _texts(value)])


def _texts(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return (value,)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()


def items_json(bundle: Bundle, fresh: FreshItems, rows: Sequence[int]) -> bytes:
    """The JSON array of items: id, fields, training events (null for a fresh item), and maybe `withdrawn`."""
    view = ItemView(bundle, fresh)
    withdrawn = set(fresh.withdrawn.tolist())
    marks = (b',"withdrawn":true' if row in withdrawn else b"" for row in rows)
    return b"[%b]" % b",".join(
        b'{%b,"training_events":%b%b}' % (view.item_json(row), _events(bundle, row), mark)
        for row, mark in zip(rows, marks, strict=True)
    )


def _events(bundle: Bundle, row: int) -> bytes:
    return b"%d" % bundle.popularity[row] if row < len(bundle.popularity) else b"null"
