"""`GET /v1/version` and `/v1/versions`."""

import asyncio

from fastapi import APIRouter, Response

from turret.service.http.routes.dependencies import ModelHolderPart
from turret.service.http.routes.responses import VersionAnswer, VersionsAnswer, json_response
from turret.service.models.gate import checked_versions
from turret.service.schemas.openapi_helpers import answers

router = APIRouter(prefix="/v1", tags=["versions"])


@router.get("/version", responses=answers(VersionAnswer))
async def live_version(model_holder: ModelHolderPart) -> Response:
    """Describe the live version: scoring, metrics, measured recall."""
    live = model_holder.answering
    described = live.bundle.manifest.model_dump(mode="json", exclude={"files"})
    return json_response({**described, "since": live.since.isoformat()})


@router.get("/versions", responses=answers(VersionsAnswer))
async def all_versions(model_holder: ModelHolderPart) -> Response:
    """List every bundle of the folder with its metrics and recall; `error` says why one can't be read.

    `gate` is the result of its last check before an activation.
    """
    versions = await asyncio.to_thread(checked_versions, model_holder.root)
    listed = [version.model_dump(mode="json") for version in versions]
    return json_response({"live": model_holder.version, "versions": listed})
