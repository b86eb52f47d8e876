"""`GET /v1/map` and the calls below it: the item vectors of the live version in the plane."""

from base64 import b64encode
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response

from turret.service.errors import InvalidFieldError
from turret.service.http.routes.dependencies import Parts
from turret.service.http.routes.path_ids import Id
from turret.service.http.routes.responses import (
    ColoursAnswer,
    MapAnswer,
    MapItemsAnswer,
    answers,
    json_response,
)
from turret.service.ranking.item_view import ItemView
from turret.service.search.item_maps import colouring, map_of

MOST_ITEMS = 100
_POINTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Two uint16 (little endian) for each item, x and y; 0 to 65535 span a square.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    404: {},
}
router = APIRouter(prefix="/v1/map", tags=["map"])


@router.get("", responses=answers(MapAnswer, 404))
async def item_map(parts: Parts) -> Response:
    """Describe the map of the live version's item vectors."""
    bundle = parts.model_holder.answering.bundle
    known = map_of(bundle)
    return json_response(
        {"version": bundle.manifest.version, "method": known.method, "items": len(known.points)}
    )


@router.get("/points", responses=_POINTS, response_class=Response)
async def points(parts: Parts) -> Response:
    """Return the points of the map as bytes."""
    known = map_of(parts.model_holder.answering.bundle)
    return Response(known.points.astype("<u2", copy=False).tobytes(), media_type="application/octet-stream")


@router.get("/colours", responses=answers(ColoursAnswer, 404))
async def colours(
    field: Annotated[str, Query(min_length=1)],
    parts: Parts,
) -> Response:
    """Group the points by a field of the catalog."""
    bundle = parts.model_holder.answering.bundle
    map_of(bundle)
    coloured = await parts.catalog_search.run(partial(colouring, bundle.catalog, field))
    return json_response(
        {
            "version": bundle.manifest.version,
            "field": field,
            "kind": bundle.catalog.kinds[field],
            "groups": [group._asdict() for group in coloured.groups],
            "codes": b64encode(coloured.codes.tobytes()).decode("ascii"),
        }
    )


@router.get("/items", responses=answers(MapItemsAnswer, 404))
async def map_items(
    parts: Parts,
    point: Annotated[list[Annotated[int, Query(ge=0)]] | None, Query(max_length=MOST_ITEMS)] = None,
    id: Annotated[list[Id] | None, Query(max_length=MOST_ITEMS)] = None,  # noqa: A002 - the parameter
) -> Response:
    """Return the items of some points, or the points of some items; unknown items are left out."""
    bundle = parts.model_holder.answering.bundle
    count = len(map_of(bundle).points)
    fresh, _ = await parts.overlay.within(bundle, parts.settings.history_timeout)
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
