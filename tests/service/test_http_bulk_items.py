"""Writing items: `POST /v1/items` with many changes as JSON lines, and the writers of several workers."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_app import ids, recommended, serving
from turret.service.errors import ConflictError, NotFoundError
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.overlay.item_writer import ItemEdit, ItemWriter
from turret.service.schemas import bodies
from turret.service.stores.contract import Late
from turret.service.stores.sqlite.shared import SqliteItems
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish

HERE = placed(contents().item_vectors[0])  # where item 100 is


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[TestClient]:
    """60 items with the ids 100 to 159, and an item tower."""
    publish(tmp_path, with_item_tower(contents("v1")))
    with serving(tmp_path) as client:
        yield client


def post(client: TestClient, *lines: object, kind: str = "application/x-ndjson") -> httpx2.Response:
    body = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return client.post("/v1/items", content=body, headers={"Content-Type": kind})


def results(answer: httpx2.Response) -> list[tuple[Any, int]]:
    assert answer.status_code == 200, answer.text
    return [(result["id"], result["status"]) for result in answer.json()["results"]]


def test_each_line_is_what_the_call_of_one_item_does(shop: TestClient) -> None:
    answer = post(
        shop,
        {"id": 900, "features": HERE, "fields": {"title": "New", "genres": ["war"]}},
        {"id": "105", "method": "PATCH", "fields": {"stock": 3}},
        {"id": 106, "method": "DELETE"},
        b"  ",
        {"id": 107, "features": {}, "fields": {"title": "Renamed"}},
    )
    assert answer.json() == {
        "version": "v1",
        "changed": 4,
        "refused": 0,
        "warning": "no item of version v1 has the field 'stock' (1 of 3 changes); filters don't read it, "
        "check its name",
        "results": [
            {"line": 1, "id": 900, "vector": "features", "status": 200},
            {"line": 2, "id": 105, "vector": "training", "status": 200},
            {"line": 3, "id": 106, "withdrawn": True, "status": 200},
            {"line": 5, "id": 107, "vector": "training", "status": 200},
        ],
    }
    found = ids(recommended(shop, history=[101], k=100))
    assert 900 in found
    assert 106 not in found
    fields = {item: shop.get(f"/v1/items/{item}").json()["fields"] for item in (105, 107)}
    assert fields[105] == {"title": "Item 105", "genres": ["drama"], "stock": 3}
    assert fields[107] == {"title": "Renamed"}
    assert ids(recommended(shop, k=9, filter={"genres": {"equals": "war"}})) == [900]


def test_fields_that_no_item_has_and_values_of_other_types_are_kept_with_a_warning(shop: TestClient) -> None:
    """With their counts, and the first names, cut; a refused line, a null and a feature don't count."""
    long = "x" * 9_000
    answer = post(
        shop,
        *(
            {"id": item, "method": "PATCH", "fields": {"stok": 0, "title": "Heat"}}
            for item in (101, 102, 103)
        ),
        {"id": 104, "method": "PATCH", "fields": {"title": 7, "genres": ["war", 1, None], "\n": 1, long: 1}},
        {"id": 105, "method": "PATCH", "fields": {"title": None, "genres": {"war": 1}, "last": [[]]}},
        {"id": 999, "method": "PATCH", "fields": {"refused": 1}},
        {"id": 900, "features": HERE},
    )
    assert (answer.json()["changed"], answer.json()["refused"]) == (6, 1)
    unknown, odd = answer.json()["warning"].split(". ")
    assert unknown.startswith("no item of version v1 has the field 'stok' (3 of 5 changes), '\\n' (1 of 5 ch")
    assert ", and 1 more; filters don't read it" in unknown
    assert odd == (
        "no item of version v1 has a number as 'title' (text) (1 of 5 changes), a number as 'genres' (texts) "
        "(1 of 5 changes), an object or a list as 'genres' (texts) (1 of 5 changes); filters compare values "
        "of one type, send that"
    )
    assert len(answer.json()["warning"]) < 600
    assert shop.get("/v1/items/101").json()["fields"]["stok"] == 0
    for call, body in (
        (shop.patch, {"fields": {"stok": 0}}),
        (shop.put, {"features": {}, "fields": {"stok": 0}}),
    ):
        warning = call("/v1/items/101", json=body).json()["warning"]
        assert warning.startswith("no item of version v1 has the field 'stok'; filters")
    assert "warning" not in shop.patch("/v1/items/101", json={"fields": {"title": "A"}}).json()


