"""The bodies of requests: their validation and their JSON schemas.

The bodies about versions and rules are in `version_requests`.
"""

from collections import Counter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from turret.data.features.texts import QUERY
from turret.data.vocabulary import STRANGER
from turret.service.schemas.bodies import Body
from turret.service.schemas.fields import (
    HISTORY_LIMIT,
    KIND_LENGTH,
    KINDS,
    TEXT_LENGTH,
    AnswerId,
    Caps,
    Count,
    CursorText,
    Features,
    History,
    Id,
    Ids,
    NamedUserId,
    RuleName,
    SeenKinds,
    SessionId,
    Time,
    VersionName,
    check_entries,
    show_time,
)
from turret.tower.repeats import Slot

BATCH_LIMIT = 100
RULES_OF_A_REQUEST = 20
# The limits hold for a request and for a rule. A boost costs a filter, and two milliseconds an answer for
# each million items.
BOOSTS, PINS = 10, 20
BOOSTS_OF_AN_ANSWER = 50  # with those of the rules
_LARGEST_BOOST = 1_000.0
EVENTS_LIMIT = 1_000
# Items of all answers of a batch: 100 requests of 1,000 each would be 17 MB for a body of 4 KB.
BATCH_ITEMS = 10_000
_LARGEST_SCORE = 1e30  # above any score, and well within float32
# A factory: pydantic copies a default, which takes longer.
EMPTY: Any = Field(default_factory=dict, json_schema_extra={"default": {}})


class BoostBody(Body):
    """A number (`by`) that is added to the scores of the items that `filter` selects; below 0, it buries."""

    filter: dict[str, Any] = Field(min_length=1)
    by: float = Field(ge=-_LARGEST_BOOST, le=_LARGEST_BOOST, allow_inf_nan=False)

    @field_validator("by")
    @classmethod
    def _changes_something(cls, by: float) -> float:
        if by == 0.0:
            raise PydanticCustomError("by", "0 changes no score; send a number above or below it")
        return by


class PinBody(Body):
    """An item that has the place `position`, from 1, in every answer that may have the item."""

    item: Id
    position: Count


def check_pins(pins: list[PinBody]) -> list[PinBody]:
    """Refuse two pins of one position, or of one item."""
    for name, values in (
        ("position", [str(pin.position) for pin in pins]),
        ("item", [str(pin.item) for pin in pins]),
    ):
        if len(set(values)) < len(values):
            (value, _), *_ = Counter(values).most_common(1)
            message = "two pins have the {name} {value}; leave one of them out"
            raise PydanticCustomError("pin", message, {"name": name, "value": value[:80]})
    return pins


Boosts = Annotated[
    list[BoostBody], Field(max_length=BOOSTS, fail_fast=True, json_schema_extra={"default": []})
]
Pins = Annotated[
    list[PinBody],
    Field(max_length=PINS, fail_fast=True, json_schema_extra={"default": []}),
    AfterValidator(check_pins),
]


class RankingRequest(Body):
    """The conditions on an answer of ranked items.

    The answer has `k` items, without those of `exclude`. `filter` selects items by catalog fields
    (docs/filters.md). `min_score` leaves out items that the towers score lower. `diversity` (0 to 1) is the
    weight of maximal marginal relevance; `cap` limits the items that share a value of a field:
    `{"brand": 2}`. `boost` adds numbers to the scores of some items, and `pin` puts items at positions
    (docs/rules.md). `cursor`, from an answer, requests the next page of the same version. `min_version`
    refuses answers of versions that were live before that one. `explain` adds reasons for each item. `rules`
    are the names of stored rules, which apply too; without it, the default rules apply, and with an empty
    list none.
    """

    k: Count = 10
    exclude: Ids = Field(default_factory=list, json_schema_extra={"default": []})
    filter: dict[str, Any] | None = None
    min_score: float | None = Field(default=None, ge=-_LARGEST_SCORE, le=_LARGEST_SCORE)
    diversity: float = Field(default=0.0, ge=0.0, le=1.0)
    cap: Caps = EMPTY
    boost: Boosts = Field(default_factory=list)
    pin: Pins = Field(default_factory=list)
    cursor: CursorText | None = None
    min_version: VersionName | None = None
    explain: bool = False
    rules: list[RuleName] | None = Field(default=None, max_length=RULES_OF_A_REQUEST)

    @property
    def is_in_order(self) -> bool:
        """Whether the answer is in the order of the scores, so that it can have a next page."""
        return not self.diversity and not self.cap

    @property
    def is_plain(self) -> bool:
        """Whether it requests the best items without any further condition on their scores or places."""
        return self.is_in_order and self.min_score is None and not self.boost and not self.pin

    @field_validator("cursor")
    @classmethod
    def _page_in_order(cls, cursor: str | None, info: ValidationInfo) -> str | None:
        if cursor is not None and (info.data.get("diversity") or info.data.get("cap")):
            message = "a cursor can't be combined with diversity or cap; send one or the other"
            raise PydanticCustomError("cursor", message)
        return cursor


