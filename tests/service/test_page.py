"""The page: its files and headers; the search in the catalog, and its list of fields."""

import asyncio
import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from deploy.vendored import FOLDER, PACKAGES
from tests.conftest import contents
from tests.data.conftest import prepare_as
from tests.support.bounded import ending
from tests.support.service_app import client_of
from turret.data.errors import ColumnError
from turret.data.prepared import PreparedData
from turret.recommending import item_text
from turret.service.catalog_search import (
    NO_GROUP,
    CatalogSearch,
    colouring,
    fold,
    items_json,
    summarise,
    telling_field,
    title_of,
)
from turret.service.errors import InvalidFieldError, ServiceError
from turret.service.http.app import create_app
from turret.service.http.routes.page import STATIC, admin_url
from turret.service.overlay.fresh import ChangedFields, FreshItems, Sent
from turret.service.overlay.persistent import GrowingArray, LayeredMap
from turret.service.settings import Settings, read_settings
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.catalog.catalog import Catalog
from turret.training.page.recommended import item_namer

OURS = [path for path in STATIC.rglob("*") if path.is_file() and "vendored" not in path.parts]


def test_every_file_of_the_page_is_asked_for_again_and_not_sent_again(client: TestClient) -> None:
    for path in ("index.html", *(path.relative_to(STATIC).as_posix() for path in OURS)):
        url = "/" if path == "index.html" else f"/page/{path}"
        answer = client.get(url)
        assert answer.content == (STATIC / path).read_bytes()
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        again = client.get(url, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/").headers["Content-Type"].startswith("text/html")
    assert "javascript" in client.get("/page/app/main.js").headers["Content-Type"]


@pytest.mark.parametrize("name", ["x.js", "../__init__.py", "%2e%2e/__init__.py", "a%0Ab", "%00", ""])
def test_no_other_file_is_sent(client: TestClient, name: str) -> None:
    answer = client.get(f"/page/{name}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (404, "path")


def test_the_page_can_be_switched_off(settings: Settings) -> None:
    with client_of(settings.model_copy(update={"page": False})) as client:
        for path in ("/", "/page/settings.json"):
            assert client.get(path).status_code == 404
        assert client.get("/v1/fields").status_code == 200


def test_the_page_knows_where_the_admin_calls_are(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"admin_port": 8001}))
    with TestClient(app, base_url="http://localhost:8000") as client:
        admin = TestClient(app, base_url="http://localhost:8001")
        here = client.get("/page/settings.json").json()
        assert (here["admin_here"], here["admin_url"]) == (False, "http://localhost:8001/")
        there = admin.get("/page/settings.json").json()
        assert (there["admin_here"], there["admin_url"]) == (True, None)
        assert here["keys_required"] is False
        assert here["pictures"] == []


@pytest.mark.parametrize(
    ("settings", "hostname", "url"),
    [
        ({}, "::1", "http://[::1]:8001/"),
        ({}, "shop.example", None),
        ({}, "", None),
        ({"admin_host": "0.0.0.0"}, "shop.example", "http://shop.example:8001/"),
        ({"admin_port": 9000}, "localhost", "http://localhost:9000/"),
        ({"admin_port": 0}, "localhost", None),
        ({"admin_port": "same"}, "localhost", None),
    ],
)
def test_the_admin_port_is_named_to_those_who_can_reach_it(
    settings: dict[str, Any], hostname: str, url: str | None
) -> None:
    assert admin_url(read_settings(port=8000, **settings), hostname) == url


def test_the_page_loads_from_its_service_and_from_allowed_origins_of_pictures(settings: Settings) -> None:
    origins = read_settings(page_pictures="https://img.example.com, http://127.0.0.1:9000").page_pictures
    with client_of(settings.model_copy(update={"page_pictures": origins})) as client:
        policy = client.get("/").headers["Content-Security-Policy"]
    sources = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert sources.pop("img-src") == "'self' data: https://img.example.com http://127.0.0.1:9000"
    for name in ("script-src", "style-src", "font-src", "connect-src"):
        assert sources.pop(name) == "'self'"
    assert sources == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")


