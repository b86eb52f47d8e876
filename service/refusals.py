"""Every error as one shape of JSON: `{"error": {"field", "value", "message"}}`."""

import math
import reprlib
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from service.errors import (
    HistoryUnavailableError,
    ItemsUnavailableError,
    NothingLiveError,
    RequestError,
)
from tower.errors import BundleError, EncodingError

_SHOWN = 200  # characters of a field or a value that are sent back
_SAFE_INTEGER = 2**53
_REMEDIES = {
    404: "there is no such call; /docs lists them",
    405: "this call has another method; /docs lists them",
}


def install(app: FastAPI) -> None:
    """Make `app` answer every error in this shape."""
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(EncodingError, _encoding_error)
    app.add_exception_handler(BundleError, _bundle_error)
    app.add_exception_handler(NothingLiveError, _nothing_live)
    app.add_exception_handler(HistoryUnavailableError, _history_unavailable)
    app.add_exception_handler(ItemsUnavailableError, _items_unavailable)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(Exception, _unexpected)


def refuse(
    status: int, field: str, value: object, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Make the answer of an error; field, value and message are cut to what a person reads."""
    error = {"field": _cut(field), "value": _shown(value), "message": _cut(message, 1000)}
    body = orjson.dumps({"error": error})
    return Response(body, status, headers, media_type="application/json")


async def _request_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return refuse(error.status, error.field, error.value, str(error), error.headers)


async def _encoding_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EncodingError)
    is_batch = request.url.path.endswith("/batch")
    field = f"requests.{error.position}.{error.field}" if is_batch else error.field
    return refuse(422, field, error.value, str(error))


async def _bundle_error(_: Request, error: Exception) -> Response:
    return refuse(503, "bundles", None, f"{error}; the live version goes on answering", {"Retry-After": "2"})


async def _nothing_live(_: Request, error: Exception) -> Response:
    return refuse(503, "bundles", None, str(error), {"Retry-After": "2"})


async def _history_unavailable(_: Request, error: Exception) -> Response:
    return refuse(503, "store", None, f"{error}; send it again, an event counts once", {"Retry-After": "2"})


async def _items_unavailable(_: Request, error: Exception) -> Response:
    message = f"{error}; send it again, that changes no more than once would have"
    return refuse(503, "store", None, message, {"Retry-After": "2"})


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    field, value = ("method", request.method) if error.status_code == 405 else ("path", request.url.path)
    message = _REMEDIES.get(error.status_code, str(error.detail))
    return refuse(error.status_code, field, value, message, error.headers)


async def _unexpected(request: Request, _: Exception) -> Response:
    return refuse(500, "path", request.url.path, "this is a fault of the service; its log says more")


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
