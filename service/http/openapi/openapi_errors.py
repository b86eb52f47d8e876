"""The error responses in the OpenAPI document: which ones a call has, and their meanings."""

from collections.abc import Iterator
from typing import Any

from turret.service.schemas.openapi_helpers import Described, reference

_SECONDS: Described = {
    "description": "Seconds to wait before a retry.",
    "required": True,
    "schema": {"type": "integer", "minimum": 0},
}
_KEY: Described = {
    "description": "The authentication scheme.",
    "required": True,
    "schema": {"type": "string", "const": "Bearer"},
}
_MEANINGS: dict[str, str] = {
    "400": "The body is not JSON, is nested too deep, or has a key twice.",
    "401": "The key is missing or wrong.",
    "403": "The key lacks the scope of this call.",
    "404": "There is no such item or version.",
    "409": "The current state doesn't allow the request; the message has the reason and the remedy.",
    "413": "The body is too large.",
    "415": "The content type is not JSON, or the body is compressed.",
    "422": "A field or a parameter is unknown or has an invalid value; `field` names it.",
    "429": "Too many requests with this key, from this address or on this connection.",
    "503": "Unavailable: overload, no live version, a store that doesn't answer, or shutdown; retry later.",
    "4XX": "Any other client error: an unknown path or method, or a request that arrived too slowly.",
    "5XX": "An internal error; the log of the service has the details.",
}
_HEADERS: dict[str, Described] = {
    "401": {"WWW-Authenticate": _KEY},
    "429": {"Retry-After": _SECONDS},
    "503": {"Retry-After": _SECONDS},
}


def add_refusals(call: Described, needs_key: bool) -> None:
    """Describe every error response of a call."""
    answers = call["responses"]
    own = [status for status in answers if status in _MEANINGS]
    for status in sorted({*own, *_statuses(call, needs_key)}):
        answers[status] = _refusal(status)


def _statuses(call: Described, needs_key: bool) -> Iterator[str]:
    yield from ("422", "429", "503", "4XX", "5XX")
    if needs_key:
        yield from ("401", "403")
    if "requestBody" in call:
        yield from ("400", "413", "415")


def _refusal(status: str) -> dict[str, Any]:
    content = {"application/json": {"schema": reference("ErrorAnswer")}}
    described = {"description": _MEANINGS[status], "content": content}
    return described | ({"headers": _HEADERS[status]} if status in _HEADERS else {})
