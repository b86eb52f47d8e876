"""`GET /v1/items/{id}/similar`."""

import re

import orjson
from fastapi import APIRouter, Request, Response

from service.answering import similar
from service.documents import answers
from service.errors import RequestError
from service.schemas import K_LIMIT, SimilarAnswer
from service.state import state_of

router = APIRouter(prefix="/v1/items", tags=["items"])


@router.get("/{item_id:path}/similar", responses=answers(SimilarAnswer))
async def similar_items(request: Request, item_id: str, k: str = "10") -> Response:
    """Give the items whose vectors are nearest to this item's, without itself."""
    count = _count(k)
    live = state_of(request).slot.live
    row = live.bundle.vocabulary.row(item_id)
    if row is None:
        raise RequestError(404, "id", item_id, f"version {live.version} has no such item; check the id")
    return Response(orjson.dumps(similar(live, row, count)), media_type="application/json")


def _count(k: str) -> int:
    if re.fullmatch("[0-9]{1,4}", k) and 1 <= int(k) <= K_LIMIT:
        return int(k)
    raise RequestError(422, "k", k, f"send a whole number from 1 to {K_LIMIT}")
