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
from service.cursor import LENGTH as CURSOR_LENGTH
from service.gate import CheckedVersion
from service.times import KnownTime, Time, show_time

HISTORY_LIMIT = 1_000
BATCH_LIMIT = 100
EVENTS_LIMIT = 1_000
K_LIMIT = 1_000
CAPS = 10
_TEXT_LENGTH = 2_000


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


def check_features(features: dict[str, Any]) -> dict[str, Any]:
    """Accept features whose texts and lists are of a length that somebody may mean."""
    for name, value in features.items():
        if isinstance(value, str | list) and len(value) > _TEXT_LENGTH:
            raise PydanticCustomError(
                "feature",
                "{name} is too long; send at most {limit} characters or values",
                {"name": name[:80], "limit": _TEXT_LENGTH},
            )
    return features


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
                message = f"there is no such field; leave it out, the fields are {known}"
                raise PydanticCustomError("unknown_field", "{message}", {"name": name, "message": message})
        return data


class RecommendRequest(Body):
    """What to recommend, and to whom.

    `history` (item ids, oldest first) is the whole history for this call; without it the stored one of
    `user_id` counts. `history_times` says when each of its items was used, and `at` for when the answer is
    asked (now, if it isn't given); versions that read no times leave both alone. `features` are the user's,
    by name. `k` items are given, none of `exclude` and, with `exclude_seen`, none of the history.

    `filter` says by catalogue fields which items are allowed (docs/filters.md). `min_score` leaves out what
    the towers score less. `diversity` (0 to 1) is the weight of maximal marginal relevance, `cap` the most
    items that may share a value of a field: `{"brand": 2}`. `cursor`, from an answer, asks for what follows
    it in the same version. `min_version` refuses answers of versions that were live before that one.
    `explain` adds why these items.
    """

    user_id: Id | None = None
    history: list[Id] | None = Field(default=None, max_length=HISTORY_LIMIT)
    history_times: list[KnownTime] | None = Field(default=None, max_length=HISTORY_LIMIT)
    at: Time = None
    features: dict[str, Any] = Field(default={}, max_length=100)
    k: Count = 10
    exclude_seen: bool = True
    exclude: list[Id] = Field(default=[], max_length=HISTORY_LIMIT)
    filter: dict[str, Any] | None = None
    min_score: float | None = Field(default=None, allow_inf_nan=False)
    diversity: float = Field(default=0.0, ge=0.0, le=1.0)
    cap: dict[str, Count] = Field(default={}, max_length=CAPS)
    cursor: str | None = Field(default=None, min_length=1, max_length=CURSOR_LENGTH)
    min_version: str | None = Field(default=None, min_length=1, max_length=64)
    explain: bool = False

    @property
    def is_in_order(self) -> bool:
        """Whether the answer follows the order of the scores, so that a next page can go on from its end."""
        return not self.diversity and not self.cap

    @property
    def is_plain(self) -> bool:
        """Whether it asks for the best items and nothing else."""
        return self.is_in_order and self.min_score is None

    @field_validator("cursor")
    @classmethod
    def _page_in_order(cls, cursor: str | None, info: ValidationInfo) -> str | None:
        if cursor is not None and (info.data.get("diversity") or info.data.get("cap")):
            message = "pages follow the order of the scores, not of diversity and cap; send one of them"
            raise PydanticCustomError("cursor", message)
        return cursor

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
    def _bound_features(cls, features: dict[str, Any]) -> dict[str, Any]:
        return check_features(features)


class BatchRequest(Body):
    """Up to 100 recommendations in one call."""

    requests: list[RecommendRequest] = Field(min_length=1, max_length=BATCH_LIMIT)


class EventBody(Body):
    """One event; sent again under the same `event_id` it counts once.

    `time` is now if it isn't given, or is in the future (beyond a few minutes for clocks that differ).
    """

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
    force: bool = False


class RouteBody(Body):
    """A version, and the share of users or of requests that it gets."""

    version: str = Field(min_length=1, max_length=64)
    share: float = Field(gt=0, le=1, allow_inf_nan=False)


class RoutesRequest(Body):
    """`POST /admin/routes`; what is left out stays, null ends it."""

    canary: RouteBody | None = None
    shadow: RouteBody | None = None


class Item(BaseModel):
    """A recommended item: its id as the data had it, its score, where it comes from, what is known of it.

    The score is the inner product / temperature for `towers` (without its sign in a version with absolute
    scoring), the number of training events for `popular`. A `fresh` item was put since the version was made;
    its score is of the kind of the others' in the answer.
    """

    id: int | str
    score: float
    source: Literal["towers", "popular", "fresh"]
    fields: dict[str, Any]


class SimilarAnswer(BaseModel):
    """Items of one version, best first; `exhausted` is there when there were fewer than asked for."""

    version: str
    items: list[Item]
    exhausted: Literal[True] | None = None


class ExplainedPlan(BaseModel):
    """How the items were found.

    `kind`: by the index alone (`index`), with more than were asked for, of which some were left out
    (`over_fetch`), among the allowed ones inside the index (`selector`), by scoring every allowed one
    (`subset`), or by `popularity`. `allowed`: how many items the filter allowed, if there was one; `fetched`:
    how many were looked at for the answer.
    """

    kind: Literal["index", "over_fetch", "selector", "subset", "popularity"]
    allowed: int | None
    fetched: int


class Pull(BaseModel):
    """An item of the history, and how much lower the score would be without it."""

    id: int | str
    change: float


class ExplainedItem(BaseModel):
    """What an item's score is made of, and what of the history pulls the item up, the strongest first."""

    id: int | str
    score_parts: dict[str, float | bool]
    pulled_by: list[Pull]


class Explanation(BaseModel):
    """Why these items: how they were found, how long each stage took, and the reasons for each."""

    plan: ExplainedPlan
    milliseconds: dict[str, float]
    items: list[ExplainedItem] | None = None


class RecommendAnswer(SimilarAnswer):
    """A recommendation; `degraded` names what it had to do without, `unknown_items` what it skipped.

    `history`: what is stored of the user; `items`: what was put and withdrawn since the store could be read.
    `cursor` asks for the next page, if there may be one.
    """

    degraded: list[Literal["history", "items"]]
    unknown_items: list[int | str] | None = None
    cursor: str | None = None
    explanation: Explanation | None = None


class BatchAnswer(BaseModel):
    """One answer a request, in order."""

    results: list[RecommendAnswer]


class EventsAnswer(BaseModel):
    """How many events are now stored that weren't, and how many were known already.

    `clamped`, if any: how many had a time in the future or before 1970, and are stored with another.
    `expired`, if any: how many are older than histories are kept, and weren't stored.
    """

    stored: int
    duplicates: int
    clamped: int | None = None
    expired: int | None = None


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
    versions: list[CheckedVersion]


class ActivateAnswer(BaseModel):
    """The version that is live now, and the one that was, if one was."""

    version: str
    previous: str | None
    behind: list[int] | None = None


class RoutesAnswer(BaseModel):
    """Which versions answer whom."""

    live: str | None
    canary: RouteBody | None
    shadow: RouteBody | None
    behind: list[int] | None = None


class ErrorDetail(BaseModel):
    """What was wrong: the field, its value, and what would work."""

    field: str
    value: Any
    message: str


class ErrorAnswer(BaseModel):
    """The one shape of all errors."""

    error: ErrorDetail
