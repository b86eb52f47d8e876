"""The response to each error: its status, and one shape, `{"error": {"field", "value", "message"}}`.

Further fields at fault follow as `others`.
"""

import math
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from fastapi import Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from turret.service.calls import call_of
from turret.service.errors import InvalidFieldError, NotReadyError, RequestError
from turret.service.schemas.bodies import field_error, refusal_of
from turret.service.versions.folder import without_folder
from turret.tower.errors import BundleError, EncodingError

_SHOWN = 200  # characters of a field or a value that are sent back
_SAFE_INTEGER = 2**53
_RETRY_SECONDS = 2  # of bundles, which know no HTTP
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}}


def write_error(
    status: int,
    field: str,
    value: object,
    message: str,
    headers: Mapping[str, str] | None = None,
    others: Sequence[RequestError] = (),
) -> Response:
    """Write an error response; field, value and message are truncated to a readable length.

    `others` are the refusals of further fields.
    """
    body = orjson.dumps(_described(field, value, message, others))
    return Response(body, status, headers, media_type="application/json")


def result_of(error: RequestError | EncodingError) -> dict[str, Any]:
    """A refused part of a call, as the response to that part by itself would be."""
    status = error.status if isinstance(error, RequestError) else 422
    others = error.others if isinstance(error, RequestError) else ()
    return {"status": status, **_described(error.field, error.value, str(error), others)}


def _described(
    field: str, value: object, message: str, others: Sequence[RequestError] = ()
) -> dict[str, Any]:
    described: dict[str, Any] = {"error": _detail(field, value, message)}
    if others:
        described["others"] = [_detail(one.field, one.value, str(one)) for one in others]
    return described


def _detail(field: str, value: object, message: str) -> dict[str, Any]:
    return {"field": _cut(field), "value": _shown(value), "message": _cut(message, 1000)}


def response_to(error: Exception, scope: Scope, bundles: Path | None = None) -> Response | None:
    """Write the response to an error of a request; None for one that is a fault of the service.

    Paths in the message are made relative to the folder `bundles`: clients don't learn where it lies.
    """
    refused: RequestError
    match error:
        case HTTPException():
            return _not_routed(error, scope)
        case RequestValidationError():
            refused = _invalid_parameter(error)
        case RequestError():
            refused = error
        case EncodingError():
            refused = InvalidFieldError(error.field, error.value, str(error))
            refused.position = error.position
        case BundleError():
            refused = NotReadyError("bundles", None, str(error), _RETRY_SECONDS)
        case _:
            return None
    field, message = refused.field, str(refused)
    if bundles is not None:
        message = without_folder(message, bundles)
    if refused.position is not None and call_of(scope).name == "/v1/recommend/batch":
        field = f"requests.{refused.position}.{field}"
    if field == "store":
        message += "; retry"
    headers, wait = _HEADERS.get(refused.status, {}), refused.retry_after
    if wait is not None:
        headers = headers | {"Retry-After": str(math.ceil(wait))}
    return write_error(refused.status, field, refused.value, message, headers, refused.others)


def _not_routed(error: HTTPException, scope: Scope) -> Response:
    """Refuse a path or a method."""
    status, path = error.status_code, scope["path"]
    if status == 405:
        message = f"method not allowed; this path allows {(error.headers or {}).get('Allow')}"
        return write_error(405, "method", scope["method"], message, error.headers)
    message = "no such path; /docs lists the calls" if status == 404 else str(error.detail)
    return write_error(status, "path", path, message, error.headers)


def _invalid_parameter(error: RequestValidationError) -> InvalidFieldError:
    return refusal_of(map(_parameter_error, error.errors()))


def _parameter_error(found: Any) -> InvalidFieldError:
    name = str(found["loc"][1])
    if found["type"] == "missing":
        return InvalidFieldError(name, None, f"this call needs the parameter {name}; /docs describes it")
    return field_error(found, name)


def _shown(value: object) -> Any:
    if value is None or (isinstance(value, int | float) and abs(value) < _SAFE_INTEGER):
        return value
    return _cut(value if isinstance(value, str) else reprlib.repr(value))


def _cut(text: str, length: int = _SHOWN) -> str:
    text = text if len(text) <= length else text[: length - 3] + "..."
    return text.encode("utf-8", "replace").decode()