@pytest.mark.parametrize(
    "text", ["img.example.com", "https://img.example.com/a", "https://a; script-src *", "*", "'self'"]
)
def test_no_origin_can_loosen_the_policy(text: str) -> None:
    with pytest.raises(ServiceError, match="is not an origin; send scheme and host"):
        read_settings(page_pictures=text)


# ---- Files


def test_all_files_of_the_page_together_are_small() -> None:
    sent = (path for path in STATIC.rglob("*") if path.is_file() and path.suffix != ".md")
    assert sum(len(gzip.compress(path.read_bytes())) for path in sent) < 200_000


def test_every_third_party_file_is_stored_unchanged_and_listed_with_its_hash_and_licence() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in readme.splitlines() if line.startswith("| `")}
    names = {name for package in PACKAGES for name in package.files.values()}
    assert names == rows.keys() == {path.name for path in FOLDER.iterdir()} - {"README.md"}
    for package in PACKAGES:
        assert any("LICENSE" in name for name in package.files.values()), package.name
        for name in package.files.values():
            assert f"{package.name} {package.version}" in rows[name]
            assert package.licence in rows[name]
            assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() in rows[name]


# ---- The search in the catalog


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
    return FreshItems(bundle.vocabulary, GrowingArray(np.empty((0, 8), np.float32)), replaced=replaced)


def added(bundle: Bundle, fields: dict[str, bytes]) -> FreshItems:
    """An overlay with items that were added, by their ids."""
    return FreshItems(
        bundle.vocabulary,
        GrowingArray(np.zeros((len(fields), 8), np.float32)),
        np.ones(len(fields), dtype=bool),
        places=LayeredMap({item: place for place, item in enumerate(fields)}),
        sent=LayeredMap({place: Sent(item, b"{}") for place, item in enumerate(fields)}),
        added=ChangedFields().changed(dict(enumerate(fields.values()))),
    )


def find(bundle: Bundle, query: str, fresh: FreshItems | None = None) -> list[int]:
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


def test_items_that_were_added_are_shown_as_the_others(bundle: Bundle) -> None:
    fresh = added(bundle, {"900": b'{"title":"Stardust"}'})
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
        (overlay(bundle, row0={"title": "Episode IV"}), "episode", [0]),
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


def test_a_title_of_accents_alone_takes_the_time_of_its_length() -> None:
    """An item may have it; sorting them by their classes would take the square, for each worker."""
    with ending():
        assert fold("e" + "\u0315\u0300" * 150_000) == "e"


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
    }
    found = summarise(catalog(**fields))
    assert [found["title"], found["picture"], found["show"]] == ["title", None, []]
    assert [one | {"label": None, "unit": None} for one in found["fields"]] == found["fields"]
    assert [{name: one[name] for name in one.keys() - {"label", "unit"}} for one in found["fields"]] == [
        {"name": "title", "kind": "text", "missing": 1},
        {"name": "genres", "kind": "texts", "missing": 2},
        {"name": "year", "kind": "number", "missing": 2, "minimum": 1980.0, "maximum": 1999.0},
        {"name": "sizes", "kind": "numbers", "missing": 2, "minimum": 1.0, "maximum": 2.0},
        {"name": "new", "kind": "boolean", "missing": 1},
        {"name": "mixed", "kind": "mixed", "missing": 2},
    ]


