"""`POST /v1/recommend` and `/v1/recommend/batch`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from turret.service.http.routes.dependencies import Parts, Reads, json_response
from turret.service.schemas.requests import BatchRequest, RecommendRequest

router = APIRouter(prefix="/v1", tags=["recommend"])


@router.post("/recommend")
async def recommend(
    request: Request, body: Annotated[RecommendRequest, Depends(Reads(RecommendRequest))], parts: Parts
) -> Response:
    """Recommend the next items for a user or a history."""
    answer = await parts.recommender.recommend_one(body, request.scope.setdefault("turret", {}))
    return Response(answer, media_type="application/json")


@router.post("/recommend/batch")
async def recommend_batch(
    request: Request, body: Annotated[BatchRequest, Depends(Reads(BatchRequest))], parts: Parts
) -> Response:
    """Answer several recommendations in one call, all from one version."""
    results = await parts.recommender.recommend(body.requests)
    degraded = tuple(dict.fromkeys(part for result in results for part in result["degraded"]))
    request.scope.setdefault("turret", {}).update(version=results[0]["version"], degraded=degraded)
    return json_response({"results": results})
