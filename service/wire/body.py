"""Request bodies: strict JSON within limits, validated by a schema; errors name a remedy."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.types import Receive

from turret.service.errors import MalformedBodyError, TooLargeError
from turret.service.latency import SHORT_BODY, is_short
from turret.service.schemas.faults import field_error

DEPTH = 32  # levels of nesting
# Lists and objects, and keys, of one body. A batch of 100 requests with filters has some thousands; 300,000
# empty lists in a megabyte keep the parser, which can't be interrupted, for 20 to 100 ms, 90,000 keys for 15.
PARTS = 20_000
# A string of valid JSON; one that a colon follows is a key.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"\s*+(:)?')
Schema = TypeVar("Schema", bound=BaseModel)


class BodyReader:
    """Reads bodies of at most `limit` bytes: short ones in the event loop, long ones in a thread.

    A megabyte takes up to 150 ms (100 histories with ISO times), and the thread lets the loop run in between.
    Several threads would keep the interpreter from the loop for longer.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._thread = ThreadPoolExecutor(1, "bodies")

    async def read(self, receive: Receive, schema: type[Schema]) -> Schema:
        """Read a body as `schema`. Raises RequestError, see `read_bytes` and `read_schema`."""
        return await self.parse(await read_bytes(receive, self._limit), schema)

    async def parse(self, body: bytes, schema: type[Schema]) -> Schema:
        """Parse a body as `schema`. Raises RequestError, see `read_schema`."""
        if is_short(body):
            return read_schema(body, schema)
        return await asyncio.get_running_loop().run_in_executor(self._thread, read_schema, body, schema)

    async def close(self) -> None:
        """Finish running parses."""
        await asyncio.to_thread(self._thread.shutdown)


async def read_bytes(receive: Receive, limit: int) -> bytes:
    """Read a request's body. Raises RequestError (413) beyond `limit` bytes, counted while they arrive."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body") and message["type"] == "http.request" and len(body) <= limit:
        return body
    chunks, size = [body], len(body)
    while size <= limit:
        if message["type"] != "http.request":
            raise MalformedBodyError("body", None, "the connection ended before the body did; send it again")
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
    raise TooLargeError("body", None, f"the body is larger than {limit} bytes; send it in parts")


def read_schema(body: bytes, schema: type[Schema]) -> Schema:
    """Parse and validate JSON. Raises RequestError: 400 for invalid JSON, 422 for a schema violation."""
    parsed = parse(body)
    try:
        return schema.model_validate(parsed)
    except ValidationError as error:
        raise field_error(error.errors(include_url=False)[0]) from None


def parse(body: bytes) -> Any:
    """Parse JSON strictly. Raises RequestError (400), also for NaN, lone surrogates and duplicate keys."""
    containers = body.count(b"[") + body.count(b"{")
    if len(body) > SHORT_BODY:
        _check_parts(body, containers)
    try:
        parsed = orjson.loads(body)  # strict, except that the last of equal keys wins
        if containers > DEPTH:
            _check_depth(parsed)
        # A key was lost, or a text holds a colon, or objects lie deeper.
        if _keys(parsed) != body.count(b":"):
            _check_repeated(body, parsed)
    except ValueError as error:
        raise MalformedBodyError(
            "body", None, f"the body is not JSON ({error}); send a JSON object in UTF-8"
        ) from None
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


def _check_repeated(body: bytes, parsed: Any) -> None:
    if len(body) <= SHORT_BODY:
        json.loads(body, object_pairs_hook=_unique)
    elif _all_keys(parsed) != sum(match[1] is not None for match in _TEXT.finditer(body)):
        raise MalformedBodyError("body", None, "a key occurs twice in one object; send it once")


def _all_keys(parsed: Any) -> int:
    count, left = 0, [parsed]
    while left:
        container = left.pop()
        values: Iterable[Any] = container
        if isinstance(container, dict):
            count += len(container)
            values = container.values()
        left.extend(value for value in values if isinstance(value, list | dict))
    return count


def _keys(parsed: Any) -> int:
    """Count the keys of an object and of its direct children; each key is followed by a colon in the text."""
    if not isinstance(parsed, dict):
        return 0
    return len(parsed) + sum(len(value) for value in parsed.values() if isinstance(value, dict))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        (repeated, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise MalformedBodyError(repeated, None, "this key occurs twice in one object; send it once")
    return unique
