"""Fresh, changed and withdrawn items: over a bundle, ranked with it, and in every worker."""

import asyncio
import gc
import json
import weakref
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from sys import getsizeof
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import contents
from tests.oracles.filtering import holds
from tests.support.item_towers import placed, with_item_tower
from turret.data.vocabulary import ID_LENGTH, Vocabulary
from turret.service.errors import ItemsUnavailableError
from turret.service.overlay import fresh as module
from turret.service.overlay.fresh import (
    ChangedFields,
    FreshItems,
    apply_changes,
    can_name,
    catalog_time,
    empty_overlay,
)
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.overlay.persistent import GrowingArray, LayeredMap
from turret.service.ranking.searching import merge
from turret.service.stores.contract import CHANGES_PAGE, Change, Changes, ItemStore, NewChange
from turret.service.stores.sqlite.shared import SqliteItems
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import ItemColumns, Kind
from turret.tower.catalog.filters import compile_filter
from turret.tower.retrieval import Ranking

LATE = 9_999_999_999_999  # long after any bundle
FEATURES = b'{"n0":1.0}'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of eight coordinates: `v1` with an item tower, `names` with text ids, `ids` without a tower."""
    root = tmp_path_factory.mktemp("items")
    publish(root, with_item_tower(contents("v1")))
    publish(root, with_item_tower(contents("names", ids=[f"i{n}" for n in range(40)], seed=1)))
    publish(root, contents("ids"))
    return root


@pytest.fixture(scope="module")
def bundle(root: Path) -> Bundle:
    """60 items with the ids 100 to 159, and an item tower."""
    return Bundle.open(root / "v1")


def put(number: int, item: str, axis: int = 0, time: int = LATE, fields: bytes = b'{"a":1}') -> Change:
    """An item at the end of an axis."""
    features = repr(placed(np.eye(8, dtype=np.float32)[axis])).replace("'", '"').encode()
    return Change(item, number, time, features, fields)


def withdrawn(number: int, item: str, time: int = LATE) -> Change:
    return Change(item, number, time, None, None)


def overlay_of(bundle: Bundle, *items: Change) -> FreshItems:
    """What a bundle without changes becomes by those, given in the order of their numbers."""
    return apply_changes(empty_overlay(bundle), bundle, Changes(items[-1].number, items))


def shown(fresh: FreshItems) -> tuple[list[object], dict[int, bytes], list[int]]:
    ids: list[object] = [fresh.id(fresh.first_row + place) for place in served_places(fresh)]
    return ids, dict(fresh.replaced.by_row), fresh.withdrawn.tolist()


def served_places(fresh: FreshItems) -> list[int]:
    """In the order of the last changes."""
    found: list[int] = np.flatnonzero(fresh.is_served).tolist()
    assert sorted(fresh.places.values()) == sorted(fresh.sent) == sorted(fresh.added.by_row) == found
    assert all(fresh.places[fresh.sent[place].item] == place for place in found)
    return found


# --- Changes become an overlay


@pytest.mark.parametrize("written", ["", "2024-05-01T00:00:00.000+00:00"])
def test_what_was_put_before_the_items_of_the_bundle_were_written_is_in_it(
    bundle: Bundle, written: str
) -> None:
    """Though training exported the bundle later."""
    made = copy(bundle)
    made.manifest = bundle.manifest.model_copy(update={"catalog_time": written})
    before, after = catalog_time(made) - 1, catalog_time(made)
    assert not written or after < catalog_time(bundle)
    changes = put(1, "105", time=before), put(2, "106", time=after), put(3, "900", time=before)
    assert shown(overlay_of(made, *changes)) == ([900], {6: b'{"a":1}'}, [])


def test_step_by_step_is_all_at_once(bundle: Bundle) -> None:
    """Every process ends with the same rows, however it came there."""
    generator = np.random.default_rng(5)
    history: list[Change] = []
    fresh = empty_overlay(bundle)
    for number in range(1, 80):
        item = str(generator.integers(150, 170))
        one = withdrawn(number, item) if generator.random() < 0.3 else put(number, item, number % 8)
        history = [*(change for change in history if change.item != item), one]
        fresh = apply_changes(fresh, bundle, Changes(number, (one,)))
    whole = overlay_of(bundle, *history)
    assert shown(whole) == shown(fresh)
    first, second = (one.vectors[served_places(one)] for one in (whole, fresh))
    assert np.allclose(first, second)
    assert whole.number == fresh.number == 79


def test_ids_of_the_other_kind_are_left_aside(bundle: Bundle, root: Path) -> None:
    items = put(1, "x"), put(2, "007"), put(3, "7"), put(4, "-7")
    assert shown(overlay_of(bundle, *items))[0] == [7, -7]
    fresh = overlay_of(Bundle.open(root / "names"), *items)
    assert [fresh.id(40 + place) for place in range(4)] == ["x", "007", "7", "-7"]
    assert [can_name(bundle.vocabulary, item) for item in ("7", "-7", "007")] == [True, True, False]


@pytest.mark.parametrize(
    ("features", "fields"), [(b"{", b"{}"), (b"[]", b"{}"), (b"{}", b"no"), (b"{}", b"7"), (b"\xff", b"{}")]
)
def test_what_is_no_item_is_left_alone_and_said(
    bundle: Bundle, features: bytes, fields: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged store, or one that somebody else writes too: the other items are served all the same."""
    for item in ("900", "105"):
        fresh = overlay_of(bundle, replace(put(1, item), features=features, fields=fields), put(2, "901"))
        assert (list(fresh.places), dict(fresh.replaced.by_row), fresh.number) == (["901"], {}, 2)
        assert item in caplog.text
        fresh = overlay_of(bundle, replace(put(1, item), time=cast(int, "late")), put(2, "901"))
        assert (list(fresh.places), dict(fresh.replaced.by_row), fresh.number) == (["901"], {}, 2)


