"""Items: the calls of one, the search of the catalog, the map of the item vectors, and changes of items."""

import asyncio
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Response

from turret.service.catalog_search import colouring, items_json, map_of, summarise
from turret.service.components import Components
from turret.service.error_responses import result_of
from turret.service.errors import InvalidFieldError, RequestError
from turret.service.http.routes.dependencies import (
    CHECKED,
    Id,
    ItemId,
    K,
    Parts,
    Reads,
    Recorded,
    json_response,
)
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_writer import ItemEdit, Written
from turret.service.ranking.item_view import ItemView
from turret.service.schemas.bodies import Line
from turret.service.schemas.requests import ItemBody, ItemLine, ItemPatchBody, SimilarRequest
from turret.tower.bundle.bundle import Bundle

QUERY_LENGTH, PAGE_LIMIT = 200, 100
LINES = 10_000  # of one call
_CURSOR = "^[0-9]{1,4}$"  # a position below `catalog.MOST_RESULTS`
Ids = Annotated[list[Id] | None, Query(max_length=PAGE_LIMIT)]
router = APIRouter(prefix="/v1", tags=["items"], dependencies=CHECKED)


@router.get("/items")
async def find_items(
    parts: Parts,
    query: Annotated[str | None, Query(max_length=QUERY_LENGTH)] = None,
    id: Ids = None,  # noqa: A002 - the parameter
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT)] = 20,
    cursor: Annotated[str | None, Query(pattern=_CURSOR)] = None,
) -> Response:
    """Find items by the words of their id and text fields, or return those of some ids.

    Accents, case and punctuation don't matter. Items whose title or id begins with the query come first, then
    those with its words; the most popular of them first. An empty query returns the most popular items.
    A search leaves out withdrawn items; with `id` they are marked, and unknown ones are left out.
    """
    bundle = parts.model_holder.answering.bundle
    fresh, _ = await parts.overlay.for_answer(bundle)
    following = {}
    if id is None:
        start = int(cursor or 0)
        rows, has_more = await parts.catalog_search.page(bundle, fresh, query or "", start, limit)
        if has_more:
            following = {"cursor": str(start + limit)}
    elif query is not None:
        raise InvalidFieldError("id", id, "send `query` or `id`, not both")
    else:
        rows = _rows(fresh, id)
    items = orjson.Fragment(items_json(bundle, fresh, rows))
    return json_response({"version": bundle.manifest.version, "items": items} | following)


@router.get("/items/{item_id}/similar")
async def similar_items(item_id: ItemId, record: Recorded, parts: Parts, k: K = 10) -> Response:
    """Return the items whose vectors are nearest to this item's."""
    return json_response(await parts.recommender.similar_to(item_id, SimilarRequest(k=k), record))


@router.post("/items/{item_id}/similar")
async def choose_similar_items(
    item_id: ItemId,
    body: Annotated[SimilarRequest, Depends(Reads(SimilarRequest))],
    record: Recorded,
    parts: Parts,
) -> Response:
    """Return the nearest items that meet the conditions, as those of a recommendation."""
    return json_response(await parts.recommender.similar_to(item_id, body, record))


@router.get("/items/{item_id}")
async def get_item(item_id: ItemId, parts: Parts) -> Response:
    """Return an item as the service knows it: fields, features if it is fresh, state, and popularity."""
    return json_response(await parts.recommender.item(item_id))


@router.get("/fields")
async def fields(parts: Parts) -> Response:
    """Summarise the fields of the live version's catalog: kinds, frequent values and bounds."""
    bundle = parts.model_holder.answering.bundle
    summary = await parts.catalog_search.run(partial(summarise, bundle.catalog))
    return json_response({"version": bundle.manifest.version, **summary})


@router.get("/map")
async def item_map(parts: Parts) -> Response:
    """Describe the map of the live version's item vectors, and name the field that tells most about them."""
    bundle = parts.model_holder.answering.bundle
    known, colour = map_of(bundle), await parts.catalog_search.colour_of(bundle)
    return json_response({"version": bundle.manifest.version, "items": len(known), "colour": colour})


@router.get("/map/points", response_class=Response)
async def points(parts: Parts) -> Response:
    """Return the points of the map as bytes."""
    known = map_of(parts.model_holder.answering.bundle)
    return Response(known.astype("<u2", copy=False).tobytes(), media_type="application/octet-stream")


@router.get("/map/colours")
async def colours(field: Annotated[str, Query(min_length=1)], parts: Parts) -> Response:
    """Group the points by a field of the catalog."""
    bundle = parts.model_holder.answering.bundle
    map_of(bundle)
    groups, codes = await parts.catalog_search.run(partial(colouring, bundle.catalog, field))
    answer = {
        "version": bundle.manifest.version,
        "field": field,
        "kind": bundle.catalog.kinds[field],
        "groups": groups,
        "codes": b64encode(codes.tobytes()).decode("ascii"),
    }
    return json_response(answer)


