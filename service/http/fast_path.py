"""`POST /v1/recommend` from bytes to bytes: in front of FastAPI, in the event loop, without a thread."""

from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service.components import Components
from turret.service.error_responses import refusal
from turret.service.http.bodies import BodyReader
from turret.service.schemas.requests import RecommendRequest

PATH = "/v1/recommend"
_TYPE = (b"content-type", b"application/json")


class RecommendPath:
    """Answers recommendations itself and passes every other call on to `app`.

    FastAPI's routing costs as much as the ranking. The route of the same path, which documents the call,
    calls the same functions.
    """

    def __init__(self, app: ASGIApp, components: Components, bodies: BodyReader) -> None:
        self._app = app
        self._components = components
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a recommendation; pass other calls on."""
        is_ours = scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST"
        if not is_ours or scope["query_string"]:  # the route refuses parameters
            await self._app(scope, receive, send)
            return
        facts = scope.setdefault("turret", {})
        try:
            begun = perf_counter()
            request = await self._bodies.read(receive, RecommendRequest)
            facts.setdefault("stages", {})["parse"] = perf_counter() - begun
            answer = await self._components.recommender.recommend_one(request, facts)
        except Exception as error:
            response = refusal(error, PATH, self._components.settings.bundles)
            if response is None:
                raise
            await response(scope, receive, send)
            return
        length = (b"content-length", b"%d" % len(answer))
        await send({"type": "http.response.start", "status": 200, "headers": [_TYPE, length]})
        await send({"type": "http.response.body", "body": answer})
