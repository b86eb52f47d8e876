"""Request bodies: accepted types, strict JSON within limits, validated by a schema."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope

from turret.service.errors import BodyTypeError, MalformedBodyError, TooLargeError
from turret.service.schemas.faults import field_error

DEPTH = 32  # levels of nesting
# Lists and objects, and keys, of one body. A batch of 100 requests with filters has some thousands; 300,000
# empty lists in a megabyte keep the parser, which can't be interrupted, for 20 to 100 ms, 90,000 keys for 15.
PARTS = 20_000
# Bytes of any content that are parsed in a millisecond or two, and lists and objects within 3 ms.
SHORT_BODY, _FEW_CONTAINERS = 32_768, 1_000
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
Schema = TypeVar("Schema", bound=BaseModel)


def check_head(scope: Scope, limit: int) -> None:
    """Raise RequestError for a body that the head of its request excludes: its type (415) or length (413).

    Any website can make a browser send forms and plain text to any address that the browser reaches, such as
    a service on the visitor's machine. For JSON the browser first sends a CORS preflight, which this service
    refuses. A body without a content type is accepted without an `Origin`, which browsers send.

    A compressed body could be small here and large in memory, and saves nothing for a thousand ids.
    """
    kind = origin = encoding = b""
    length = 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"content-length":
            length = int(value)
        elif name == b"content-encoding":
            encoding = value.strip().lower()
        elif name == b"origin":
            origin = value
    if scope["method"] in _WITH_BODY:
        if encoding not in (b"", b"identity"):
            message = "compressed bodies are not accepted; send plain JSON"
            raise BodyTypeError("Content-Encoding", encoding.decode("latin-1"), message)
        if kind != b"application/json" and (kind or origin) and not _is_json(kind):
            message = "send JSON with -H 'Content-Type: application/json'"
            raise BodyTypeError("Content-Type", kind.decode("latin-1"), message)
    if length > limit:
        raise too_large(limit)


def too_large(limit: int) -> TooLargeError:
    """Make the error of a body of more than `limit` bytes."""
    return TooLargeError("body", None, f"the body is larger than {limit} bytes; send it in parts")


def _is_json(kind: bytes) -> bool:
    name = kind.partition(b";")[0].strip().lower()
    return name == b"application/json" or (name.startswith(b"application/") and name.endswith(b"+json"))


class BodyReader:
    """Reads bodies: short ones in the event loop, long ones in a thread.

    A megabyte takes up to 150 ms (100 histories with ISO times), and the thread lets the loop run in between.
    Several threads would keep the interpreter from the loop for longer.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "bodies")

    async def read(self, receive: Receive, schema: type[Schema]) -> Schema:
        """Read a body, which `Admission` gives whole, as `schema`. Raises RequestError, see `read_schema`."""
        body: bytes = (await receive())["body"]
        if is_short(body):
            return read_schema(body, schema)
        return await asyncio.get_running_loop().run_in_executor(self._thread, read_schema, body, schema)


def is_short(body: bytes) -> bool:
    """Whether a body may be parsed in the event loop."""
    return len(body) <= SHORT_BODY and body.count(b"{") + body.count(b"[") <= _FEW_CONTAINERS


def read_schema(body: bytes, schema: type[Schema]) -> Schema:
    """Parse and validate JSON. Raises RequestError: 400 for invalid JSON, 422 for a schema violation."""
    parsed = parse(body)
    try:
        return schema.model_validate(parsed)
    except ValidationError as error:
        raise field_error(error.errors(include_url=False)[0]) from None


def parse(body: bytes) -> Any:
    """Parse JSON, of repeated keys the last. Raises RequestError (400), also for NaN and lone surrogates."""
    containers = body.count(b"[") + body.count(b"{")
    if len(body) > SHORT_BODY:
        _check_parts(body, containers)
    try:
        parsed = orjson.loads(body)
    except ValueError as error:
        raise MalformedBodyError(
            "body", None, f"the body is not JSON ({error}); send a JSON object in UTF-8"
        ) from None
    if containers > DEPTH:
        _check_depth(parsed)
    return parsed


def _check_parts(body: bytes, containers: int) -> None:
    """Count before parsing; brackets and colons within texts count too."""
    keys = body.translate(None, b" \t\r\n").count(b'":')
    if containers > PARTS or keys > PARTS:
        message = f"the body has more than {PARTS} lists and objects, or keys; send it in parts"
        raise MalformedBodyError("body", None, message)


def _check_depth(parsed: Any) -> None:
    level = [parsed]
    for _ in range(DEPTH):
        level = [
            value
            for container in level
            if isinstance(container, list | dict)
            for value in (container.values() if isinstance(container, dict) else container)
            if isinstance(value, list | dict)
        ]
        if not level:
            return
    raise MalformedBodyError("body", None, f"the body is nested deeper than {DEPTH} levels; send plain lists")
