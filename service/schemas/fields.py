"""The fields of requests: ids, counts, times and cursors, with their limits, checks and JSON schemas."""

import struct
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from turret.data.vocabulary import ID_LENGTH, STRANGER, plain_id
from turret.tower.errors import MOST_OTHERS
from turret.tower.format.listing import is_version
from turret.tower.repeats import Slot

HISTORY_LIMIT = 1_000
K_LIMIT = 1_000
CAPS = 10
FEATURES = 100
TEXT_LENGTH = 2_000
KIND_LENGTH, KINDS = 100, 100
SESSION_LENGTH = ID_LENGTH - len(STRANGER)


def check_id(value: object) -> int | str:
    """Accept a 64-bit integer or a string of 1 to 512 characters, which is read as `plain_id`."""
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, str) and 1 <= len(value) <= ID_LENGTH:
        return plain_id(value)
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


class KindedIds(list[int | str]):
    """Ids of a history, with the kind of each event, None for an event without a kind."""

    def __init__(self, ids: list[int | str], kinds: list[str | None]) -> None:
        super().__init__(ids)
        self.kinds = kinds


def check_used(value: object) -> int | str | tuple[int | str, str | None]:
    """Accept an id, or an object of an `item` and a `kind`."""
    if not isinstance(value, dict):
        return check_id(value)
    kind = value.get("kind")
    if not value.keys() <= {"item", "kind"} or not (kind is None or _may_be_kind(kind)):
        raise PydanticCustomError("used", 'send an id, or an object like {"item": 7, "kind": "view"}')
    return check_id(value.get("item")), (kind or "").strip() or None


def check_history(value: object, check_each: ValidatorFunctionWrapHandler) -> list[int | str]:
    """Accept a list of ids as `check_ids`, or with objects among them, which become `KindedIds`."""
    checked: list[Any] = check_ids(value, check_each)
    if tuple not in set(map(type, checked)):
        return checked
    pairs = [entry if isinstance(entry, tuple) else (entry, None) for entry in checked]
    return KindedIds([item for item, _ in pairs], [kind for _, kind in pairs])


def check_seen(value: object) -> bool | tuple[str, ...] | None:
    """Accept a bool, None, or a list of kinds."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, list) and len(value) <= KINDS and all(map(_may_be_kind, value)):
        return tuple(kind.strip() for kind in value)
    raise PydanticCustomError(
        "seen", "send true, false, or a list of up to {limit} kinds of events", {"limit": KINDS}
    )


def _may_be_kind(value: object) -> bool:
    return isinstance(value, str) and len(value) <= KIND_LENGTH


def check_named_user(value: object) -> int | str:
    """Accept an id that is not that of a session's user."""
    user = check_id(value)
    if isinstance(user, str) and user.startswith(STRANGER):
        message = "users called {stranger}ID are sessions; send ID as session_id"
        raise PydanticCustomError("user", message, {"stranger": STRANGER})
    return user


def check_session(value: object) -> int | str:
    """Accept an id that is short enough for the prefix of sessions."""
    session = check_id(value)
    if len(str(session)) > SESSION_LENGTH:
        raise PydanticCustomError("session", "send at most {limit} characters", {"limit": SESSION_LENGTH})
    return session


def check_ids(value: object, check_each: ValidatorFunctionWrapHandler) -> list[int | str]:
    """Accept a list of ids; a list of strings alone, or of integers alone, needs no call for each id."""
    if isinstance(value, list) and 0 < len(value) <= HISTORY_LIMIT:
        kinds = set(map(type, value))
        if kinds == {str} and all(value) and max(map(len, value)) <= ID_LENGTH:
            joined = "".join(value)
            # ASCII without blanks is a plain id already.
            is_plain = joined.isascii() and joined.split(maxsplit=1) == [joined]
            return value if is_plain else [*map(plain_id, value)]
        if kinds == {int} and min(value) >= -(2**63) and max(value) < 2**63:
            return value
    checked: list[int | str] = check_each(value)
    return checked


def errors_again(error: ValidationError, *place: int) -> list[InitErrorDetails]:
    """Return as many errors as a refusal names, for another ValidationError.

    The errors of a list of one entry are moved to the entry's `place` in another list.
    """
    again = []
    for fault in error.errors(include_url=False)[: MOST_OTHERS + 1]:
        kind = PydanticCustomError(fault["type"], "{said}", {**fault.get("ctx", {}), "said": fault["msg"]})
        path = (*place, *fault["loc"][len(place) :])
        again.append(InitErrorDetails(type=kind, loc=path, input=fault["input"]))
    return again


