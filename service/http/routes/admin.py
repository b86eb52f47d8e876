"""`POST /admin/activate` and `/admin/rollback`, `GET` and `POST /admin/routes`: calls of the scope admin."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from turret.service.components import Components
from turret.service.errors import (
    BusyError,
    ConflictError,
    NotReadyError,
    ReplicasUnavailableError,
    ServiceError,
)
from turret.service.http.routes.dependencies import Parts, Reads
from turret.service.http.routes.responses import ActivateAnswer, RoutesAnswer, answers, json_response
from turret.service.observing.metrics import Metrics
from turret.service.schemas.requests import ActivateRequest, RoutesRequest
from turret.service.versions.activation import Late, Swap, reason_of
from turret.service.versions.holder import ModelHolder
from turret.service.versions.record import Route
from turret.tower.errors import BundleError


async def _key_name(request: Request) -> str:
    """The name of the request's key; the key that the service made for itself has none."""
    name: str | None = request.scope["turret"]["key"].name
    return name or "admin"


KeyName = Annotated[str, Depends(_key_name)]
router = APIRouter(prefix="/admin", tags=["admin"])


@router.post("/activate", responses=answers(ActivateAnswer, 409))
async def activate(
    body: Annotated[ActivateRequest, Depends(Reads(ActivateRequest))], parts: Parts, key_name: KeyName
) -> Response:
    """Make a version live in every worker, after it has passed the gate.

    The answer comes when all workers of all replicas serve it; `behind` lists the processes of this replica
    that are late, `replicas_behind` the other replicas.
    """
    return await _swap(parts, parts.activator.activate(body.version, body.force, key_name))


@router.post("/rollback", responses=answers(ActivateAnswer, 409))
async def rollback(parts: Parts, key_name: KeyName) -> Response:
    """Make the previous version live again.

    `warning` says that its vector engine has lost it, so that the fallback answers.
    """
    return await _swap(parts, parts.activator.roll_back(key_name))


@router.get("/routes", responses=answers(RoutesAnswer))
async def routes(parts: Parts) -> Response:
    """Show the live version, the canary and the shadow."""
    return json_response(_shown(parts.model_holder))


@router.post("/routes", responses=answers(RoutesAnswer, 409))
async def route(body: Annotated[RoutesRequest, Depends(Reads(RoutesRequest))], parts: Parts) -> Response:
    """Let a canary answer a share of the users, or a shadow a share of the requests, unseen.

    An omitted route stays; null removes it.
    """
    changes = {
        name: None if change is None else Route.model_validate(change.model_dump())
        for name, change in ((name, getattr(body, name)) for name in body.model_fields_set)
    }
    with _refusals("routes", parts.metrics, lambda: "the routes are unchanged"):
        late = await parts.activator.route(lambda routes: routes.model_copy(update=changes))
    return json_response(_shown(parts.model_holder) | _behind(late))


async def _swap(parts: Components, replacing: Awaitable[Swap]) -> Response:
    def unchanged() -> str:
        parts.metrics.activations.labels("refused").inc()
        version = parts.model_holder.version
        return f"version {version} stays live" if version else "no version is live yet"

    with _refusals("version", parts.metrics, unchanged):
        swap = await replacing
    parts.metrics.activations.labels("activated").inc()
    answer: dict[str, Any] = {"version": swap.live.version, "previous": swap.replaced}
    if swap.warning:
        answer["warning"] = swap.warning
    return json_response(answer | _behind(swap.late))


def _behind(late: Late) -> dict[str, Any]:
    named = (("behind", late.processes), ("replicas_behind", late.replicas))
    return {name: members for name, members in named if members}


@contextmanager
def _refusals(field: str, metrics: Metrics, unchanged: Callable[[], str]) -> Iterator[None]:
    """Raise the errors of an activation as errors of the request; `unchanged` names the live version."""
    try:
        yield
    except BundleError as error:
        metrics.reload_failures.labels(reason_of(error)).inc()
        raise ConflictError("version", None, f"{error}; {unchanged()}") from None
    except BusyError as error:
        raise NotReadyError(field, None, str(error), 1) from None
    except ReplicasUnavailableError as error:
        raise NotReadyError(field, None, str(error), 2) from None
    except ServiceError as error:  # the folder can't be opened or written
        raise ConflictError(field, None, str(error)) from None


def _shown(model_holder: ModelHolder) -> dict[str, Any]:
    route = {"version", "share"}
    routes = model_holder.traffic.routes.model_dump(mode="json", include={"canary": route, "shadow": route})
    return {"live": model_holder.version} | routes