class RecommendRequest(RankingRequest):
    """A request for recommendations.

    `history` (item ids, oldest first, or objects of an `item` and the `kind` of its event) is the whole
    history; without it, the stored histories of `user_id` and of `session_id` count, as one. `history_times`
    are the times of its items, and `at` is the time of the request, by default now; versions that don't read
    times ignore both. `features` are the user's, by name, and `context` those of the request, such as the
    device. `exclude_seen` leaves out the items of the history
    (true), or those of events of some kinds (a list); without it, the version decides (`exclude_seen` and
    `kinds` of `GET /v1/version`). `among` ranks all items, those without a use in the history (`new`), or
    those with one (`again`).
    """

    is_search: ClassVar[bool] = False

    user_id: Id | None = None
    session_id: SessionId | None = None
    history: History | None = None
    history_times: list[Time] | None = Field(default=None, max_length=HISTORY_LIMIT, fail_fast=True)
    at: Time | None = None
    features: Features = EMPTY
    context: Features = EMPTY
    exclude_seen: SeenKinds = None
    among: Slot = "all"

    @property
    def inputs(self) -> dict[str, Any]:
        """The features of the user and of the request, as an encoder reads them."""
        return {**self.features, **self.context} if self.context else self.features

    @property
    def visitors(self) -> tuple[str, ...]:
        """The users of the store who make this request: the user, and the session."""
        users = [] if self.user_id is None else [str(self.user_id)]
        return (*users, *([] if self.session_id is None else [f"{STRANGER}{self.session_id}"]))

    @field_validator("history_times")
    @classmethod
    def _match_history(cls, times: list[int] | None, info: ValidationInfo) -> list[int] | None:
        if times is None or "history" not in info.data:  # then the history is refused already
            return times
        history = info.data["history"]
        if history is None:
            raise PydanticCustomError("history_times", "history_times needs `history`; send both")
        if len(times) != len(history):
            counts = {"times": len(times), "items": len(history)}
            message = "{times} times for {items} items of the history; send one time for each"
            raise PydanticCustomError("history_times", message, counts)
        if times != sorted(times):
            raise PydanticCustomError("history_times", "these times are not in order; send the oldest first")
        return times

    @field_validator("at")
    @classmethod
    def _ask_after_history(cls, at: int | None, info: ValidationInfo) -> int | None:
        times = info.data.get("history_times")
        if at is not None and times and at < times[-1]:
            message = (
                "this is before the newest of history_times, {newest}; leave later items out of the history"
            )
            raise PydanticCustomError("at", message, {"newest": show_time(times[-1])})
        return at


class SearchedRequest(RecommendRequest):
    """A search as the ranking reads it: a request without a history, with the query among its features."""

    is_search: ClassVar[bool] = True


class SearchRequest(RankingRequest):
    """A query in words (`query`), or its ready vector and other features, by name (`features`)."""

    query: str | None = Field(default=None, min_length=1, max_length=TEXT_LENGTH)
    features: Features = EMPTY

    @model_validator(mode="after")
    def _says_something(self) -> "SearchRequest":
        if self.query is None and not self.features:
            raise PydanticCustomError("query", "send a query in words, or its features")
        return self

    def as_recommendation(self) -> SearchedRequest:
        """The request that the ranking reads."""
        conditions = dict(self)
        query, features = conditions.pop("query"), conditions.pop("features")
        named = features if query is None else {QUERY: query, **features}
        return SearchedRequest.model_construct(**conditions, history=[], features=named)


class SimilarRequest(RankingRequest):
    """The conditions on the items that are similar to one."""

    def as_recommendation(self) -> RecommendRequest:
        """The request that the ranking reads: one without a history."""
        return RecommendRequest.model_construct(**dict(self), history=[])


class PopularRequest(RankingRequest):
    """The items with the most stored events of late.

    Each event counts half as much after the `half_life` of this name (TURRET_POPULAR), by default the
    shortest. `kinds` are the kinds of events that count, by default those of targets. `trend` ranks by the
    share of an item among the events of the half-life over that among those of the longest one: what rises.
    There is no `min_score`, as the scores are counts.
    """

    half_life: str | None = Field(default=None, min_length=1, max_length=32)
    kinds: list[str] | None = Field(default=None, min_length=1, max_length=KINDS, fail_fast=True)
    trend: bool = False
    min_score: None = None

    @field_validator("min_score", mode="before")
    @classmethod
    def _has_no_least_score(cls, least: object) -> object:
        if least is not None:
            raise PydanticCustomError("min_score", "the scores are counts of events here; leave this out")
        return least

    def as_recommendation(self) -> RecommendRequest:
        """The request that the ranking reads: one without a history."""
        conditions = {
            name: value for name, value in dict(self).items() if name in RankingRequest.model_fields
        }
        return RecommendRequest.model_construct(**conditions, history=[])


