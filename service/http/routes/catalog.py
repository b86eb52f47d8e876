"""`GET /v1/items` and `GET /v1/fields`: the catalog for people who search it."""

import re
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Response

from turret.data.vocabulary import ID_LENGTH
from turret.service.errors import InvalidFieldError
from turret.service.http.routes.dependencies import (
    CatalogSearchPart,
    CatalogSummariesPart,
    ModelHolderPart,
    OverlayPart,
    SettingsPart,
)
from turret.service.http.routes.responses import json_response
from turret.service.schemas.catalog import FieldsAnswer, FoundItemsAnswer
from turret.service.schemas.openapi_helpers import answers
from turret.service.search.catalog_search import MOST_RESULTS, items_json

QUERY_LENGTH, PAGE_LIMIT = 200, 100
router = APIRouter(prefix="/v1", tags=["catalog"])


@router.get("/items", responses=answers(FoundItemsAnswer))
async def find_items(
    model_holder: ModelHolderPart,
    overlay: OverlayPart,
    search: CatalogSearchPart,
    settings: SettingsPart,
    query: str | None = None,
    id: Annotated[list[str] | None, Query()] = None,  # noqa: A002 - the name of the parameter
    limit: str = "20",
    cursor: str | None = None,
) -> Response:
    """Find items by the words of their id and text fields, or return those of some ids.

    Accents, case and punctuation don't matter. Items whose title or id begins with the query come first, then
    those with its words; the most popular of them first. An empty query returns the most popular items.
    A search leaves out withdrawn items; with `id` they are marked, and unknown ones are left out.
    """
    start, count = _start(cursor), _limit(limit)
    bundle = model_holder.answering.bundle
    fresh, _ = await overlay.within(bundle, settings.history_timeout)
    if id is not None:
        if query is not None:
            raise InvalidFieldError("id", id, "send `query` or `id`, not both")
        _check_ids(id)
        rows = [row for each in id if (row := fresh.row(each)) is not None]
        return _items(bundle.manifest.version, items_json(bundle, fresh, rows))
    page = await search.page(bundle, fresh, _checked_query(query or ""), start, count)
    following = str(start + count) if page.has_more else None
    return _items(bundle.manifest.version, items_json(bundle, fresh, page.rows), following)


@router.get("/fields", responses=answers(FieldsAnswer))
async def fields(
    model_holder: ModelHolderPart, search: CatalogSearchPart, summaries: CatalogSummariesPart
) -> Response:
    """Summarise the fields of the live version's catalog: kinds, frequent values and bounds."""
    bundle = model_holder.answering.bundle
    summary = summaries.known(bundle)
    if summary is None:
        summary = await search.run(summaries.maker(bundle))
    return json_response({"version": bundle.manifest.version, **summary})


def _items(version: str, items: bytes, cursor: str | None = None) -> Response:
    end = b',"cursor":"%b"}' % cursor.encode() if cursor else b"}"
    body = b'{"version":%b,"items":%b%b' % (orjson.dumps(version), items, end)
    return Response(body, media_type="application/json")


def _check_ids(ids: list[str]) -> None:
    if len(ids) > PAGE_LIMIT:
        raise InvalidFieldError("id", len(ids), f"send at most {PAGE_LIMIT} ids in a request")
    for each in ids:
        if not 1 <= len(each) <= ID_LENGTH:
            raise InvalidFieldError("id", each, f"send ids of 1 to {ID_LENGTH} characters")


def _checked_query(query: str) -> str:
    if len(query) > QUERY_LENGTH:
        raise InvalidFieldError("query", query, f"send at most {QUERY_LENGTH} characters")
    return query


def _limit(limit: str) -> int:
    if re.fullmatch("[0-9]{1,3}", limit) and 1 <= int(limit) <= PAGE_LIMIT:
        return int(limit)
    raise InvalidFieldError("limit", limit, f"send a whole number from 1 to {PAGE_LIMIT}")


def _start(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if re.fullmatch("[0-9]{1,5}", cursor) and int(cursor) < MOST_RESULTS:
        return int(cursor)
    raise InvalidFieldError(
        "cursor", cursor, "send the `cursor` of the previous page unchanged, or leave it out for the first"
    )
