"""Items: the calls of one item, the search of the catalog, and the map of the item vectors."""

from base64 import b64encode
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Response

from turret.service.errors import InvalidFieldError
from turret.service.http.routes.dependencies import Id, ItemId, Parts, Reads, json_response
from turret.service.ranking.item_view import ItemView
from turret.service.schemas.fields import K_LIMIT
from turret.service.schemas.requests import ItemBody
from turret.service.search.catalog_fields import colouring, map_of, summarise
from turret.service.search.catalog_search import items_json

QUERY_LENGTH, PAGE_LIMIT = 200, 100
_CURSOR = "^[0-9]{1,4}$"  # a position below `catalog_search.MOST_RESULTS`
_POINTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Two uint16 (little endian) for each item, x and y; 0 to 65535 span a square.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    404: {},
}
router = APIRouter(prefix="/v1", tags=["items"])


@router.get("/items")
async def find_items(
    parts: Parts,
    query: Annotated[str | None, Query(max_length=QUERY_LENGTH)] = None,
    id: Annotated[list[Id] | None, Query(max_length=PAGE_LIMIT)] = None,  # noqa: A002 - the parameter
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT)] = 20,
    cursor: Annotated[str | None, Query(pattern=_CURSOR)] = None,
) -> Response:
    """Find items by the words of their id and text fields, or return those of some ids.

    Accents, case and punctuation don't matter. Items whose title or id begins with the query come first, then
    those with its words; the most popular of them first. An empty query returns the most popular items.
    A search leaves out withdrawn items; with `id` they are marked, and unknown ones are left out.
    """
    start = int(cursor or 0)
    bundle = parts.model_holder.answering.bundle
    fresh, _ = await parts.overlay.for_answer(bundle)
    if id is not None:
        if query is not None:
            raise InvalidFieldError("id", id, "send `query` or `id`, not both")
        rows = [row for each in id if (row := fresh.row(each)) is not None]
        return _items(bundle.manifest.version, items_json(bundle, fresh, rows))
    rows, has_more = await parts.catalog_search.page(bundle, fresh, query or "", start, limit)
    following = str(start + limit) if has_more else None
    return _items(bundle.manifest.version, items_json(bundle, fresh, rows), following)


@router.get("/items/{item_id:id}/similar")
async def similar_items(
    item_id: ItemId, parts: Parts, k: Annotated[int, Query(ge=1, le=K_LIMIT)] = 10
) -> Response:
    """Return the items whose vectors are nearest to this item's."""
    return json_response(await parts.recommender.similar_to(item_id, k))


@router.get("/items/{item_id:item}")
async def get_item(item_id: ItemId, parts: Parts) -> Response:
    """Return an item as the service knows it: fields, features if it is fresh, state, and popularity."""
    return json_response(await parts.recommender.item(item_id))


@router.put("/items/{item_id:item}")
async def put_item(
    item_id: ItemId,
    body: Annotated[ItemBody, Depends(Reads(ItemBody))],
    parts: Parts,
) -> Response:
    """Add an item by its features, or replace the fields of a known one; the next answers have it."""
    return json_response(await parts.item_writer.put(parts.model_holder.answering.bundle, item_id, body))


@router.delete("/items/{item_id:item}")
async def withdraw_item(item_id: ItemId, parts: Parts) -> Response:
    """Withdraw an item: no answer of any version has it until it is put again."""
    return json_response(await parts.item_writer.withdraw(parts.model_holder.answering.bundle, item_id))


@router.get("/fields")
async def fields(parts: Parts) -> Response:
    """Summarise the fields of the live version's catalog: kinds, frequent values and bounds."""
    bundle = parts.model_holder.answering.bundle
    summary = await parts.catalog_search.run(partial(summarise, bundle.catalog))
    return json_response({"version": bundle.manifest.version, **summary})


@router.get("/map")
async def item_map(parts: Parts) -> Response:
    """Describe the map of the live version's item vectors."""
    bundle = parts.model_holder.answering.bundle
    known = map_of(bundle)
    return json_response(
        {"version": bundle.manifest.version, "method": known.method, "items": len(known.points)}
    )


@router.get("/map/points", responses=_POINTS, response_class=Response)
async def points(parts: Parts) -> Response:
    """Return the points of the map as bytes."""
    known = map_of(parts.model_holder.answering.bundle)
    return Response(known.points.astype("<u2", copy=False).tobytes(), media_type="application/octet-stream")


@router.get("/map/colours")
async def colours(
    field: Annotated[str, Query(min_length=1)],
    parts: Parts,
) -> Response:
    """Group the points by a field of the catalog."""
    bundle = parts.model_holder.answering.bundle
    map_of(bundle)
    groups, codes = await parts.catalog_search.run(partial(colouring, bundle.catalog, field))
    return json_response(
        {
            "version": bundle.manifest.version,
            "field": field,
            "kind": bundle.catalog.kinds[field],
            "groups": groups,
            "codes": b64encode(codes.tobytes()).decode("ascii"),
        }
    )


@router.get("/map/items")
async def map_items(
    parts: Parts,
    point: Annotated[list[Annotated[int, Query(ge=0)]] | None, Query(max_length=PAGE_LIMIT)] = None,
    id: Annotated[list[Id] | None, Query(max_length=PAGE_LIMIT)] = None,  # noqa: A002 - the parameter
) -> Response:
    """Return the items of some points, or the points of some items; unknown items are left out."""
    bundle = parts.model_holder.answering.bundle
    count = len(map_of(bundle).points)
    fresh, _ = await parts.overlay.for_answer(bundle)
    if (point is None) == (id is None):
        raise InvalidFieldError("point", point, "send `point` or `id`, one of them, up to 100 times")
    if point and (largest := max(point)) >= count:
        raise InvalidFieldError("point", largest, f"send the number of a point, from 0 to {count - 1}")
    rows = point or []
    rows = [*rows, *(row for each in id or () if (row := fresh.row(each)) is not None)]
    view = ItemView(bundle, fresh)
    return json_response(
        {"version": bundle.manifest.version, "items": [_shown(view, row, count) for row in rows]}
    )


def _shown(view: ItemView, row: int, count: int) -> dict[str, Any]:
    fields = orjson.Fragment(view.json_of(row))
    return {"point": row if row < count else None, "id": view.id(row), "fields": fields}


def _items(version: str, items: bytes, cursor: str | None = None) -> Response:
    end = b',"cursor":"%b"}' % cursor.encode() if cursor else b"}"
    body = b'{"version":%b,"items":%b%b' % (orjson.dumps(version), items, end)
    return Response(body, media_type="application/json")
