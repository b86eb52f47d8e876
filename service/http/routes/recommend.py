"""`POST /v1/recommend`, `/v1/recommend/batch`, `/v1/search`, `/v1/popular`, `/v1/vectors`."""

from time import perf_counter
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service.components import Components
from turret.service.http.routes.dependencies import CHECKED, Parts, Reads, Recorded, json_response
from turret.service.request_record import RequestRecord
from turret.service.schemas.bodies import read_body
from turret.service.schemas.requests import (
    BatchRequest,
    PopularRequest,
    RecommendRequest,
    SearchRequest,
    VectorsRequest,
)

router = APIRouter(prefix="/v1", tags=["recommend"], dependencies=CHECKED)


@router.post("/recommend")
async def recommend(
    body: Annotated[RecommendRequest, Depends(Reads(RecommendRequest))], record: Recorded, parts: Parts
) -> Response:
    """Recommend the next items for a user or a history."""
    answer = await parts.recommender.recommend_one(body, record)
    return Response(answer, media_type="application/json")


@router.post("/recommend/batch")
async def recommend_batch(
    body: Annotated[BatchRequest, Depends(Reads(BatchRequest))], record: Recorded, parts: Parts
) -> Response:
    """Answer several recommendations in one call, all from one version."""
    results = await parts.recommender.recommend(body.requests, record)
    record.version = results[0]["version"]
    record.degraded = tuple(dict.fromkeys(part for result in results for part in result["degraded"]))
    return json_response({"results": results})


@router.post("/search")
async def search(
    body: Annotated[SearchRequest, Depends(Reads(SearchRequest))], record: Recorded, parts: Parts
) -> Response:
    """Find the items that answer a query in words.

    A text without a known part has no answer: `items` is empty.
    """
    return await recommend(body.as_recommendation(), record, parts)


@router.post("/popular")
async def popular(
    body: Annotated[PopularRequest, Depends(Reads(PopularRequest))], record: Recorded, parts: Parts
) -> Response:
    """List the items with the most events of late, or those that rise."""
    return json_response(await parts.recommender.popular(body, record))


@router.post("/vectors")
async def vectors(
    body: Annotated[VectorsRequest, Depends(Reads(VectorsRequest))], record: Recorded, parts: Parts
) -> Response:
    """Give the vectors of items and users, whose inner products are the scores."""
    answer = await parts.recommender.vectors(body.items, body.requests)
    record.version, record.degraded = answer["version"], answer["degraded"]
    return json_response(answer)


class Innermost:
    """The innermost layer: calls the functions of recommendations and searches, and passes other calls on.

    FastAPI's routing costs as much as the ranking. A call with parameters, which are refused, comes
    to its route. A process that was stopped may have missed an activation, and reads the record first.
    """

    def __init__(self, app: ASGIApp, components: Components) -> None:
        self._app = app
        self._components = components
        self._direct: dict[str, tuple[type[RecommendRequest | SearchRequest], Any]] = {
            "/v1/recommend": (RecommendRequest, recommend),
            "/v1/search": (SearchRequest, search),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a recommendation or a search; pass other calls on to the application."""
        if self._components.follower.was_stopped:
            await self._components.follower.refresh()
        record: RequestRecord = scope["turret"]
        direct = self._direct.get(record.call.name)
        if direct is None or scope["method"] != "POST" or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        schema, answered = direct
        begun = perf_counter()
        body = await read_body(record.body, schema)
        record.stages["parse"] = perf_counter() - begun
        response = await answered(body, record, self._components)
        await response(scope, receive, send)
