"""`GET /v1/items` and `GET /v1/fields`: the catalog for people who search it."""

from functools import partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Response

from turret.service.errors import InvalidFieldError
from turret.service.http.routes.dependencies import Parts
from turret.service.http.routes.path_ids import Id
from turret.service.http.routes.responses import FieldsAnswer, FoundItemsAnswer, answers, json_response
from turret.service.search.catalog_search import items_json
from turret.service.search.catalog_summary import summarise

QUERY_LENGTH, PAGE_LIMIT = 200, 100
_CURSOR = "^[0-9]{1,4}$"  # a position below `catalog_search.MOST_RESULTS`
router = APIRouter(prefix="/v1", tags=["catalog"])


@router.get("/items", responses=answers(FoundItemsAnswer))
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
    fresh, _ = await parts.overlay.within(bundle, parts.settings.history_timeout)
    if id is not None:
        if query is not None:
            raise InvalidFieldError("id", id, "send `query` or `id`, not both")
        rows = [row for each in id if (row := fresh.row(each)) is not None]
        return _items(bundle.manifest.version, items_json(bundle, fresh, rows))
    page = await parts.catalog_search.page(bundle, fresh, query or "", start, limit)
    following = str(start + limit) if page.has_more else None
    return _items(bundle.manifest.version, items_json(bundle, fresh, page.rows), following)


@router.get("/fields", responses=answers(FieldsAnswer))
async def fields(parts: Parts) -> Response:
    """Summarise the fields of the live version's catalog: kinds, frequent values and bounds."""
    bundle = parts.model_holder.answering.bundle
    summary = await parts.catalog_search.run(partial(summarise, bundle.catalog))
    return json_response({"version": bundle.manifest.version, **summary})


def _items(version: str, items: bytes, cursor: str | None = None) -> Response:
    end = b',"cursor":"%b"}' % cursor.encode() if cursor else b"}"
    body = b'{"version":%b,"items":%b%b' % (orjson.dumps(version), items, end)
    return Response(body, media_type="application/json")
