"""The bodies of requests and answers, as `/docs` shows them."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from data.vocabulary import ID_LENGTH
from tower.bundle import VersionSummary

HISTORY_LIMIT = 1_000
BATCH_LIMIT = 100
EVENTS_LIMIT = 1_000
K_LIMIT = 1_000
_TEXT_LENGTH = 2_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Milliseconds that can be written as a date: the years 1 to 9999.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
_LATER = {"filter", "explain"}


def check_id(value: object) -> int | str:
    """Accept an integer of 64 bits or a text of 1 to 512 characters."""
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, str) and 1 <= len(value) <= ID_LENGTH:
        return value
    raise PydanticCustomError(
        "id", "send an integer of 64 bits or a text of 1 to {limit} characters", {"limit": ID_LENGTH}
    )


def check_k(value: object) -> int:
    """Accept a whole number from 1 to 1000."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= K_LIMIT:
        return value
    raise PydanticCustomError("k", "send a whole number from 1 to 1000")


def check_time(value: object) -> int | None:
    """Accept seconds since 1970 or ISO 8601 (UTC where it names no zone); gives milliseconds since 1970."""
    if value is None:
        return None
    try:
        milliseconds = _milliseconds(value)
    except (ValueError, OverflowError):
        milliseconds = None
    if milliseconds is None or not _FIRST_TIME <= milliseconds <= _LAST_TIME:
        raise PydanticCustomError("time", "send seconds (not milliseconds) since 1970, or ISO 8601 text")
    return milliseconds


def _milliseconds(value: object) -> int | None:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1000)
    return None


def show_time(milliseconds: int) -> str:
    """Write milliseconds since 1970 as ISO 8601 in UTC."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


Id = Annotated[
    int | str,
    PlainValidator(check_id),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 1}]}),
]
Count = Annotated[
    int, PlainValidator(check_k), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": K_LIMIT})
]
Time = Annotated[
    int | None,
    PlainValidator(check_time),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]}),
]


class Body(BaseModel):
    """A request's body: exact types, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        for name in data if isinstance(data, dict) else ():
            if name not in cls.model_fields:
                known = ", ".join(cls.model_fields)
                why = "this is not supported yet" if name in _LATER else "there is no such field"
                message = f"{why}; leave it out, the fields are {known}"
                raise PydanticCustomError("unknown_field", "{message}", {"name": name, "message": message})
        return data


class RecommendRequest(Body):
    """What to recommend, and to whom.

    `history` (item ids, oldest first) is the whole history for this call; without it the stored one of
    `user_id` counts. `features` are the user's, by name. `k` items are given, none of `exclude` and, with
    `exclude_seen`, none of the history.
    """

    user_id: Id | None = None
    history: list[Id] | None = Field(default=None, max_length=HISTORY_LIMIT)
    features: dict[str, Any] = Field(default={}, max_length=100)
    k: Count = 10
    exclude_seen: bool = True
    exclude: list[Id] = Field(default=[], max_length=HISTORY_LIMIT)

    @field_validator("features")
    @classmethod
    def _bound_features(cls, features: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        for name, value in features.items():
            if isinstance(value, str | list) and len(value) > _TEXT_LENGTH:
                raise PydanticCustomError(
                    "feature",
                    "{name} is too long; send at most {limit} characters or values",
                    {"name": name[:80], "limit": _TEXT_LENGTH},
                )
        return features


class BatchRequest(Body):
    """Up to 100 recommendations in one call."""

    requests: list[RecommendRequest] = Field(min_length=1, max_length=BATCH_LIMIT)


class EventBody(Body):
    """One event; sent again under the same `event_id` it counts once. `time` is now if it isn't given."""

    event_id: Id
    user_id: Id
    item_id: Id
    time: Time = None
    kind: str | None = Field(default=None, max_length=100)


class EventsRequest(Body):
    """Up to 1000 events; all of them are stored, or none."""

    events: list[EventBody] = Field(min_length=1, max_length=EVENTS_LIMIT)


class ActivateRequest(Body):
    """Which version to make the live one."""

    version: str = Field(min_length=1, max_length=64)


class Item(BaseModel):
    """A recommended item: its id as the data had it, its score, where it comes from, what is known of it.

    The score is the inner product / temperature for `towers` (without its sign in a version with absolute
    scoring), the number of training events for `popular`.
    """

    id: int | str
    score: float
    source: Literal["towers", "popular"]
    fields: dict[str, Any]


class SimilarAnswer(BaseModel):
    """Items of one version, best first; `exhausted` is there when there were fewer than asked for."""

    version: str
    items: list[Item]
    exhausted: Literal[True] | None = None


class RecommendAnswer(SimilarAnswer):
    """A recommendation; `degraded` names what it had to do without, `unknown_items` what it skipped."""

    degraded: list[Literal["history"]]
    unknown_items: list[int | str] | None = None


class BatchAnswer(BaseModel):
    """One answer a request, in order."""

    results: list[RecommendAnswer]


class EventsAnswer(BaseModel):
    """How many events are now stored that weren't, and how many were known already."""

    stored: int
    duplicates: int


class StoredEvent(BaseModel):
    """One event of a user; the time is ISO 8601 in UTC."""

    event_id: str
    item_id: int | str
    time: str
    kind: str | None


class UserAnswer(BaseModel):
    """What is stored of a user: the number of all events, and the newest 1000, oldest first."""

    user_id: str
    total: int
    events: list[StoredEvent]


class ForgottenAnswer(BaseModel):
    """How many events of a user were deleted."""

    user_id: str
    deleted: int


class VersionAnswer(BaseModel):
    """What is live: the bundle's manifest without its files, and since when it is live."""

    model_config = ConfigDict(extra="allow")

    version: str
    since: str


class VersionsAnswer(BaseModel):
    """The live version, if there is one yet, and every bundle in the folder, oldest first."""

    live: str | None
    versions: list[VersionSummary]


class ActivateAnswer(BaseModel):
    """The version that is live now, and the one that was, if one was."""

    version: str
    previous: str | None


class ErrorDetail(BaseModel):
    """What was wrong: the field, its value, and what would work."""

    field: str
    value: Any
    message: str


class ErrorAnswer(BaseModel):
    """The one shape of all errors."""

    error: ErrorDetail