# --- Their ranking among those of the bundle

N = 6


def drawn(count: int) -> FreshItems:
    vectors = np.random.default_rng(0).standard_normal((count, 2)).astype(np.float32)
    ids = [f"f{place}" for place in range(count)]
    places = LayeredMap({item: place for place, item in enumerate(ids)})
    vocabulary = Vocabulary([f"i{row}" for row in range(N)])
    return FreshItems(vocabulary, GrowingArray(vectors), np.ones(count, dtype=bool), places)


SCORES = st.sampled_from([-1.0, 0.0, 0.5, 1.0])


@given(
    main=st.lists(SCORES, min_size=N, max_size=N),
    others=st.lists(SCORES, max_size=5),
    k=st.integers(1, 12),
    excluded=st.sets(st.integers(0, N + 4)),
)
def test_the_ranking_is_what_one_catalog_would_give(
    main: list[float], others: list[float], k: int, excluded: set[int]
) -> None:
    """Sorted by score, then by row, also with ties, excluded rows and short rankings."""
    candidates = [(-score, row) for row, score in enumerate(main + others) if row not in excluded]
    best = sorted((score, row) for score, row in candidates if row < N)[:k]
    answer = Ranking(np.array([row for _, row in best], int), -np.array([score for score, _ in best]))
    fresh, out = drawn(len(others)), np.array(sorted(excluded), int)
    found = merge(answer, np.array(others, np.float32), fresh, k, out)
    expected = sorted(candidates)[:k]
    assert found.rows.tolist() == [row for _, row in expected]
    assert found.scores.tolist() == [-score for score, _ in expected]


# --- The overlay of each worker follows the store