class BatchRequest(Body):
    """Up to 100 recommendations in one call, of up to 10,000 items together (the sum of `k`)."""

    requests: list[RecommendRequest] = Field(min_length=1, max_length=BATCH_LIMIT, fail_fast=True)

    _check_entries = field_validator("requests", mode="wrap")(check_entries)

    @field_validator("requests")
    @classmethod
    def _bound_items(cls, requests: list[RecommendRequest]) -> list[RecommendRequest]:
        count = sum(request.k for request in requests)
        if count > BATCH_ITEMS:
            message = "the batch requests {count} items in total; request at most {limit}"
            raise PydanticCustomError("items", message, {"count": count, "limit": BATCH_ITEMS})
        return requests


class VectorsRequest(Body):
    """The vectors of `items`, and of the users of `requests`, which are those of recommendations."""

    items: Ids = Field(default_factory=list, json_schema_extra={"default": []})
    requests: list[RecommendRequest] = Field(default_factory=list, max_length=BATCH_LIMIT, fail_fast=True)

    _check_entries = field_validator("requests", mode="wrap")(check_entries)


class EventBody(Body):
    """One event of a user, or of the session of a stranger. Sent again, it counts once by its `event_id`.

    With `user_id` and `session_id`, it is the user's, as are all events of the session from then on. `time`
    is now by default, and if it lies more than a few minutes in the future. `answer_id` names the answer that
    led to the event.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "additionalProperties": False,
            "anyOf": [
                {"required": [name], "properties": {name: {"type": ["integer", "string"]}}}
                for name in ("user_id", "session_id")
            ],
        }
    )

    event_id: Id
    user_id: NamedUserId | None = None
    session_id: SessionId | None = Field(default=None, validate_default=True)
    item_id: Id
    time: Time | None = None
    kind: str | None = Field(default=None, max_length=KIND_LENGTH)
    answer_id: AnswerId | None = None

    @field_validator("session_id")
    @classmethod
    def _is_of_somebody(cls, session: int | str | None, info: ValidationInfo) -> int | str | None:
        # `data` lacks an invalid user_id, which is refused already.
        if session is None and info.data.get("user_id", "") is None:
            raise PydanticCustomError("user", "send a user_id, a session_id, or both")
        return session

    @property
    def stranger(self) -> str | None:
        """The user of the store that has the events of the session; None without a session."""
        return None if self.session_id is None else f"{STRANGER}{self.session_id}"


class EventsRequest(Body):
    """Up to 1000 events; all of them are stored, or none."""

    events: list[EventBody] = Field(min_length=1, max_length=EVENTS_LIMIT, fail_fast=True)

    _check_entries = field_validator("events", mode="wrap")(check_entries)


class ItemBody(Body):
    """An item: the features that its vector is computed from, and the fields of answers and filters.

    `features` maps names to raw values, as in the prepared data; a missing one is unknown. Other columns of
    the catalog among them are fields. `fields` are the features by default.
    """

    features: Features
    fields: dict[str, Any] | None = Field(default=None, max_length=100)


_NO_PATCH = (
    'send the `features` or `fields` to change, or "withdrawn": false to put a withdrawn item back as it was'
)


class ItemPatchBody(Body):
    """The features and the fields of an item to change; the others stay. A null removes one.

    With `withdrawn` false, a withdrawn item is served again; else such an item is refused.
    """

    features: Features = EMPTY
    fields: dict[str, Any] = Field(default_factory=dict, max_length=100, json_schema_extra={"default": {}})
    withdrawn: Literal[False] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> "ItemPatchBody":
        if not self.features and not self.fields and self.withdrawn is None:
            raise PydanticCustomError("patch", _NO_PATCH)
        return self


class ItemLine(Body):
    """One line of `POST /v1/items`: an item and what `method` does to it by itself.

    PUT needs `features`, PATCH `features`, `fields` or `withdrawn` (false), and DELETE takes none of them.
    """

    id: Id
    method: Literal["PUT", "PATCH", "DELETE"] = "PUT"
    features: Features | None = None
    fields: dict[str, Any] | None = Field(default=None, max_length=100)
    withdrawn: Literal[False] | None = None

    @model_validator(mode="after")
    def _fits_method(self) -> "ItemLine":
        if self.method == "PUT" and self.features is None:
            raise PydanticCustomError("features", "send `features`; PATCH changes fields alone")
        if self.method == "PATCH" and not self.features and not self.fields and self.withdrawn is None:
            raise PydanticCustomError("patch", _NO_PATCH)
        if self.method != "PATCH" and self.withdrawn is not None:
            raise PydanticCustomError("withdrawn", "PATCH alone takes `withdrawn`; leave it out")
        if self.method == "DELETE" and (self.features is not None or self.fields is not None):
            raise PydanticCustomError("delete", "DELETE takes neither features nor fields; leave them out")
        return self
