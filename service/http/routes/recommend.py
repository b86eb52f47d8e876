"""`POST /v1/recommend`, `/v1/recommend/batch` and `/v1/search`."""

from time import perf_counter
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service.calls import call_of
from turret.service.components import Components
from turret.service.http.routes.dependencies import CHECKED, Parts, Reads, json_response
from turret.service.schemas.bodies import read_body
from turret.service.schemas.requests import BatchRequest, RecommendRequest, SearchRequest

_SCHEMAS: dict[str, type[RecommendRequest | SearchRequest]] = {
    "/v1/recommend": RecommendRequest,
    "/v1/search": SearchRequest,
}
_TYPE = (b"content-type", b"application/json")
router = APIRouter(prefix="/v1", tags=["recommend"], dependencies=CHECKED)


class Innermost:
    """The innermost layer: answers recommendations and searches from bytes to bytes, and passes others on.

    FastAPI's routing costs as much as the ranking. A call with parameters, which are refused, comes
    to its route. A process that was stopped may have missed an activation, and reads the record first.
    """

    def __init__(self, app: ASGIApp, components: Components) -> None:
        self._app = app
        self._components = components

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a recommendation or a search; pass other calls on to the application."""
        if self._components.follower.was_stopped:
            await self._components.follower.refresh()
        schema = _SCHEMAS.get(call_of(scope).name)
        if schema is None or scope["method"] != "POST" or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        facts = scope.setdefault("turret", {})
        begun = perf_counter()
        request = (await read_body(scope, schema)).as_recommendation()
        facts.setdefault("stages", {})["parse"] = perf_counter() - begun
        answer = await self._components.recommender.recommend_one(request, facts)
        length = (b"content-length", b"%d" % len(answer))
        await send({"type": "http.response.start", "status": 200, "headers": [_TYPE, length]})
        await send({"type": "http.response.body", "body": answer})


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


@router.post("/search")
async def search(
    request: Request, body: Annotated[SearchRequest, Depends(Reads(SearchRequest))], parts: Parts
) -> Response:
    """Find the items that answer a query in words.

    A text without a known part has no answer: `items` is empty.
    """
    facts = request.scope.setdefault("turret", {})
    answer = await parts.recommender.recommend_one(body.as_recommendation(), facts)
    return Response(answer, media_type="application/json")
