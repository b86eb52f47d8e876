"""The response to each error: its status, and one shape, `{"error": {"field", "value", "message"}}`.

Further fields at fault follow as `others`.
"""

import math
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from fastapi import Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from turret.service.errors import NotReadyError, RequestError, invalid_fields
from turret.service.schemas.bodies import parameter_error
from turret.service.versions.folder import without_folder
from turret.tower.errors import BundleError, EncodingError, first_with_others

_SHOWN = 200  # characters of a field or a value that are sent back
_SAFE_INTEGER = 2**53
_RETRY_SECONDS = 2  # for errors of bundles, which know no HTTP
_BATCHES = ("/v1/recommend/batch", "/v1/vectors")  # whose requests have positions
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}}


def write_error(
    status: int,
    field: str,
    value: object,
    message: str,
    headers: Mapping[str, str] | None = None,
    others: Iterable[RequestError] = (),
    where: str = "",
) -> Response:
    """Write an error response; field, value and message are truncated to a readable length.

    `others` are the refusals of further fields. `where` is put in front of all fields.
    """
    body = orjson.dumps(_described(field, value, message, others, where))
    return Response(body, status, headers, media_type="application/json")


def result_of(error: RequestError | EncodingError) -> dict[str, Any]:
    """The result of a refused part of a call, like the response to that part by itself."""
    status = error.status if isinstance(error, RequestError) else 422
    return {"status": status, **_described(error.field, error.value, str(error), error.others)}


def _described(
    field: str,
    value: object,
    message: str,
    others: Iterable[RequestError | EncodingError],
    where: str = "",
) -> dict[str, Any]:
    described: dict[str, Any] = {"error": _detail(where + field, value, message)}
    if further := [_detail(where + fault.field, fault.value, str(fault)) for fault in others]:
        described["others"] = further
    return described


def _detail(field: str, value: object, message: str) -> dict[str, Any]:
    return {"field": _cut(field), "value": _shown(value), "message": _cut(message, 1000)}


def response_to(error: Exception, scope: Scope, bundles: Path | None = None) -> Response | None:
    """Write the response to an error of a request; None for an error that is a fault of the service.

    Paths in the message are made relative to the folder `bundles`: clients don't learn where it lies.
    """
    refused: RequestError
    match error:
        case HTTPException():
            return _not_routed(error, scope)
        case RequestValidationError():
            refused = first_with_others(map(parameter_error, error.errors()))
        case RequestError():
            refused = error
        case EncodingError():
            refused = first_with_others(invalid_fields(error))
            refused.position = error.position
        case BundleError():
            refused = NotReadyError("bundles", None, str(error), _RETRY_SECONDS)
        case _:
            return None
    field, message, where = refused.field, str(refused), ""
    if bundles is not None:
        message = without_folder(message, bundles)
    if refused.position is not None and scope["turret"].call.name in _BATCHES:
        where = f"requests.{refused.position}."
    if field == "store":
        message += "; retry"
    headers, wait = _HEADERS.get(refused.status, {}), refused.retry_after
    if wait is not None:
        headers = headers | {"Retry-After": str(math.ceil(wait))}
    return write_error(refused.status, field, refused.value, message, headers, refused.others, where)


def _not_routed(error: HTTPException, scope: Scope) -> Response:
    """Refuse a path or a method."""
    status, path = error.status_code, scope["path"]
    if status == 405:
        message = f"method not allowed; this path allows {(error.headers or {}).get('Allow')}"
        return write_error(405, "method", scope["method"], message, error.headers)
    message = "no such path; /docs lists the calls" if status == 404 else str(error.detail)
    return write_error(status, "path", path, message, error.headers)


def _shown(value: object) -> Any:
    if value is None or (isinstance(value, int | float) and abs(value) < _SAFE_INTEGER):
        return value
    return _cut(value if isinstance(value, str) else reprlib.repr(value))


def _cut(text: str, length: int = _SHOWN) -> str:
    text = text if len(text) <= length else text[: length - 3] + "..."
    return text.encode("utf-8", "replace").decode()
