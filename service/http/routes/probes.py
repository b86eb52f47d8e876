"""`/livez`, `/readyz` and `/metrics`, and the description of the calls."""

import time
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from turret.service.errors import NotReadyError
from turret.service.http.routes.dependencies import Parts, json_response

# `make docs` writes these files, which are valid for every version.
STATIC = Path(__file__).parent.parent / "static"
router = APIRouter(tags=["probes"])


@router.head("/livez", include_in_schema=False)
@router.get("/livez")
async def livez() -> Response:
    """Answer while the process runs."""
    return json_response({"status": "alive"})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz")
async def readyz(parts: Parts) -> Response:
    """Answer 200 while a version is live and the service is not shutting down.

    A replica that can't open the live version, and serves an earlier one, is not ready while others serve it.
    A process is not ready until it has read which items were added and withdrawn, and while one of its
    background tasks is down.
    """
    if parts.context.is_draining:
        raise NotReadyError(
            "service", None, "the service is shutting down; send the request to another instance", 2
        )
    version = parts.model_holder.answering.version
    if not parts.overlay.was_read:
        message = "the added and withdrawn items have not been read yet; look at the store if this stays"
        raise NotReadyError("store", None, message, 2)
    if parts.background.down:
        names = ", ".join(sorted(parts.background.down))
        message = f"these background tasks failed and will be started again: {names}; look at the log"
        raise NotReadyError("service", None, message, 2)
    return json_response({"status": "ready", "version": version})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(parts: Parts, history: bool = False) -> Response:
    """Return the metrics in the Prometheus text format.

    With `history=true`, as JSON those that the page plots, at up to 120 times of the last hour: `ages` in
    seconds, oldest first, and by the name of each series its values at these times.
    """
    if history:
        return json_response(await parts.metrics.hour(time.monotonic()))
    return Response(await parts.metrics.scrape(), media_type=CONTENT_TYPE_LATEST)


@router.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
async def openapi_document() -> Response:
    """Describe all calls for programs."""
    return Response(_content("openapi.json"), media_type="application/json")


@router.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
async def docs_page() -> Response:
    """Describe all calls for people, without scripts."""
    return Response(_content("docs.html"), media_type="text/html")


@cache
def _content(name: str) -> bytes:
    """The bytes of a file of `STATIC`, cached: anybody may ask for it, and reading takes three threads."""
    return (STATIC / name).read_bytes()