def test_the_fields_that_people_see_are_those_of_the_preparation(tmp_path: Path) -> None:
    """From the options of `prepare` to the answer of the service; a bundle keeps them."""
    items, log = tmp_path / "items.csv", tmp_path / "log.csv"
    items.write_text("item_id,title_de,title_en,price\na,Rote Tasse,Red cup,12.5\nb,Blaue Tasse,Blue cup,8\n")
    log.write_text("user_id,item_id,timestamp\nu,a,1\nu,b,2\n")
    shown: dict[str, Any] = {
        "display__title": "title_en",
        "display__show": ["price:Price:EUR", "title_de::", "item_colour"],
    }
    refusal = "--show 'item_colour': items have no such field for answers; they have title_de, title_en"
    with pytest.raises(ColumnError, match=refusal):
        prepare_as(tmp_path / "prepared", source=log, items=items, **shown)
    shown["display__show"] = ["price:Price:EUR", "title_de::"]
    data = PreparedData.open(prepare_as(tmp_path / "prepared", source=log, items=items, **shown).folder)
    built = Catalog.build(data.item_ids.ids(range(2)), data.fields, data.display)
    built.save(tmp_path)
    found = summarise(Catalog.load(tmp_path, 2))
    assert [found["title"], found["show"]] == ["title_en", ["price", "title_de"]]
    told = {one["name"]: (one["label"], one["unit"]) for one in found["fields"]}
    assert told == {"title_de": (None, None), "title_en": (None, None), "price": ("Price", "EUR")}
    assert item_namer(data)(0)["title"] == "Red cup"
    fields = {"title_de": "Rote Tasse", "title_en": "Red cup"}
    assert item_text("a", fields, "title_en") == "Red cup [a]"
    assert item_text("Rote Tasse", fields) == "Rote Tasse", "a name that is the id stands once"
    decoded = {"text": "We take cards & invoices"}
    assert item_text("We take <b>cards</b> &amp; invoices", decoded) == "We take cards & invoices"


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


def test_paths_are_grouped_by_the_lowest_level_that_has_few() -> None:
    paths = [f"{top} > {middle} > {low}" for top in "ABC" for middle in "xyz" for low in range(5)]
    groups, codes = coloured([*paths, "A", "///", None])
    assert [(group["label"], group["items"]) for group in groups] == [
        *((f"{top} > {middle}", 5) for top in "ABC" for middle in "xyz"),
        ("A", 1),
    ]
    assert codes[-3:].tolist() == [9, NO_GROUP, NO_GROUP]
    many = [f"{top} > {low}" for top in "ABC" for low in range(5)]
    assert [group["label"] for group in coloured(many)[0]] == ["A", "B", "C"]
    assert coloured([f"item {number}" for number in range(11)])[0][-1]["label"] == "other"


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


def test_the_map_is_coloured_by_the_field_that_tells_most_about_the_vectors() -> None:
    """Neither by one of many values that vectors know little about, nor by names."""
    random = np.random.default_rng(0)
    kinds, rows = random.integers(4, size=400), np.arange(400)
    vectors = (random.normal(size=(4, 8))[kinds] + random.normal(size=(400, 8))).astype(np.float32)
    fields: dict[str, list[Any]] = {
        "title": [f"item {row}" for row in rows],
        "brand": [f"b{number}" for number in random.integers(90, size=400)],
        "category": [f"c{kind}" for kind in kinds],
        "is_new": [bool(row % 2) for row in rows],
        "mixed": [1, "a"] * 200,
    }
    assert telling_field(catalog(**fields), rows, vectors) == "category"
    assert telling_field(catalog(title=fields["title"]), rows, vectors) is None
    assert telling_field(catalog(brand=fields["brand"][:1]), rows[:1], vectors[:1]) is None
    assert telling_field(catalog(**fields), rows, np.ones_like(vectors)) is None


@pytest.mark.parametrize("values", [[None, None], [1, "a"], [{"a": 1}, None]])
def test_a_field_that_can_not_be_grouped_is_refused(values: list[Any]) -> None:
    with pytest.raises(InvalidFieldError, match="coloured by year"):
        colouring(catalog(field=values, year=[1, 2]), "field")
    with pytest.raises(InvalidFieldError, match="no field to colour"):
        colouring(catalog(field=values), "nowhere")
