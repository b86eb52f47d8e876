"""`POST /admin/activate` and `/admin/rollback`, each with a key of the scope admin."""

from collections.abc import Awaitable, Callable

import orjson
from fastapi import APIRouter, Depends, Request, Response

from service.body import read_body
from service.documents import answers, body_of
from service.errors import RequestError
from service.schemas import ActivateAnswer, ActivateRequest
from service.slot import Swap
from service.state import State, state_of
from tower.errors import BundleError
from tower.pointer import is_version


async def check_scope(request: Request) -> None:
    """Refuse with 403 what comes here without a key of the scope admin, whatever stands in front."""
    key = request.scope.get("turret", {}).get("key")
    if key is None or "admin" not in key.scopes:
        raise RequestError(403, "Authorization", None, "this call needs a key of the scope admin")


router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[Depends(check_scope)])


@router.post("/activate", responses=answers(ActivateAnswer), openapi_extra=body_of(ActivateRequest))
async def activate(request: Request) -> Response:
    """Make a version the live one, after it has passed its checksums and its recorded queries."""
    state = state_of(request)
    version = (await read_body(request, ActivateRequest, state.settings.body_limit)).version
    if not is_version(version):
        raise RequestError(422, "version", version, "send the name of a version; /v1/versions lists them")
    return await _swap(state, lambda: state.slot.activate(version))


@router.post("/rollback", responses=answers(ActivateAnswer))
async def rollback(request: Request) -> Response:
    """Make the version live again that was live before this one."""
    state = state_of(request)
    return await _swap(state, state.slot.roll_back)


async def _swap(state: State, replace: Callable[[], Awaitable[Swap]]) -> Response:
    try:
        live, replaced = await replace()
    except BundleError as error:
        state.metrics.activations.labels("refused").inc()
        kept = state.slot.version
        stays = f"version {kept} stays live" if kept else "no version is live yet"
        raise RequestError(409, "version", None, f"{error}; {stays}") from None
    state.metrics.activations.labels("activated").inc()
    answer = {"version": live.version, "previous": replaced}
    return Response(orjson.dumps(answer), media_type="application/json")
