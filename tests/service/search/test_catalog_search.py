import asyncio
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.conftest import contents
from turret.service.overlay.fresh import FreshItems
from turret.service.search import catalog_search
from turret.service.search.catalog_search import CatalogSearch, items_json
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import BundleContents, publish

TITLES = ["Star Wars", "Amélie", "Star Trek", "The Stars", "M*A*S*H", "Upstart"]


def movies() -> BundleContents:
    """Six items; the first is the most popular."""
    made = contents(ids=[10, 11, 12, 13, 14, 15])
    genres = [["science fiction"], ["romance"], ["science fiction"], ["drama"], ["war"], []]
    return BundleContents(**{**vars(made), "fields": {"title": TITLES, "genres": genres}})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root: Path = tmp_path_factory.mktemp("movies")
    publish(root, movies())
    return Bundle.open(root / "v1")


def overlay(bundle: Bundle, **changes: object) -> FreshItems:
    return FreshItems(bundle.vocabulary, np.empty((0, 8), np.float32), **changes)  # type: ignore[arg-type]


def find(
    bundle: Bundle, query: str, fresh: FreshItems | None = None, start: int = 0, limit: int = 50
) -> list[int]:
    fresh = overlay(bundle) if fresh is None else fresh

    async def search() -> list[int]:
        searching = CatalogSearch()
        page = await searching.page(bundle, fresh, query, start, limit)
        await searching.close()
        return page.rows

    return asyncio.run(search())


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("star", [0, 2, 3, 5]),
        ("STAR w", [0]),
        ("amelie", [1]),
        ("AMÉLIE", [1]),
        ("trek star", [2]),
        ("science", [0, 2]),
        ("war", [0, 4]),
        ("14", [4]),
        ("1", [0, 1, 2, 3, 4, 5]),
        ("m a s h", [4, 3]),
        ("nothing", []),
        ("", [0, 1, 2, 3, 4, 5]),
        ("?!", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_items_are_found_by_id_and_text_the_better_match_first(
    bundle: Bundle, query: str, rows: list[int]
) -> None:
    assert find(bundle, query) == rows


def test_an_id_of_punctuation_alone_is_found_first(tmp_path: Path) -> None:
    publish(tmp_path, contents(ids=[*"abcdefgh", "%%"]))
    assert find(Bundle.open(tmp_path / "v1"), "%%", limit=2) == [8, 0]


def test_pages_follow_each_other_without_gap_or_repetition(bundle: Bundle) -> None:
    whole = find(bundle, "star")
    assert [row for start in range(0, 6, 2) for row in find(bundle, "star", start=start, limit=2)] == whole


def test_a_page_says_whether_there_are_more(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    async def has_more(start: int, limit: int) -> bool:
        searching = CatalogSearch()
        page = await searching.page(bundle, overlay(bundle), "star", start, limit)
        await searching.close()
        return page.has_more

    assert [asyncio.run(has_more(start, 2)) for start in (0, 2)] == [True, False]
    monkeypatch.setattr(catalog_search, "MOST_RESULTS", 2)
    assert not asyncio.run(has_more(0, 2))


def test_withdrawn_items_are_not_found(bundle: Bundle) -> None:
    fresh = overlay(bundle, withdrawn=np.array([0, 2]))
    assert find(bundle, "star", fresh) == [3, 5]
    assert find(bundle, "10", fresh) == []
    assert find(bundle, "", fresh) == [1, 3, 4, 5]


def test_replaced_fields_are_searched_and_the_old_ones_are_not(bundle: Bundle) -> None:
    fresh = overlay(bundle, replaced={0: b'{"title":"Episode IV","genres":[]}'})
    assert find(bundle, "episode", fresh) == [0]
    assert find(bundle, "star", fresh) == [2, 3, 5]


def test_items_that_were_added_are_found_first(bundle: Bundle) -> None:
    fresh = FreshItems(
        bundle.vocabulary,
        np.zeros((2, 8), np.float32),
        ids=("900", "901"),
        fields=(b'{"title":"Stardust"}', b'{"title":"Starman"}'),
    )
    assert find(bundle, "star", fresh) == [7, 6, 0, 2, 3, 5]
    assert find(bundle, "900", fresh) == [6]
    shown = orjson.loads(items_json(bundle, fresh, [6, 0]))
    assert shown == [
        {"id": 900, "fields": {"title": "Stardust"}, "training_events": None},
        {"id": 10, "fields": {"title": "Star Wars", "genres": ["science fiction"]}, "training_events": 6},
    ]


def test_a_search_sees_a_change_of_the_overlay(bundle: Bundle) -> None:
    async def work() -> None:
        searching = CatalogSearch()
        for title, found in (("First", [0]), ("Second", [])):
            fresh = overlay(bundle, replaced={0: b'{"title":"%b"}' % title.encode()})
            assert (await searching.page(bundle, fresh, "first", 0, 9)).rows == found
        await searching.close()

    asyncio.run(work())
