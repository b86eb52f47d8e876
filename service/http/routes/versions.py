"""`GET /v1/version`, `/v1/versions` and `/v1/activations`."""

import asyncio

from fastapi import APIRouter, Response

from turret.service.http.routes.dependencies import Parts
from turret.service.http.routes.responses import (
    ActivationsAnswer,
    VersionAnswer,
    VersionsAnswer,
    answers,
    json_response,
)
from turret.service.versions.gate import checked_versions
from turret.service.versions.log import latest

_ACTIVATIONS = 100
router = APIRouter(prefix="/v1", tags=["versions"])


@router.get("/version", responses=answers(VersionAnswer))
async def live_version(parts: Parts) -> Response:
    """Describe the live version: scoring, metrics, measured recall."""
    live = parts.model_holder.answering
    described = live.bundle.manifest.model_dump(mode="json", exclude={"files"})
    return json_response({**described, "since": live.since.isoformat()})


@router.get("/versions", responses=answers(VersionsAnswer))
async def all_versions(parts: Parts) -> Response:
    """List every bundle of the folder with its metrics and recall; `error` says why one can't be read.

    `gate` is the result of its last check before an activation.
    """
    versions = await asyncio.to_thread(checked_versions, parts.model_holder.root)
    listed = [version.model_dump(mode="json") for version in versions]
    return json_response({"live": parts.model_holder.version, "versions": listed})


@router.get("/activations", responses=answers(ActivationsAnswer))
async def activations(parts: Parts) -> Response:
    """List the latest 100 activations and refused versions, newest first, with reasons."""
    lines = await asyncio.to_thread(latest, parts.model_holder.root, _ACTIVATIONS)
    return json_response({"activations": [line.model_dump(mode="json") for line in lines]})
