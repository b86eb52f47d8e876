"""Bodies: strict JSON within limits, validated by a schema; the refusal names the field and the remedy."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any, ClassVar, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from turret.service.errors import BodyError, InvalidFieldError, RequestError, without_frames
from turret.service.schemas.fields import errors_again
from turret.tower.errors import MOST_OTHERS, first_with_others

DEPTH = 32  # levels of nesting
# The most lists and objects, and keys, of a body. A batch of 100 requests with filters has some thousands;
# 300,000 empty lists in a megabyte keep the parser, which can't be interrupted, for 20 to 100 ms, 90,000 keys
# for 15.
PARTS = 20_000
# The limit of one line, whose parsing nothing interrupts: an item of 48,000 bytes with escapes takes less.
LINE_BYTES = 200_000
# Bytes of any content that are parsed in a millisecond or two, and lists and objects within 3 ms.
SHORT_BODY, _FEW_CONTAINERS = 32_768, 1_000
_REMEDIES = {
    "missing": "this field is required",
    "bool_type": "send true or false",
    "list_type": "send a list",
    "dict_type": "send an object",
    "model_type": "send an object",
    "string_type": "send a text",
    "string_too_short": "send a text that is not empty",
    "string_too_long": "this is too long; send at most {max_length:,} characters",
    "too_short": "this is empty; send at least one entry",
    "too_long": "this is too long; send at most {max_length:,} entries",
    "int_type": "send a whole number",
    "int_parsing": "send a whole number",
    "float_type": "send a number",
    "float_parsing": "send a number",
    "finite_number": "send a number that is finite",
    "greater_than": "send a number above {gt:g}",
    "greater_than_equal": "send a number from {ge:g}",
    "less_than_equal": "send a number up to {le:g}",
    "less_than": "send a number below {lt:g}",
    "literal_error": "send {expected}",
    "none_required": "leave this out; a comparison has one page, of two given versions",
    "string_pattern_mismatch": "send it unchanged from an answer, or leave it out",
}
_MARK = b"\xef\xbb\xbf"  # the byte order mark with which programs of Windows begin a file
Schema = TypeVar("Schema", bound=BaseModel)
# A megabyte takes up to 150 ms (100 histories with ISO times), and the thread lets the loop run in between.
# Several threads would keep the interpreter from the loop for longer.
_thread = ThreadPoolExecutor(1, "bodies")


class Body(BaseModel):
    """A request's body: exact types, no unknown fields."""

    # `_refuse_unknown` in place of `extra="forbid"`, whose message doesn't list the fields.
    model_config = ConfigDict(frozen=True, strict=True, json_schema_extra={"additionalProperties": False})
    sent_names: ClassVar[dict[str, None]] = {}  # of the fields, in their order

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Note the names of the fields once for all bodies."""
        cls.sent_names = {field.alias or name: None for name, field in cls.model_fields.items()}

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.keys() <= cls.sent_names.keys():
            return data
        message = f"unknown field; the fields are {', '.join(cls.sent_names)}"
        unknown = [name for name in data if name not in cls.sent_names]
        errors = [
            InitErrorDetails(
                type=PydanticCustomError("unknown_field", "{message}", {"name": name, "message": message}),
                input=data,
            )
            for name in unknown[: MOST_OTHERS + 1]
        ]
        try:
            cls.model_validate({name: value for name, value in data.items() if name in cls.sent_names})
        except ValidationError as error:  # the known fields may have faults too
            errors += errors_again(error)
        raise ValidationError.from_exception_data(cls.__name__, errors)


async def read_body(body: bytes, schema: type[Schema]) -> Schema:
    """Read a body, a long one in a thread. Raises as `read_schema`."""
    if is_short(body):
        return read_schema(body, schema)
    return await asyncio.get_running_loop().run_in_executor(_thread, read_schema, body, schema)


Line = tuple[int, Schema | RequestError]  # the number of a line, and its content or its refusal


async def read_lines(body: bytes, schema: type[Schema], most: int) -> list[Line[Schema]]:
    """Read a body of JSON lines, without blank lines; a line above `LINE_BYTES` is refused (413).

    Raises BodyError (413) for more than `most` lines; only blank lines at the end don't count.
    """

    def read() -> list[Line[Schema]]:
        text = body.removeprefix(_MARK).rstrip()
        if text.count(b"\n") >= most:
            message = f"the body has more than {most} lines; send it in parts"
            raise BodyError("body", None, message, status=413)
        lines = enumerate(BytesIO(text), start=1)
        return [(number, _read_line(line, schema)) for number, line in lines if not line.isspace()]

    return await asyncio.get_running_loop().run_in_executor(_thread, read)


def _read_line(line: bytes, schema: type[Schema]) -> Schema | RequestError:
    try:
        if len(line) > LINE_BYTES:
            message = f"the line is larger than {LINE_BYTES} bytes; leave some fields out"
            raise BodyError("body", None, message, status=413)
        return read_schema(line, schema)
    except RequestError as error:
        return without_frames(error)


def is_short(body: bytes) -> bool:
    """Whether a body may be parsed in the event loop."""
    return len(body) <= SHORT_BODY and body.count(b"{") + body.count(b"[") <= _FEW_CONTAINERS


def read_schema(body: bytes, schema: type[Schema]) -> Schema:
    """Parse and validate JSON. Raises RequestError: 400 for invalid JSON, 422 for a schema violation."""
    parsed = parse(body)
    try:
        return schema.model_validate(parsed)
    except ValidationError as error:
        raise first_with_others(map(field_error, error.errors(include_url=False))) from None


def parse(body: bytes) -> Any:
    """Parse JSON; the last of repeated keys counts.

    Raises RequestError (400), also for NaN and lone surrogates.
    """
    containers = body.count(b"[") + body.count(b"{")
    if len(body) > SHORT_BODY:  # counted before parsing; brackets and colons within texts count too
        keys = body.translate(None, b" \t\r\n").count(b'":')
        if containers > PARTS or keys > PARTS:
            message = f"the body has more than {PARTS} lists and objects, or keys; send it in parts"
            raise BodyError("body", None, message)
    try:
        parsed = orjson.loads(body)
    except ValueError as error:
        raise BodyError(
            "body", None, f"the body is not JSON ({error}); send a JSON object in UTF-8"
        ) from None
    if containers > DEPTH:
        _check_depth(parsed)
    return parsed


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
    raise BodyError("body", None, f"the body is nested deeper than {DEPTH} levels; send plain lists")


def parameter_error(error: Any) -> InvalidFieldError:
    """The refusal of a parameter of a path or a query string, by the error that FastAPI has for it."""
    name = str(error["loc"][1])
    if error["type"] == "missing":
        return InvalidFieldError(name, None, f"this call needs the parameter {name}; /docs describes it")
    return field_error(error, name)


def field_error(error: ErrorDetails, name: str | None = None) -> InvalidFieldError:
    """The refusal of a field that violates its schema, or of the parameter `name`."""
    path = [name] if name is not None else [str(part) for part in error["loc"]]
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "unknown_field":
        path.append(context["name"])
        value = value.get(context["name"])
    if kind == "missing":
        value = None
    message = _REMEDIES[kind].format(**context) if kind in _REMEDIES else error["msg"]
    return InvalidFieldError(".".join(path) or "body", value, message)