def test_a_line_that_is_refused_says_why_and_the_others_are_kept(shop: TestClient) -> None:
    answer = post(
        shop,
        b"{",
        {"id": 900, "features": {"colour": 1}},
        {"id": 901, "features": HERE, "colour": 1},
        {"id": 902},
        {"id": 903, "method": "PATCH", "fields": {"stock": 1}},
        {"id": 904, "method": "DELETE"},
        {"id": 905, "features": HERE, "fields": {"text": "x" * 50_000}},
        {"id": "name", "features": HERE},
        {"id": 906, "features": HERE},
    )
    wanted = [(None, 400), (900, 422), (None, 422), (None, 422), (903, 404), (904, 404), (905, 413)]
    assert results(answer) == [*wanted, ("name", 422), (906, 200)]
    refused = answer.json()["results"]
    assert (answer.json()["changed"], answer.json()["refused"]) == (1, 8)
    assert [result["line"] for result in refused] == list(range(1, 10))
    assert refused[1]["error"]["field"] == "features.colour"
    assert "unknown field; the fields are id, method, features, fields" in refused[2]["error"]["message"]
    assert "PATCH changes fields alone" in refused[3]["error"]["message"]
    assert shop.get("/v1/items/906").status_code == 200
    assert shop.get("/v1/items/900").status_code == 404


def test_several_lines_of_one_item_are_applied_in_their_order(shop: TestClient) -> None:
    answer = post(
        shop,
        {"id": 900, "features": HERE, "fields": {"title": "One", "stock": 1}},
        {"id": "900", "method": "PATCH", "fields": {"stock": 2}},
        {"id": 900, "method": "PATCH", "fields": {"title": None, "price": 4}},
        {"id": 901, "features": HERE},
        {"id": 901, "method": "DELETE"},
        {"id": 901, "method": "PATCH", "fields": {"stock": 2}},
        {"id": 901, "method": "PATCH", "fields": {"stock": 2}, "withdrawn": False},
        {"id": 105, "method": "PATCH", "fields": {"stock": 2}},
        {"id": 105, "method": "PATCH", "fields": {"stock": None, "price": 1}},
    )
    statuses = [status for _, status in results(answer)]
    assert statuses == [200] * 5 + [409] + [200] * 3
    assert shop.get("/v1/items/900").json()["fields"] == {"stock": 2, "price": 4}
    assert shop.get("/v1/items/901").json()["fields"] == HERE | {"stock": 2}
    fields = shop.get("/v1/items/105").json()["fields"]
    assert fields == {"title": "Item 105", "genres": ["drama"], "price": 1}


def test_ten_thousand_items_fit_into_one_call_and_one_more_does_not(shop: TestClient) -> None:
    random = np.random.default_rng(0)
    lines = [
        {
            "id": number,
            "features": placed(random.standard_normal(8).astype(np.float32)),
            "fields": {"genres": ["war" if number % 2 else "noir"]},
        }
        for number in range(1_000, 11_000)
    ]
    answer = post(shop, *lines)
    assert (answer.json()["changed"], answer.json()["refused"]) == (10_000, 0)
    war = recommended(shop, history=[101], k=1_000, filter={"genres": {"equals": "war"}})
    assert len(ids(war)) == 1_000
    assert {item % 2 for item in ids(war)} == {1}
    refused = post(shop, *lines, lines[0])
    assert refused.status_code == 413
    assert "more than 10000 lines; send it in parts" in refused.json()["error"]["message"]


def test_blank_lines_and_a_mark_of_windows_are_no_items(shop: TestClient) -> None:
    line = json.dumps({"id": 105, "method": "DELETE"}).encode()
    assert results(post(shop, b"\xef\xbb\xbf" + line + b"\n" * 50_000)) == [(105, 200)]


def test_a_cap_counts_new_and_changed_items_with_the_others(shop: TestClient) -> None:
    post(
        shop,
        {"id": 900, "features": HERE, "fields": {"genres": ["war", "drama"]}},
        {"id": 901, "features": HERE, "fields": {"genres": "drama"}},
        {"id": 105, "method": "PATCH", "fields": {"genres": ["war"]}},
        {"id": 106, "method": "PATCH", "fields": {"genres": None}},
    )
    genres = {900: {"war", "drama"}, 901: {"drama"}, 105: {"war"}, 106: set()}
    found = ids(recommended(shop, history=[100], k=100, cap={"genres": 2}))
    assert {900, 901, 106} < set(found)
    counts = Counter(genre for item in found for genre in genres.get(item, {"drama"}))
    assert counts == {"war": 2, "drama": 2}


