"""The response to each error: its status, and one shape, `{"error": {"field", "value", "message"}}`."""

import math
import reprlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from turret.service.errors import RequestError, UnavailableError
from turret.service.schemas.faults import field_error
from turret.service.versions.folder import without_folder
from turret.tower.errors import BundleError, EncodingError, EngineError

_SHOWN = 200  # characters of a field or a value that are sent back
_SAFE_INTEGER = 2**53
_REMEDIES = {404: "no such path; /docs lists the calls"}
# Errors of bundles and engines, which know no HTTP: the part that is unavailable, and the end of the message.
_OF_TOWER: dict[type[Exception], tuple[str, str]] = {
    BundleError: ("bundles", "; the live version stays in service"),
    EngineError: ("engine", "; retry"),
}
_RETRY_SECONDS = 2


def install(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Install the handlers of all errors; `routers` are those of `app`."""
    routes = [*app.routes, *(route for router in routers for route in router.routes)]
    for refused in (RequestError, UnavailableError, EncodingError, *_OF_TOWER):
        app.add_exception_handler(refused, _refuse)
    app.add_exception_handler(RequestValidationError, _invalid_parameter)
    app.add_exception_handler(HTTPException, _http_exceptions(routes))
    app.add_exception_handler(Exception, _unexpected)


def refuse(
    status: int, field: str, value: object, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Write an error response; field, value and message are truncated to a readable length."""
    error = {"field": _cut(field), "value": _shown(value), "message": _cut(message, 1000)}
    body = orjson.dumps({"error": error})
    return Response(body, status, headers, media_type="application/json")


def refused(error: RequestError, field: str | None = None, message: str | None = None) -> Response:
    """Write the response to a refused request; `field` and `message` replace those of the error."""
    headers = {**error.headers, **_retry_after(error.retry_after)}
    return refuse(error.status, field or error.field, error.value, message or str(error), headers)


def refusal(error: Exception, path: str, bundles: Path) -> Response | None:
    """Write the response to an error of a request; None for one that is a fault of the service.

    Paths in the message are made relative to the folder `bundles`: clients don't learn where it lies.
    """
    message = without_folder(str(error), bundles)
    if isinstance(error, RequestError | EncodingError):
        is_of_batch = error.position is not None and path.endswith("/batch")
        field = f"requests.{error.position}.{error.field}" if is_of_batch else error.field
        if isinstance(error, EncodingError):
            return refuse(422, field, error.value, message)
        return refused(error, field, message)
    if isinstance(error, UnavailableError):
        headers = _retry_after(error.retry_after)
        return refuse(error.status, error.part, None, message + error.remedy, headers)
    for kind, (part, remedy) in _OF_TOWER.items():
        if isinstance(error, kind):
            return refuse(503, part, None, message + remedy, _retry_after(_RETRY_SECONDS))
    return None


def _retry_after(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"Retry-After": str(math.ceil(seconds))}


async def _refuse(request: Request, error: Exception) -> Response:
    response = refusal(error, request.url.path, request.app.state.components.settings.bundles)
    assert response is not None, "installed for errors that have an answer"
    return response


def _http_exceptions(routes: Sequence[BaseRoute]) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            return _other_method(request, routes)
        message = _REMEDIES.get(error.status_code, str(error.detail))
        return refuse(error.status_code, "path", request.url.path, message, error.headers)

    return answer


async def _invalid_parameter(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[0]
    name = str(found["loc"][1])
    if found["type"] == "missing":
        return refuse(422, name, None, f"this call needs the parameter {name}; /docs describes it")
    return refused(field_error(found, name))


def _other_method(request: Request, routes: Sequence[BaseRoute]) -> Response:
    """List all methods of the path; the framework lists those of one route."""
    fitting = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {name for route in fitting if isinstance(route, Route) for name in route.methods or ()}
    allowed = ", ".join(sorted(methods))
    message = f"method not allowed; this path allows {allowed}"
    return refuse(405, "method", request.method, message, {"Allow": allowed})


def unexpected(scope: Scope) -> Response:
    """Write the response to an unexpected exception; the log has the details."""
    request_id = scope.get("turret", {}).get("request_id", "-")
    message = f"internal error; the log of the service has details under request id {request_id}"
    return refuse(500, "path", scope["path"], message)


async def _unexpected(request: Request, _: Exception) -> Response:
    return unexpected(request.scope)


def _shown(value: object) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, int) and abs(value) < _SAFE_INTEGER:
        return value
    return _cut(value if isinstance(value, str) else reprlib.repr(value))


def _cut(text: str, length: int = _SHOWN) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= length else text[: length - 3] + "..."