def check_entries(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Check a list by `check`, which stops at the first fault; then name as many faults as a refusal does."""
    try:
        return check(value)
    except ValidationError as error:
        if not error.errors(include_url=False)[0]["loc"]:  # a fault of the list itself
            raise
    errors: list[InitErrorDetails] = []
    for place, entry in enumerate(value):
        try:
            check([entry])
        except ValidationError as error:
            errors += errors_again(error, place)
            if len(errors) > MOST_OTHERS:
                break
    raise ValidationError.from_exception_data("list", errors)


_INTEGER = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_ID: dict[str, Any] = {"anyOf": [_INTEGER, {"type": "string", "minLength": 1, "maxLength": ID_LENGTH}]}
_SESSION = {"anyOf": [_INTEGER, {"type": "string", "minLength": 1, "maxLength": SESSION_LENGTH}]}
_KIND = {"type": "string", "maxLength": KIND_LENGTH}
_USED = {
    "type": "object",
    "properties": {"item": _ID, "kind": {"anyOf": [_KIND, {"type": "null"}]}},
    "required": ["item"],
    "additionalProperties": False,
}
_SEEN = {
    "anyOf": [{"type": "boolean"}, {"type": "array", "items": _KIND, "maxItems": KINDS}, {"type": "null"}]
}
Id = Annotated[int | str, PlainValidator(check_id), WithJsonSchema(_ID)]
NamedUserId = Annotated[int | str, PlainValidator(check_named_user), WithJsonSchema(_ID)]
SessionId = Annotated[int | str, PlainValidator(check_session), WithJsonSchema(_SESSION)]
Used = Annotated[Any, PlainValidator(check_used), WithJsonSchema({"anyOf": [*_ID["anyOf"], _USED]})]
SeenKinds = Annotated[Any, PlainValidator(check_seen), WithJsonSchema(_SEEN)]
# `fail_fast` stops at the first invalid value: an error for each of 300,000 takes seconds.
Ids = Annotated[list[Id], Field(max_length=HISTORY_LIMIT, fail_fast=True), WrapValidator(check_ids)]
History = Annotated[list[Used], Field(max_length=HISTORY_LIMIT, fail_fast=True), WrapValidator(check_history)]
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
Caps = Annotated[dict[str, Count], Field(max_length=CAPS, fail_fast=True)]
AnswerId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
RuleName = Annotated[str, Field(min_length=1, max_length=100)]
VersionName = Annotated[
    str,
    AfterValidator(check_version),
    Field(json_schema_extra={"pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"}),
]


# Times; the service keeps milliseconds since 1970.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The milliseconds of the years 1 to 9999, which ISO 8601 can write.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
_FIRST_SECOND, _LAST_SECOND = _FIRST_TIME / 1000, _LAST_TIME / 1000
_KINDS = [
    {"type": "number", "minimum": _FIRST_SECOND, "maximum": _LAST_SECOND},
    {"type": "string", "format": "date-time"},
]


def check_time(value: object) -> int:
    """Convert seconds since 1970 or ISO 8601 (UTC without a zone) to milliseconds since 1970.

    ISO 8601 with hyphens and colons: a date, or a date with at least hours and minutes. Truncates to whole
    milliseconds.
    """
    milliseconds = None
    if isinstance(value, str) and value[4:5] == value[7:8] == "-":  # 20240101 may be seconds
        with suppress(ValueError):  # no time, or no such day
            moment = datetime.fromisoformat(value.upper())
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        milliseconds = round(value * 1000) if _FIRST_SECOND <= value <= _LAST_SECOND else None
    if milliseconds is None or not _FIRST_TIME <= milliseconds <= _LAST_TIME:
        raise PydanticCustomError(
            "time", "send seconds (not milliseconds) since 1970, or ISO 8601 like 2024-05-01T12:30:00Z"
        )
    return milliseconds


def show_time(milliseconds: int) -> str:
    """Format milliseconds since 1970 as ISO 8601 in UTC."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


Time = Annotated[int, PlainValidator(check_time), WithJsonSchema({"anyOf": _KINDS})]


# A cursor has the 32 bits of a finite float in hexadecimal: any exponent but the largest.
_SCORE = r"[0-689a-e][0-9a-f]{7}|[7f][0-9a-e][0-9a-f]{6}|[7f]f[0-7][0-9a-f]{5}"
_PLACE = "~-?[0-9a-f]{1,13}~[0-9a-f]{1,7}~[0-9a-f]{1,7}"
CURSOR_PATTERN = rf"^[A-Za-z0-9_-][A-Za-z0-9._-]{{0,63}}{_PLACE}~({_SCORE})(~new|~again)?(~[0-9a-f]{{8}})?$"
CURSOR_LENGTH = 64 + 1 + 14 + 1 + 7 + 1 + 7 + 1 + 8 + 6 + 9


class Cursor(NamedTuple):
    """The end of a page in the order of one version: the `score` (a float32) and the `row` of its last item.

    `until`: the time when the first page was requested, in milliseconds since 1970; later events of the user
    don't change the following pages. `shown`: the number of items on the pages so far. `among`: the slot that
    the request names. `counted`: the tag of the decayed counts that ranked the page, "" for none.
    """

    version: str
    until: int
    shown: int
    score: float
    row: int
    among: Slot = "all"
    counted: str = ""

    def text(self) -> str:
        """Format the cursor in URL-safe characters that match `CURSOR_PATTERN`."""
        score = struct.pack(">f", self.score).hex()
        place = f"{self.version}~{self.until:x}~{self.shown:x}~{self.row:x}~{score}"
        return "~".join(
            [place, *([] if self.among == "all" else [self.among]), *filter(None, [self.counted])]
        )


def read_cursor(text: str) -> Cursor:
    """Parse the text of a cursor, which matches `CURSOR_PATTERN`."""
    version, until, shown, row, score, *rest = text.split("~")
    among: Any = rest.pop(0) if rest and rest[0] in ("new", "again") else "all"
    (last,) = struct.unpack(">f", bytes.fromhex(score))
    return Cursor(version, int(until, 16), int(shown, 16), last, int(row, 16), among, *rest)


CursorText = Annotated[str, Field(min_length=1, max_length=CURSOR_LENGTH, pattern=CURSOR_PATTERN)]