def test_long_lines_and_many_blank_ones_are_refused_before_they_are_parsed(
    shop: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing interrupts the parser: one line of 16 MB would keep all requests of a worker waiting."""
    parsed: list[int] = []
    real = bodies.parse

    def counted(line: bytes) -> Any:
        parsed.append(len(line))
        return real(line)

    monkeypatch.setattr(bodies, "parse", counted)
    line = json.dumps({"id": 105, "method": "DELETE"}).encode()
    long = post(shop, line, b'{"id": 106, "features": {"title": "%b"}}' % (b"x" * 200_000), line)
    assert results(long) == [(105, 200), (None, 413), (105, 200)]
    blank = post(shop, line, b"\n" * 100_000, line)
    assert (blank.status_code, blank.json()["error"]["field"]) == (413, "body")
    assert parsed == [len(line) + 1, len(line)]


# --- Writing them

LIMIT = 9_000


def edit(item: str, **fields: object) -> ItemEdit:
    return ItemEdit(item, "PUT", HERE, fields)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[SqliteItems]]:
    """One store, opened by three workers."""
    stores = [SqliteItems(tmp_path / "items.sqlite") for _ in range(3)]
    yield stores
    for store in stores:
        asyncio.run(store.close())


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """60 items with the ids 100 to 159, and an item tower."""
    return Bundle.open(publish(tmp_path, with_item_tower(contents())))


def workers_of(
    stores: list[SqliteItems], limit: int = LIMIT, late: Sequence[str] = ()
) -> tuple[list[ItemOverlayCache], list[ItemWriter]]:
    """The overlay and the writer of each worker, which tells the others of its changes."""
    overlays = [ItemOverlayCache(store) for store in stores]

    async def late_ones(number: int, seconds: float) -> Late:
        for overlay in overlays:
            overlay.number = max(overlay.number, number)
        return Late([], [*late])

    pairs = zip(stores, overlays, strict=True)
    return overlays, [ItemWriter(store, overlay, limit, 20.0, late_ones) for store, overlay in pairs]


async def put_all(workers: list[ItemWriter], bundle: Bundle, items: list[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for place, item in enumerate(items):
        (refused,) = (await workers[place % 3].write(bundle, [edit(item)])).refused
        counts["refused" if isinstance(refused, ConflictError) else "put"] += 1
    return counts


@pytest.mark.parametrize("first", [900, 100])
async def test_no_more_than_the_limit_are_put_by_several_workers(
    stores: list[SqliteItems], bundle: Bundle, first: int
) -> None:
    """New items, and items of the bundle with new fields."""
    overlays, workers = workers_of(stores)
    items = [str(first + number) for number in range(40)]
    counts = await put_all(workers, bundle, items)
    assert counts["put"] > 9
    assert counts["refused"] > 9
    await overlays[0].poll()
    held = overlays[0].last_read(bundle)
    assert LIMIT - 1_000 < held.size <= LIMIT
    there = list(held.places) + [str(bundle.vocabulary.id(row)) for row in held.replaced.by_row]
    assert await put_all(workers, bundle, [*there, *there]) == {"put": 2 * counts["put"]}
    await workers[1].write(bundle, [ItemEdit(there[0], "DELETE")])
    assert await put_all(workers, bundle, items) == counts


@pytest.mark.parametrize("item", ["900", "100"])
async def test_no_change_in_part_is_lost_among_several_workers(
    stores: list[SqliteItems], bundle: Bundle, item: str
) -> None:
    _, workers = workers_of(stores)
    await workers[0].write(bundle, [edit(item, title="New")])
    parts = [[ItemEdit(item, "PATCH", {}, {f"part {n}": n, "last": n})] for n in range(12)]
    await asyncio.gather(*(workers[place % 3].write(bundle, part) for place, part in enumerate(parts)))
    (last,) = await stores[0].last([item])
    fields = json.loads(last.fields) if last and last.fields else {}
    assert fields.pop("last") in range(12)
    assert fields == {"title": "New"} | {f"part {n}": n for n in range(12)}


async def test_items_that_are_put_and_withdrawn_leave_nothing_behind(bundle: Bundle) -> None:
    """A limit of one item is enough for any number of them, and a withdrawal can be sent again."""
    (overlay,), (writer,) = workers_of([SqliteItems()], limit=3_000)
    empty = (await overlay.of(bundle)).size
    for number in range(30):
        edits = [edit(str(number)), ItemEdit(str(number), "DELETE"), ItemEdit(str(number), "DELETE")]
        for one in edits:
            assert (await writer.write(bundle, [one])).refused == [None]
    fresh = await overlay.of(bundle)
    assert (len(fresh), fresh.size) == (0, empty)
    (refused,) = (await writer.write(bundle, [ItemEdit("31", "DELETE")])).refused
    assert isinstance(refused, NotFoundError)


async def test_a_replica_that_is_late_is_named_though_the_last_changes_are_refused(bundle: Bundle) -> None:
    _, (writer,) = workers_of([SqliteItems()], limit=LIMIT * 100, late=["other:8000"])
    edits = [edit("900"), *(ItemEdit("unknown", "PATCH", {}, {"a": 1}) for _ in range(1_500))]
    written = await writer.write(bundle, edits)
    assert [refused is None for refused in written.refused] == [True] + [False] * 1_500
    assert written.late.replicas == ["other:8000"]
