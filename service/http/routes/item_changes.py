"""Changes of items: one in a call, or up to 10,000 as JSON lines."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from turret.data.vocabulary import Id
from turret.service.components import Components
from turret.service.error_responses import result_of
from turret.service.errors import RequestError
from turret.service.http.routes.dependencies import ItemId, Parts, Reads, json_response
from turret.service.overlay.item_writer import ItemEdit
from turret.service.schemas.bodies import Line
from turret.service.schemas.requests import ItemBody, ItemLine, ItemPatchBody
from turret.tower.bundle.bundle import Bundle

LINES = 10_000
router = APIRouter(prefix="/v1", tags=["items"])


@router.put("/items/{item_id:item}")
async def put_item(
    item_id: ItemId, body: Annotated[ItemBody, Depends(Reads(ItemBody))], parts: Parts
) -> Response:
    """Add an item by its features, or replace all fields of a known one; the next answers have it."""
    return await _written(parts, ItemEdit(item_id, "PUT", body.features, body.fields))


@router.patch("/items/{item_id:item}")
async def patch_item(
    item_id: ItemId, body: Annotated[ItemPatchBody, Depends(Reads(ItemPatchBody))], parts: Parts
) -> Response:
    """Change features or fields of an item in part: the others stay, and a null removes one."""
    return await _written(parts, ItemEdit(item_id, "PATCH", body.features, body.fields))


@router.delete("/items/{item_id:item}")
async def withdraw_item(item_id: ItemId, parts: Parts) -> Response:
    """Withdraw an item: no answer of any version has it until it is put again."""
    return await _written(parts, ItemEdit(item_id, "DELETE"))


@router.post("/items")
async def change_items(
    lines: Annotated[list[Line[ItemLine]], Depends(Reads(ItemLine, LINES))],
    parts: Parts,
) -> Response:
    """Put, patch and withdraw up to 10,000 items, one in a line; each has its own result, in their order.

    The changes that are not refused are in the answers that begin after the response.
    """
    bundle = parts.model_holder.answering.bundle
    edits = [
        ItemEdit(str(line.id), line.method, line.features or {}, line.fields)
        for _, line in lines
        if isinstance(line, ItemLine)
    ]
    refused, behind = await parts.item_writer.write(bundle, edits)
    outcomes = iter(zip(edits, refused, strict=True))
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
    return json_response({**answer, "results": results, **_late(behind)})


async def _written(parts: Components, edit: ItemEdit) -> Response:
    """Make one change, and answer with its outcome."""
    bundle = parts.model_holder.answering.bundle
    (error,), behind = await parts.item_writer.write(bundle, [edit])
    if error is not None:
        raise error
    return json_response({"version": bundle.manifest.version, **_named(bundle, edit), **_late(behind)})


def _named(bundle: Bundle, edit: ItemEdit) -> dict[str, Any]:
    shown: Id = int(edit.item) if bundle.vocabulary.kind == "integer" else edit.item
    if edit.method == "DELETE":
        return {"id": shown, "withdrawn": True}
    is_known = bundle.vocabulary.row(edit.item) is not None
    return {"id": shown, "vector": "training" if is_known else "features"}


def _late(behind: list[str]) -> dict[str, Any]:
    return {"replicas_behind": behind} if behind else {}
