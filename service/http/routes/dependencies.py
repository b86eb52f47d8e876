"""The dependencies of the functions of routes: the parts of the service, bodies and parameters.

Ids and their paths map one to one.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Generic
from urllib.parse import unquote_to_bytes

import orjson
from fastapi import Depends, Path, Query, Request, Response
from fastapi.dependencies.utils import request_params_to_args
from pydantic import AfterValidator, Field
from starlette.datastructures import QueryParams

from turret.data.vocabulary import ID_LENGTH, plain_id
from turret.service.components import Components
from turret.service.errors import InvalidFieldError
from turret.service.request_record import RequestRecord
from turret.service.schemas.bodies import Line, Schema, parameter_error, read_body, read_lines
from turret.service.schemas.fields import K_LIMIT
from turret.tower.errors import MOST_OTHERS, first_with_others


async def _parts(request: Request) -> Components:  # a coroutine, as FastAPI calls plain functions in a thread
    parts: Components = request.app.state.components
    return parts


async def _record(request: Request) -> RequestRecord:
    record: RequestRecord = request.scope["turret"]
    return record


Parts = Annotated[Components, Depends(_parts)]
Recorded = Annotated[RequestRecord, Depends(_record)]


class Reads(Generic[Schema]):
    """A dependency that reads the body as `schema`; the OpenAPI document finds the schema here.

    With `most`, the body is up to so many JSON lines, each with its number; a line that doesn't fit is
    refused by itself. FastAPI's own reading is not used, as it validates long bodies in the event loop.
    """

    def __init__(self, schema: type[Schema], most: int | None = None) -> None:
        self.schema, self.most = schema, most

    async def __call__(self, request: Request) -> Schema | list[Line[Schema]]:
        """Read the body of a request. Raises RequestError."""
        record: RequestRecord = request.scope["turret"]
        if self.most is None:
            return await read_body(record.body, self.schema)
        body, record.body = record.body, b""  # the answer may be as large; the body is free by then
        return await read_lines(body, self.schema, self.most)


K = Annotated[int, Query(ge=1, le=K_LIMIT)]
Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH)]
UserId = Annotated[str, Path(min_length=1, max_length=ID_LENGTH), AfterValidator(plain_id)]
# The bounds are not checked: other texts name no item, for which a call that reads answers 404.
ItemId = Annotated[
    str, Path(json_schema_extra={"minLength": 1, "maxLength": ID_LENGTH}), AfterValidator(plain_id)
]


_REPEATED = frozenset({"id", "kind", "point"})  # the parameters that may be sent several times


async def check_parameters(request: Request) -> None:
    """Raise InvalidFieldError for a path that isn't UTF-8, and for all that is wrong in a query string.

    The server replaces undecodable bytes of a path by U+FFFD, so different paths would name the same user or
    item. A parameter that the call doesn't have, is sent twice, or isn't UTF-8, would else be ignored, and
    the answer be that of another request.
    """
    for name, value in request.path_params.items():
        field = "id" if name == "item_id" else name  # other refusals of items name it so
        _check_utf8(request.scope["raw_path"], field, value)
    if not request.scope["query_string"]:
        return
    for part in request.scope["query_string"].split(b"&"):
        _check_utf8(part, unquote_to_bytes(part.partition(b"=")[0]).decode(errors="replace"), None)
    parameters = request.scope["route"].dependant.query_params
    known = [parameter.alias for parameter in parameters]
    if wrong := [*islice(_wrong_names(request.query_params, known), MOST_OTHERS + 1)]:
        _, errors = request_params_to_args(parameters, request.query_params)  # that FastAPI would raise
        raise first_with_others([*wrong, *map(parameter_error, errors)])


def _wrong_names(sent: QueryParams, known: Sequence[str]) -> Iterator[InvalidFieldError]:
    seen: set[str] = set()
    for name, value in sent.multi_items():
        if name not in known:
            remedy = f"send {', '.join(known)} only" if known else "this call takes none"
            # The refusal omits the value, which may be a key that was sent in the wrong place.
            yield InvalidFieldError(name, None, f"unknown query parameter; {remedy}")
        elif name in seen and name not in _REPEATED:
            yield InvalidFieldError(name, value, "this parameter is sent twice; send it once")
        seen.add(name)


# Probes and the page don't check them: orchestrators and scrapers append parameters of their own, as do
# websites and mails.
CHECKED = (Depends(check_parameters),)


def _check_utf8(quoted: bytes, name: str, shown: object) -> None:
    try:
        unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        message = "this isn't UTF-8; send it in UTF-8 and percent-encode its bytes (é is %C3%A9)"
        raise InvalidFieldError(name, shown, message) from None


def json_response(content: Any) -> Response:
    """Write an answer as JSON."""
    return Response(orjson.dumps(content), media_type="application/json")
