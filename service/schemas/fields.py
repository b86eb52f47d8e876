"""The types of request fields: their limits, their checks, and their JSON schemas."""

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from turret.data.vocabulary import ID_LENGTH
from turret.service.schemas.cursor import LENGTH as CURSOR_LENGTH
from turret.service.schemas.cursor import PATTERN as CURSOR_PATTERN
from turret.tower.format.pointer import is_version

HISTORY_LIMIT = 1_000
K_LIMIT = 1_000
CAPS = 10
FEATURES = 100
TEXT_LENGTH = 2_000


def check_id(value: object) -> int | str:
    """Accept a 64-bit integer or a string of 1 to 512 characters."""
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, str) and 1 <= len(value) <= ID_LENGTH:
        return value
    # Integers below the 64-bit minimum are parsed as a float equal to it.
    if isinstance(value, float) and value.is_integer() and value > -(2.0**63):
        return check_id(int(value))
    raise PydanticCustomError(
        "id", "send a 64-bit integer or a string of 1 to {limit} characters", {"limit": ID_LENGTH}
    )


def whole(value: object) -> object:
    """Read 7.0 as 7: JSON has one number type."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_features(features: dict[str, Any]) -> dict[str, Any]:
    """Refuse overlong strings and lists among feature values."""
    for name, value in features.items():
        if isinstance(value, str | list) and len(value) > TEXT_LENGTH:
            raise PydanticCustomError(
                "feature",
                "{name} is too long; send at most {limit} characters or values",
                {"name": name[:80], "limit": TEXT_LENGTH},
            )
    return features


def check_version(name: str) -> str:
    """Refuse a text that can't name a version."""
    if not is_version(name):
        raise PydanticCustomError("version", "this is not a version name; /v1/versions lists them")
    return name


def check_caps(caps: object) -> object:
    """Refuse a longer object before its values, as objects have no `fail_fast`."""
    if isinstance(caps, dict) and len(caps) > CAPS:
        context = {"field_type": "Dictionary", "max_length": CAPS, "actual_length": len(caps)}
        raise PydanticKnownError("too_long", context)
    return caps


def check_ids(value: object, check_each: ValidatorFunctionWrapHandler) -> list[int | str]:
    """Accept a list of ids; if all are strings, or all integers, without a call for each."""
    if isinstance(value, list) and 0 < len(value) <= HISTORY_LIMIT:
        kinds = set(map(type, value))
        if kinds == {str} and all(value) and max(map(len, value)) <= ID_LENGTH:
            return value
        if kinds == {int} and min(value) >= -(2**63) and max(value) < 2**63:
            return value
    checked: list[int | str] = check_each(value)
    return checked


Id = Annotated[
    int | str,
    PlainValidator(check_id),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
                {"type": "string", "minLength": 1, "maxLength": ID_LENGTH},
            ]
        }
    ),
]
# `fail_fast` stops at the first invalid value: an error for each of 300,000 takes seconds.
Ids = Annotated[list[Id], Field(max_length=HISTORY_LIMIT, fail_fast=True), WrapValidator(check_ids)]
Count = Annotated[int, Field(ge=1, le=K_LIMIT), BeforeValidator(whole)]
_SCALARS = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_FEATURE = {
    "anyOf": [
        {"type": "string", "maxLength": TEXT_LENGTH},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "maxItems": TEXT_LENGTH, "items": {"anyOf": _SCALARS}},
        {"type": "null"},
    ]
}
Features = Annotated[
    dict[str, Any],
    Field(max_length=FEATURES),
    AfterValidator(check_features),
    WithJsonSchema({"type": "object", "maxProperties": FEATURES, "additionalProperties": _FEATURE}),
]
Caps = Annotated[dict[str, Count], Field(max_length=CAPS), BeforeValidator(check_caps)]
CursorText = Annotated[
    str, Field(min_length=1, max_length=CURSOR_LENGTH, json_schema_extra={"pattern": CURSOR_PATTERN})
]
VersionName = Annotated[
    str,
    AfterValidator(check_version),
    Field(json_schema_extra={"pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"}),
]