class Watched(SqliteItems):
    """Counts its reads, which take `seconds`; fails at some of them, and may be an earlier copy."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.failing: Container[int] = ()
        self.seconds = 0.0
        self.restored: SqliteItems | None = None

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        self.reads += 1
        if self.reads in self.failing:
            raise ItemsUnavailableError("the store is away")
        restored = self.restored
        found = await (super().changes if restored is None else restored.changes)(since, limit)
        await asyncio.sleep(self.seconds)  # the reply is under way
        return found


async def put_fresh(store: ItemStore, item: str) -> int:
    (number,) = await store.change([NewChange(item, 0, FEATURES, b"{}")])
    return number


async def withdraw(store: ItemStore, item: str, time: int = 0) -> int:
    (number,) = await store.change([NewChange(item, time)])
    return number


async def test_a_change_during_a_read_is_read_by_the_next_request(bundle: Bundle) -> None:
    """The overlay is as new as the number before the read, not as that after it."""

    class Overtaken(SqliteItems):
        async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
            found = await super().changes(since, limit)
            if not since and not found.last:
                await put_fresh(self, "900")
                overlay.number += 1
            return found

    overlay = ItemOverlayCache(Overtaken())
    assert len(await overlay.of(bundle)) == 0
    fresh, missing = await overlay.for_answer(bundle)
    assert (len(fresh), missing) == (1, ())


async def test_an_unavailable_store_delays_no_answer(bundle: Bundle) -> None:
    """Answers use the previous overlay without a read each; a change is not acknowledged."""
    store = Watched()
    overlay = ItemOverlayCache(store)
    await put_fresh(store, "900")
    await overlay.of(bundle)
    store.failing = range(1000)
    with pytest.raises(ItemsUnavailableError):
        await overlay.changed(bundle, await withdraw(store, "901"))
    assert (await overlay.for_answer(bundle))[1] == ("items",)
    reads = store.reads
    for _ in range(10):
        assert (await overlay.of(bundle)).row("900") == 60
    assert store.reads == reads
    store.failing = ()
    await withdraw(store, "900", 1)
    await overlay.poll()
    assert (await overlay.for_answer(bundle))[1] == ()
    assert (await overlay.of(bundle)).row("900") is None


async def test_a_slow_store_is_waited_for_only_so_long_and_by_one(bundle: Bundle) -> None:
    """Requests use the previous overlay and say so; the read continues."""
    store = Watched()
    overlay = ItemOverlayCache(store, seconds=0.5, patience=0.05)
    await overlay.changed(bundle, await put_fresh(store, "900"))
    store.seconds = 3600
    overlay.number += 1
    reads = store.reads
    found = await asyncio.gather(*(overlay.for_answer(bundle) for _ in range(50)))
    assert asyncio.get_running_loop().time() == 0.05
    assert {(len(fresh), missing) for fresh, missing in found} == {(1, ("items",))}
    await asyncio.sleep(0.5)
    fresh, missing = await overlay.for_answer(bundle)
    assert (len(fresh), missing, store.reads) == (1, ("items",), reads + 1), "nobody waits for it any more"
    store.seconds = 0
    await overlay.poll()
    assert (await overlay.for_answer(bundle))[1] == ()


async def test_an_older_copy_of_the_store_is_read_from_its_beginning(bundle: Bundle) -> None:
    store = Watched()
    overlay = ItemOverlayCache(store)
    for item in ("900", "901"):
        await put_fresh(store, item)
    assert len(await overlay.of(bundle)) == 2
    store.restored = SqliteItems()
    await put_fresh(store.restored, "777")
    await overlay.poll()
    assert list((await overlay.of(bundle)).places) == ["777"]


async def test_pages_that_were_read_are_kept_when_a_later_one_fails(bundle: Bundle) -> None:
    """Else a store that needs longer than the time limit for all changes would never be read to its end."""
    store = Watched()
    overlay = ItemOverlayCache(store)
    overlay.PAGE = 3
    for number in range(8):
        await withdraw(store, str(100 + number))
    store.failing = (2, 4)
    found, missing = await overlay.for_answer(bundle)
    assert (found.withdrawn.tolist(), missing, overlay.was_read) == ([0, 1, 2], ("items",), False)
    await overlay.poll()
    assert overlay.last_read(bundle).withdrawn.tolist() == list(range(6))
    await overlay.poll()
    found, missing = await overlay.for_answer(bundle)
    assert (found.withdrawn.tolist(), missing, overlay.was_read) == (list(range(8)), (), True)


async def test_each_bundle_has_its_own(root: Path, bundle: Bundle) -> None:
    """The vectors are of its item tower; a bundle that is gone leaves nothing behind."""
    store = SqliteItems()
    overlay = ItemOverlayCache(store)
    await put_fresh(store, "159")
    names = Bundle.open(root / "names")
    assert len(await overlay.of(bundle)) == 0
    assert (await overlay.of(names)).row("159") == 40
    await overlay.changed(bundle, await withdraw(store, "159"))
    assert (await overlay.of(names)).row("159") is None
    gone = weakref.ref(names)
    del names
    gc.collect()
    assert gone() is None


# --- Many changes


@pytest.mark.parametrize("count", [1, 400])
def test_filters_read_changed_fields_as_they_read_the_catalog(bundle: Bundle, count: int) -> None:
    """Also those that changed often, were withdrawn, and hold values of another type than the catalog's."""
    random = np.random.default_rng(count)
    values: dict[str, list[object]] = {
        "price": [1, 2.5, 3, None, "3", [3, 4], True],
        "genres": [["a", "b"], ["b"], [], None, "a", 7],
        "new": [True, False, None, 1],
        "empty": [None, "x", 1],
    }
    kinds: dict[str, Kind] = {"price": "number", "genres": "texts", "new": "boolean", "empty": "none"}
    expected: dict[int, dict[str, object]] = {}
    fields = ChangedFields(kinds)
    for turn in range(count):
        usual = slice(None) if turn % 5 == 0 else slice(0, 3)
        items: dict[int, dict[str, object]] = {
            int(row): {name: of[usual][random.integers(len(of[usual]))] for name, of in values.items()}
            for row in random.integers(0, 200, random.integers(1, 9))
        }
        removed = [int(row) for row in random.integers(0, 200, 2) if row not in items]
        fields = fields.changed({row: json.dumps(item).encode() for row, item in items.items()}, removed)
        expected = {row: item for row, item in (expected | items).items() if row not in removed}
    assert {row: json.loads(text) for row, text in fields.by_row.items()} == expected
    catalog = Catalog.build([0], {"price": [1.0], "genres": [["a"]], "new": [True], "empty": [None]})
    for one in (
        {"price": {"gte": 2, "lt": 4}},
        {"price": {"any_of": [3, 1]}},
        {"genres": {"none_of": ["b", "c"]}},
        {"new": {"not_null": True}, "price": {"not_null": False}},
        {"any": [{"new": {"equals": False}}, {"not": {"genres": {"equals": "a"}}}]},
    ):
        filtering = compile_filter(one, catalog)
        mask = np.zeros(200, dtype=bool)
        mask[list(expected)] = [not holds(one, item) for item in expected.values()]
        fields.put_allowed(filtering, mask)
        wanted = {row for row, item in expected.items() if holds(one, item)}
        assert set(np.flatnonzero(mask).tolist()) == wanted, one


