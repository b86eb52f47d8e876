"""The search in the catalog, and what the page is told of its fields: titles, pictures, values, groups."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from tests.conftest import contents
from turret.service.errors import InvalidFieldError
from turret.service.overlay.fresh import ChangedFields, FreshItems
from turret.service.search.catalog import NO_GROUP, CatalogSearch, colouring, items_json, summarise, title_of
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.catalog.catalog import Catalog

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


def overlay(bundle: Bundle, **fields: object) -> FreshItems:
    """An overlay in which rows, such as `row3`, have other fields."""
    replaced = ChangedFields().changed({int(row[3:]): orjson.dumps(of) for row, of in fields.items()})
    return FreshItems(bundle.vocabulary, np.empty((0, 8), np.float32), replaced=replaced)


def added(bundle: Bundle, fields: dict[str, bytes]) -> FreshItems:
    """An overlay with items that were added, by their ids."""
    return FreshItems(
        bundle.vocabulary,
        np.zeros((len(fields), 8), np.float32),
        ids=list(fields),
        features=[b"{}"] * len(fields),
        positions={item: place for place, item in enumerate(fields)},
        added=ChangedFields().changed(dict(enumerate(fields.values()))),
    )


def find(bundle: Bundle, query: str, fresh: FreshItems | None = None) -> list[int]:
    """The rows that are found."""
    overlaid = overlay(bundle) if fresh is None else fresh

    async def search() -> list[int]:
        searching = CatalogSearch()
        rows, _ = await searching.page(bundle, overlaid, query, 0, 50)
        await searching.close()
        return rows

    return asyncio.run(search())


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("star", [0, 2, 3]),
        ("STAR w", [0]),
        ("amelie", [1]),
        ("AMÉLIE", [1]),
        ("trek star", [2]),
        ("war", [0, 4]),
        ("14", [4]),
        ("1", [0, 1, 2, 3, 4, 5]),
        ("m a s h", [4]),
        ("nothing", []),
        ("", [0, 1, 2, 3, 4, 5]),
        ("?!", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_items_are_found_by_id_and_text_the_better_match_first(
    bundle: Bundle, query: str, rows: list[int]
) -> None:
    assert find(bundle, query) == rows


def test_replaced_fields_are_searched_and_the_old_ones_are_not(bundle: Bundle) -> None:
    fresh = overlay(bundle, row0={"title": "Episode IV", "genres": []})
    assert find(bundle, "episode", fresh) == [0]
    assert find(bundle, "star", fresh) == [2, 3]


def test_items_that_were_added_are_found_first(bundle: Bundle) -> None:
    fresh = added(bundle, {"900": b'{"title":"Stardust"}', "901": b'{"title":"Starman"}'})
    assert find(bundle, "star", fresh) == [7, 6, 0, 2, 3]
    assert find(bundle, "900", fresh) == [6]
    assert orjson.loads(items_json(bundle, fresh, [6, 0])) == [
        {"id": 900, "fields": {"title": "Stardust"}, "training_events": None},
        {"id": 10, "fields": {"title": "Star Wars", "genres": ["science fiction"]}, "training_events": 6},
    ]


async def test_a_search_follows_the_changes_of_items(bundle: Bundle) -> None:
    """Of several versions of the overlay; in the last but one, an item is put again with the same fields."""
    one, two = b'{"title":"Stardust"}', b'{"title":"Starman"}'
    steps = [
        (overlay(bundle), "star", [0, 2, 3]),
        (overlay(bundle, row0={"title": "Episode IV"}), "star", [2, 3]),
        (added(bundle, {"900": one, "901": two}), "star", [7, 6, 0, 2, 3]),
        (added(bundle, {"901": two, "900": one}), "900", [7]),
        (overlay(bundle), "star", [0, 2, 3]),
    ]
    searching = CatalogSearch()
    for fresh, query, rows in steps:
        assert await searching.page(bundle, fresh, query, 0, 50) == (rows, False)
    await searching.close()


@pytest.mark.parametrize(
    ("title", "queries"),
    [
        ("AME\u0301LIE", ["amelie", "Amélie"]),
        ("Smørrebrød på Ærø", ["smorrebrod pa aero", "SMØRREBRØD", "ærø"]),
        ("Łódź", ["lodz", "łódź", "LÓDZ"]),
        ("Straße", ["strasse", "STRASSE", "straße"]),
        ("İstanbul", ["istanbul", "İSTANBUL"]),
        ("ﬁne", ["fine"]),
        ("M*A*S*H (1970)", ["m a s h 1970", "m*a*s*h", '"m" *', "1970)"]),
        ("two   words\n", ["two words", "  two-words "]),
        ("東京物語", ["東京", "東京物語"]),
    ],
)
def test_case_accents_and_punctuation_do_not_matter(bundle: Bundle, title: str, queries: list[str]) -> None:
    fresh = overlay(bundle, row3={"title": title})
    assert all(3 in find(bundle, query, fresh) for query in queries)


# ---- Fields


def catalog(**fields: list[Any]) -> Catalog:
    return Catalog.build(list(range(len(next(iter(fields.values()), [])))), fields)


def test_the_fields_are_summarised_by_their_kinds() -> None:
    fields: dict[str, list[Any]] = {
        "title": ["a", "b", "c", None],
        "genres": [["x", "y"], ["y"], [], None],
        "year": [1999, None, 1980, float("nan")],
        "sizes": [[1, 2], [2], None, []],
        "new": [True, False, None, True],
        "mixed": [1, "a", None, None],
        "none": [None] * 4,
    }
    assert summarise(catalog(**fields)) == {
        "title": "title",
        "picture": None,
        "fields": [
            {"name": "title", "kind": "text", "missing": 1},
            {"name": "genres", "kind": "texts", "missing": 2},
            {"name": "year", "kind": "number", "missing": 2, "minimum": 1980.0, "maximum": 1999.0},
            {"name": "sizes", "kind": "numbers", "missing": 2, "minimum": 1.0, "maximum": 2.0},
            {"name": "new", "kind": "boolean", "missing": 1},
            {"name": "mixed", "kind": "mixed", "missing": 2},
            {"name": "none", "kind": "none", "missing": 4},
        ],
    }
    assert summarise(Catalog.build([1, 2], {})) == {"title": None, "picture": None, "fields": []}


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"year": [1, 2], "title": ["a", "a"], "other": ["b", "c"]}, "title"),
        ({"Name": ["a", "a"]}, "Name"),
        ({"brand": ["x", "x", "y"], "what": ["a", "b", "c"]}, "what"),
        ({"brand": ["x", "x", "x"]}, None),
        ({"link": ["https://a/1", "https://a/2"]}, None),
        ({"title": [None, None]}, None),
    ],
)
def test_the_title_is_a_field_of_that_name_or_the_text_with_the_most_distinct_values(
    fields: dict[str, list[Any]], title: str | None
) -> None:
    assert title_of(catalog(**fields)) == title


# ---- Colours of the map


def coloured(values: list[Any]) -> tuple[list[dict[str, Any]], NDArray[np.uint8]]:
    return colouring(catalog(field=values), "field")


@pytest.mark.parametrize(
    ("values", "labels", "codes"),
    [
        (["b", "a", "b"], ["b", "a"], [0, 1, 0]),
        ([["x", "y"], ["y"], [], ["x"], ["y"]], ["y", "x"], [0, 0, NO_GROUP, 1, 0]),
        ([3, 1, 3, 2.5], ["1", "2.5", "3"], [2, 0, 2, 1]),
        ([True, None, False, True], ["true", "false"], [0, NO_GROUP, 1, 0]),
    ],
    ids=["texts", "several values", "numbers", "booleans"],
)
def test_few_values_are_groups_of_their_own(values: list[Any], labels: list[str], codes: list[int]) -> None:
    """An item of several values belongs to the most frequent."""
    groups, found = coloured(values)
    assert [group["label"] for group in groups] == labels
    assert [group["items"] for group in groups] == [codes.count(code) for code in range(len(labels))]
    assert found.tolist() == codes


def test_numbers_are_grouped_by_ranges_of_about_as_many_items() -> None:
    values = np.random.default_rng(0).lognormal(size=1000).tolist()
    groups, codes = coloured([*values, None])
    sizes = [group["items"] for group in groups]
    assert len(groups) == 8
    assert min(sizes) > 100
    assert sum(sizes) == 1000
    order = np.argsort(values)
    assert (np.diff(codes[:-1][order].astype(int)) >= 0).all()
    assert codes[-1] == NO_GROUP


@pytest.mark.parametrize("values", [[None, None], [1, "a"], [{"a": 1}, None]])
def test_a_field_that_can_not_be_grouped_is_refused(values: list[Any]) -> None:
    with pytest.raises(InvalidFieldError, match="coloured by year"):
        colouring(catalog(field=values, year=[1, 2]), "field")
    with pytest.raises(InvalidFieldError, match="no field to colour"):
        colouring(catalog(field=values), "nowhere")
