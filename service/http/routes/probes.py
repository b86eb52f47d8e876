"""`/livez`, `/readyz` and `/metrics`."""

import asyncio

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from turret.service.errors import NotReadyError
from turret.service.http.routes.dependencies import (
    BackgroundPart,
    MetricsPart,
    ModelHolderPart,
    OverlayPart,
    WorkerPart,
)
from turret.service.http.routes.responses import AliveAnswer, ReadyAnswer, answers, json_response
from turret.service.shared_state import Order

router = APIRouter(tags=["probes"])


@router.get("/livez", responses=answers(AliveAnswer))
async def livez() -> Response:
    """Answer while the process runs."""
    return json_response({"status": "alive"})


@router.get("/readyz", responses=answers(ReadyAnswer))
async def readyz(
    model_holder: ModelHolderPart, worker: WorkerPart, overlay: OverlayPart, background: BackgroundPart
) -> Response:
    """Answer 200 while a version is live and the service is not shutting down.

    A replica that can't open the live version, and serves an earlier one, is not ready while others serve it.
    A process is not ready until it has read which items were added and withdrawn, and while one of its
    background tasks is down.
    """
    if worker.shared_state.order != Order.SERVE:
        raise NotReadyError(
            "service", None, "the service is shutting down; send the request to another instance", 2
        )
    version = model_holder.answering.version
    if not overlay.was_read:
        message = "the added and withdrawn items have not been read yet; look at the store if this stays"
        raise NotReadyError("store", None, message, 2)
    if background.down:
        names = ", ".join(background.down)
        message = f"these background tasks failed and will be started again: {names}; look at the log"
        raise NotReadyError("service", None, message, 2)
    return json_response({"status": "ready", "version": version})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(metrics: MetricsPart) -> Response:
    """Return the metrics in the Prometheus text format."""
    metrics.refresh()
    return Response(await asyncio.to_thread(metrics.export), media_type=CONTENT_TYPE_LATEST)