@given(st.lists(st.dictionaries(st.integers(0, 30), st.none() | st.integers(), max_size=8), max_size=30))
def test_a_map_of_layers_is_a_map(turns: list[dict[int, int | None]]) -> None:
    """Each copy stays as it is, and names the keys that differ from those of an earlier one."""
    expected: list[dict[int, int]] = [{}]
    made: list[LayeredMap[int, int]] = [LayeredMap()]
    for turn in turns:
        new = {key: value for key, value in turn.items() if value is not None}
        expected.append(
            {key: one for key, one in (expected[-1] | new).items() if key in new or key not in turn}
        )
        made.append(made[-1].changed(new, turn.keys() - new.keys()))
    assert [dict(one) for one in made] == expected
    assert [len(one) for one in made] == [*map(len, expected)]
    for earlier, before in zip(expected, made, strict=True):
        differing = {key for key, _ in earlier.items() ^ expected[-1].items()}
        assert differing <= made[-1].keys_since(before)


def test_a_change_copies_few_of_the_changes_before_it(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 5,000 changed items, each further change copies and reads some tens, and rows are added in place."""
    changes = [put(number, str(99 + number)) for number in range(1, 5_001)]
    fresh = overlay_of(bundle, *changes)
    read: list[int] = []

    class Counted(ItemColumns):
        def __init__(self, names: Iterable[str], items: Sequence[Mapping[str, object]]) -> None:
            super().__init__(names, items)
            read.append(len(items))

    monkeypatch.setattr(module, "ItemColumns", Counted)
    copied = arrays = 0
    for number in range(5_001, 6_001):
        one = put(number, str(1_000 + number % 500))
        before, fresh = fresh, apply_changes(fresh, bundle, Changes(number, [one]))
        for name in ("places", "sent"):
            layers = {id(layer) for layer in getattr(before, name)._layers}
            copied += sum(len(one) for one in getattr(fresh, name)._layers if id(one) not in layers)
        arrays += not np.shares_memory(before.vectors, fresh.vectors)
    assert copied < 1_000 * 2 * 40
    assert sum(read) < 1_000 * 40
    assert arrays <= 2
    assert len(fresh) == 4_940


def test_two_successors_of_an_overlay_know_nothing_of_each_other(bundle: Bundle) -> None:
    """As where a change can't be read to its end, and is read again."""
    first = overlay_of(bundle, put(1, "900"), put(2, "901", axis=1))
    one = apply_changes(first, bundle, Changes(3, [put(3, "902", axis=2)]))
    other = apply_changes(first, bundle, Changes(4, [put(4, "903", axis=3), withdrawn(3, "900")]))
    assert [shown(each)[0] for each in (first, one, other)] == [[900, 901], [900, 901, 902], [901, 903]]
    for each, axes in ((first, [0, 1]), (one, [0, 1, 2]), (other, [1, 3])):
        assert each.vectors[served_places(each)].argmax(axis=1).tolist() == axes


def test_the_longest_ids_and_lists_count_in_the_bytes_of_an_overlay(root: Path) -> None:
    """By what they take in memory; a list of short values takes several times its bytes as columns."""
    names = Bundle.open(root / "names")
    ids = [f"{number:06}" + "\N{CLAPPER BOARD}" * (ID_LENGTH - 6) for number in range(20)]
    fresh = overlay_of(names, *(put(number, item) for number, item in enumerate(ids, 1)))
    assert fresh.size > sum(map(getsizeof, ids))
    values = json.dumps({"genres": [f"{number:x}" for number in range(6_000)]}).encode()
    fresh = overlay_of(names, put(1, "x", fields=values))
    assert fresh.size > len(values) + sum(getsizeof(one.encode()) for one in json.loads(values)["genres"])


def test_superseded_changes_are_not_kept(bundle: Bundle) -> None:
    """New items and items of the bundle, put and withdrawn again and again: the rest is served as before."""
    random, fresh, history = np.random.default_rng(0), empty_overlay(bundle), dict[str, Change]()
    for number in range(1, 600):
        item = ("105", "900", "901")[number % 3] if number % 7 else str(random.integers(100, 170))
        fields = json.dumps({"text": "x" * 30_000, "number": number}).encode()
        history[item] = withdrawn(number, item) if number % 50 == 0 else put(number, item, fields=fields)
        fresh = apply_changes(fresh, bundle, Changes(number, [history[item]]))
        kept = sum(
            len(text or b"")
            for one in (fresh.added, fresh.replaced)
            for layer in one.by_row._layers
            for text in layer.values()
        )
        assert kept <= 2 * fresh.size + 1_100_000
    assert len(fresh.is_served) < 250, "of about 400 new items"
    whole = overlay_of(bundle, *sorted(history.values(), key=lambda change: change.number))
    assert shown(fresh) == shown(whole)
    assert [fresh.fields_of(fresh.first_row + place) for place in served_places(fresh)] == [
        whole.fields_of(whole.first_row + place) for place in served_places(whole)
    ]
    filtering = compile_filter({"title": {"not_null": False}}, bundle.catalog)
    assert fresh.allowed(filtering).rows.tolist() == whole.allowed(filtering).rows.tolist()
    served = fresh.fresh_allowed(filtering)
    assert np.flatnonzero(served).tolist() == served_places(fresh)


async def test_withdrawals_of_unknown_items_take_nothing(bundle: Bundle) -> None:
    """They stay in the store, for a version that has the items."""
    store = SqliteItems()
    overlay = ItemOverlayCache(store)
    await store.change([NewChange(f"{number}", 0) for number in range(1_000, 6_000)])
    await withdraw(store, "105")
    fresh = await overlay.of(bundle)
    assert (fresh.withdrawn.tolist(), fresh.size, fresh.number) == ([5], 8, 5_001)