@router.get("/map/items")
async def map_items(
    parts: Parts,
    point: Annotated[list[Annotated[int, Query(ge=0)]] | None, Query(max_length=PAGE_LIMIT)] = None,
    id: Ids = None,  # noqa: A002 - the parameter
) -> Response:
    """Return the items of some points, or the points of some items; unknown items are left out."""
    bundle = parts.model_holder.answering.bundle
    count = len(map_of(bundle))
    fresh, _ = await parts.overlay.for_answer(bundle)
    if (point is None) == (id is None):
        raise InvalidFieldError("point", point, "send `point` or `id`, one of them, up to 100 times")
    if point and (largest := max(point)) >= count:
        raise InvalidFieldError("point", largest, f"send the number of a point, from 0 to {count - 1}")
    view = ItemView(bundle, fresh)
    items = [
        {
            "point": row if row < count else None,
            "id": view.id(row),
            "fields": orjson.Fragment(view.json_of(row)),
        }
        for row in point or _rows(fresh, id or ())
    ]
    return json_response({"version": bundle.manifest.version, "items": items})


def _rows(fresh: FreshItems, ids: Iterable[str]) -> list[int]:
    return [row for each in ids if (row := fresh.row(each)) is not None]


@router.put("/items/{item_id}")
async def put_item(
    item_id: ItemId, body: Annotated[ItemBody, Depends(Reads(ItemBody))], parts: Parts
) -> Response:
    """Add an item by its features, or replace all fields of a known one; the next answers have it."""
    return await _written(parts, ItemEdit(item_id, "PUT", body.features, body.fields))


@router.patch("/items/{item_id}")
async def patch_item(
    item_id: ItemId, body: Annotated[ItemPatchBody, Depends(Reads(ItemPatchBody))], parts: Parts
) -> Response:
    """Change features or fields of an item in part: the others stay, and a null removes one.

    With `withdrawn` false, a withdrawn item is served again, with all that it had.
    """
    restores = body.withdrawn is False
    return await _written(parts, ItemEdit(item_id, "PATCH", body.features, body.fields, restores))


@router.delete("/items/{item_id}")
async def withdraw_item(item_id: ItemId, parts: Parts) -> Response:
    """Withdraw an item: no answer of any version has it until it is put back.

    A PATCH of `{"withdrawn": false}` puts it back as it was.
    """
    return await _written(parts, ItemEdit(item_id, "DELETE"))


@router.post("/items")
async def change_items(
    lines: Annotated[list[Line[ItemLine]], Depends(Reads(ItemLine, LINES))],
    parts: Parts,
) -> Response:
    """Put, patch and withdraw up to 10,000 items, one in a line; each has its own result, in their order.

    The changes that are not refused are in the answers that begin after the response. `warning` counts
    those with fields that no item of the version has, or only with values of other types.
    """
    bundle = parts.model_holder.answering.bundle
    edits = await asyncio.to_thread(_edits_in, lines)
    written = await parts.item_writer.write(bundle, edits)
    return await asyncio.to_thread(_answer_to, lines, edits, bundle, written)


def _edits_in(lines: Sequence[Line[ItemLine]]) -> list[ItemEdit]:
    return [
        ItemEdit(str(line.id), line.method, line.features or {}, line.fields, line.withdrawn is False)
        for _, line in lines
        if isinstance(line, ItemLine)
    ]


def _answer_to(
    lines: Sequence[Line[ItemLine]], edits: Sequence[ItemEdit], bundle: Bundle, written: Written
) -> Response:
    outcomes = iter(zip(edits, written.refused, strict=True))
    results: list[dict[str, Any]] = []
    for number, line in lines:
        if isinstance(line, RequestError):
            results.append({"line": number, "id": None, **result_of(line)})
            continue
        edit, error = next(outcomes)
        known = _named(bundle, edit) if error is None else {"id": line.id}
        results.append({"line": number, **known, **({"status": 200} if error is None else result_of(error))})
    count = sum(result["status"] == 200 for result in results)
    answer = {"version": bundle.manifest.version, "changed": count, "refused": len(results) - count}
    return json_response({**answer, "results": results, **written.shown()})


async def _written(parts: Components, edit: ItemEdit) -> Response:
    """Make one change, and answer with its outcome."""
    bundle = parts.model_holder.answering.bundle
    written = await parts.item_writer.write(bundle, [edit])
    (error,) = written.refused
    if error is not None:
        raise error
    return json_response({"version": bundle.manifest.version, **_named(bundle, edit), **written.shown()})


def _named(bundle: Bundle, edit: ItemEdit) -> dict[str, Any]:
    shown = int(edit.item) if bundle.vocabulary.kind == "integer" else edit.item
    if edit.method == "DELETE":
        return {"id": shown, "withdrawn": True}
    is_known = bundle.vocabulary.row(edit.item) is not None
    return {"id": shown, "vector": "training" if is_known else "features"}
