"""The bodies of requests and answers, as `/docs` shows them."""

from itertools import pairwise
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
from service.times import KnownTime, Time, show_time
from tower.listing import VersionSummary

HISTORY_LIMIT = 1_000
BATCH_LIMIT = 100
EVENTS_LIMIT = 1_000
K_LIMIT = 1_000
_TEXT_LENGTH = 2_000
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


Id = Annotated[
    int | str,
    PlainValidator(check_id),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 1}]}),
]
Count = Annotated[
    int, PlainValidator(check_k), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": K_LIMIT})
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
    `user_id` counts. `history_times` says when each of its items was used, and `at` for when the answer is
    asked (now, if it isn't given); versions that read no times leave both alone. `features` are the user's,
    by name. `k` items are given, none of `exclude` and, with `exclude_seen`, none of the history.
    """

    user_id: Id | None = None
    history: list[Id] | None = Field(default=None, max_length=HISTORY_LIMIT)
    history_times: list[KnownTime] | None = Field(default=None, max_length=HISTORY_LIMIT)
    at: Time = None
    features: dict[str, Any] = Field(default={}, max_length=100)
    k: Count = 10
    exclude_seen: bool = True
    exclude: list[Id] = Field(default=[], max_length=HISTORY_LIMIT)

    @field_validator("history_times")
    @classmethod
    def _match_history(cls, times: list[int] | None, info: ValidationInfo) -> list[int] | None:
        if times is None or "history" not in info.data:  # then the history is refused already
            return times
        history = info.data["history"]
        if history is None:
            raise PydanticCustomError("history_times", "these are the times of `history`; send that too")
        if len(times) != len(history):
            counts = {"times": len(times), "items": len(history)}
            message = "there are {times} times for {items} items of the history; send one for each"
            raise PydanticCustomError("history_times", message, counts)
        for place, (one, next_one) in enumerate(pairwise(times), start=1):
            if next_one < one:
                message = (
                    "entry {place} (the first is 0) is earlier than the one before it; send the oldest first"
                )
                raise PydanticCustomError("history_times", message, {"place": place})
        return times

    @field_validator("at")
    @classmethod
    def _ask_after_history(cls, at: int | None, info: ValidationInfo) -> int | None:
        times = info.data.get("history_times")
        if at is not None and times and at < times[-1]:
            message = "this is before the newest of history_times, {newest}; send a history until then"
            raise PydanticCustomError("at", message, {"newest": show_time(times[-1])})
        return at

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
