"""`GET /v1/items/{id}/similar`, and `GET`, `PUT` and `DELETE /v1/items/{id}`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from turret.service.http.routes.dependencies import Parts, reads
from turret.service.http.routes.path_ids import ItemId, check_utf8
from turret.service.http.routes.responses import ItemAnswer, SimilarAnswer, answers, body_of, json_response
from turret.service.schemas.fields import K_LIMIT
from turret.service.schemas.items import ItemBody, ItemPutAnswer, ItemWithdrawnAnswer

router = APIRouter(prefix="/v1/items", tags=["items"], dependencies=[Depends(check_utf8("id"))])


@router.get("/{item_id:id}/similar", responses=answers(SimilarAnswer, 404))
async def similar_items(
    item_id: ItemId, parts: Parts, k: Annotated[int, Query(ge=1, le=K_LIMIT)] = 10
) -> Response:
    """Return the items whose vectors are nearest to this item's."""
    return json_response(await parts.recommender.similar_to(item_id, k))


@router.get("/{item_id:item}", responses=answers(ItemAnswer, 404))
async def get_item(item_id: ItemId, parts: Parts) -> Response:
    """Return an item as the service knows it: fields, features if it is fresh, state, and popularity."""
    return json_response(await parts.recommender.item(item_id))


@router.put("/{item_id:item}", responses=answers(ItemPutAnswer, 409), openapi_extra=body_of(ItemBody))
async def put_item(
    item_id: ItemId,
    body: Annotated[ItemBody, Depends(reads(ItemBody))],
    parts: Parts,
) -> Response:
    """Add an item by its features, or replace the fields of a known one; the next answers have it."""
    answer = await parts.item_writer.put(parts.model_holder.answering.bundle, item_id, body)
    return json_response(answer.model_dump(exclude_none=True))


@router.delete("/{item_id:item}", responses=answers(ItemWithdrawnAnswer, 404))
async def withdraw_item(item_id: ItemId, parts: Parts) -> Response:
    """Withdraw an item: no answer of any version has it until it is put again."""
    answer = await parts.item_writer.withdraw(parts.model_holder.answering.bundle, item_id)
    return json_response(answer.model_dump(exclude_none=True))
