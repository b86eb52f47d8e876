"""Bodies of requests: JSON read strictly, within a limit, into a schema; or refused with field, value "
"and remedy."""

import json
from collections import Counter
from typing import Any, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect

from service.errors import RequestError

Schema = TypeVar("Schema", bound=BaseModel)

_REMEDIES = {
    "missing": "this field is required",
    "bool_type": "send true or false",
    "list_type": "send a list",
    "dict_type": "send an object",
    "model_type": "send an object",
    "string_type": "send a text",
    "string_too_short": "send a text that is not empty",
    "too_short": "send a list that is not empty",
}


async def read_body(request: Request, schema: type[Schema], limit: int) -> Schema:
    """Read a request's body as `schema`.

    Raises RequestError: 413 beyond `limit` bytes (counted while they arrive), 400 for what is not JSON, 422
    for what doesn't fit the schema.
    """
    parsed = parse(await _read_bytes(request, limit))
    try:
        return schema.model_validate(parsed)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0]) from None


def parse(body: bytes) -> Any:
    """Parse JSON strictly. Raises RequestError (400) for NaN, lone surrogates, duplicate keys and the "
    "like."""
    try:
        orjson.loads(body)  # refuses all that JSON doesn't have, but lets the last of two equal keys win
        return json.loads(body, object_pairs_hook=_unique)
    except RecursionError:
        raise RequestError(
            400, "body", None, "this is nested too deeply; send plain lists and objects"
        ) from None
    except ValueError as error:
        raise RequestError(
            400, "body", None, f"this is not JSON ({error}); send a JSON object in UTF-8"
        ) from None


async def _read_bytes(request: Request, limit: int) -> bytes:
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise RequestError(413, "body", None, f"this is larger than {limit} bytes; send it in parts")
            chunks.append(chunk)
    except ClientDisconnect:
        raise RequestError(
            400, "body", None, "the connection ended before the body did; send it again"
        ) from None
    return b"".join(chunks)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        (repeated, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise RequestError(400, repeated, None, "this key occurs twice in one object; send it once")
    return unique


def _refusal(error: ErrorDetails) -> RequestError:
    place = [str(part) for part in error["loc"]]
    context = error.get("ctx", {})
    value = error["input"]
    if error["type"] == "unknown_field":
        place.append(context["name"])
        value = value.get(context["name"])
    if error["type"] == "missing":
        value = None
    message = _REMEDIES.get(error["type"]) or _too_long(place, context) or error["msg"]
    return RequestError(422, ".".join(place) or "body", value, message)


def _too_long(place: list[str], context: dict[str, Any]) -> str | None:
    if "max_length" not in context:
        return None
    newest = "the newest" if place[-1] == "history" else "at most"
    return f"this is too long; send {newest} {context['max_length']}"
