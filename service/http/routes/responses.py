"""The bodies of answers, and the descriptions of calls, for the OpenAPI document."""

from typing import Any, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel, Field

from turret.data.manifest import FileHash
from turret.service.schemas.requests import RouteBody
from turret.service.versions.gate import CheckedVersion
from turret.service.versions.record import Activation
from turret.tower.catalog.columns import Kind
from turret.tower.format.item_map import Method
from turret.tower.format.manifest import FileName, Manifest

Described = dict[str, Any]


class Item(BaseModel):
    """A recommended item: its id, score, source and catalog fields.

    The score is the inner product / temperature for `towers` (its absolute value in a version with absolute
    scoring), and the number of training events for `popular`. A `fresh` item was added since the version was
    made; its score is on the scale of the answer's other items.
    """

    id: int | str
    score: float
    source: Literal["towers", "popular", "fresh"]
    fields: dict[str, Any]


class SimilarAnswer(BaseModel):
    """Items of one version, best first; `exhausted` is set if there are fewer than requested."""

    version: str
    items: list[Item]
    exhausted: Literal[True] | None = None


class ItemAnswer(BaseModel):
    """An item as the live version and the changes since know it.

    `fields` are those of answers and filters; `fields_replaced`: a PUT has replaced those of the version.
    `features` are those of a fresh item as they were put, else null. `in_index`: the version was trained with
    the item. A `withdrawn` item is in no answer. `training_events` and `popularity_rank` (1 for the most
    events; equal counts share a rank) are null for a fresh item. `versions`: the live version and the canary,
    if they were trained with it. `degraded` has `items` while recent changes can't be read.
    """

    version: str
    id: int | str
    fields: dict[str, Any]
    features: dict[str, Any] | None
    in_index: bool
    fresh: bool
    fields_replaced: bool
    withdrawn: bool
    training_events: int | None
    popularity_rank: int | None
    versions: list[str]
    degraded: list[Literal["items"]]


class ItemPutAnswer(BaseModel):
    """The stored item: its vector is computed from the features, or comes from training.

    `replicas_behind` names the other replicas of the service whose answers may lack the change for a moment.
    """

    version: str
    id: int | str
    vector: Literal["features", "training"]
    replicas_behind: list[str] | None = None


class ItemWithdrawnAnswer(BaseModel):
    """The item is in no answer of any version from now on, until it is put again; see ItemPutAnswer."""

    version: str
    id: int | str
    withdrawn: Literal[True]
    replicas_behind: list[str] | None = None


class ExplainedPlan(BaseModel):
    """How the items were found.

    `kind`: a plain search of the index (`index`), an over-fetching search, of which some are left out
    (`over_fetch`), a search among the allowed items inside the index (`selector`), scoring every allowed item
    (`subset`), the same while the vector engine is unavailable (`fallback`), or `popularity`. `allowed`: how
    many items the filter allows, if there is one; `fetched`: how many were examined for the answer.
    """

    kind: Literal["index", "over_fetch", "selector", "subset", "fallback", "popularity"]
    allowed: int | None
    fetched: int


class Pull(BaseModel):
    """An item of the history, and the decrease of the score without it."""

    id: int | str
    change: float


class ExplainedItem(BaseModel):
    """The parts of an item's score, and the history items that raise it, strongest first."""

    id: int | str
    score_parts: dict[str, float | bool]
    pulled_by: list[Pull]


class Explanation(BaseModel):
    """The search plan, the time of each stage, and the reasons for each item."""

    plan: ExplainedPlan
    milliseconds: dict[str, float]
    items: list[ExplainedItem] | None = None


class RecommendAnswer(SimilarAnswer):
    """A recommendation.

    `degraded` lists the parts that were unavailable: `history` (the stored history), `items` (recent changes
    of items), `engine` (the vector engine of the version). `unknown_items` are history items that the version
    doesn't know. `cursor` requests the next page, if there may be one.
    """

    degraded: list[Literal["history", "items", "engine"]]
    unknown_items: list[int | str] | None = None
    cursor: str | None = None
    explanation: Explanation | None = None


class BatchAnswer(BaseModel):
    """One answer a request, in order."""

    results: list[RecommendAnswer]


class FoundItem(BaseModel):
    """An item with its fields; `training_events` is null for an item added since the version was made.

    `withdrawn` is there for a withdrawn item alone: no answer has it, but histories with it still count it.
    """

    id: int | str
    fields: dict[str, Any]
    training_events: int | None
    withdrawn: bool = False


class FoundItemsAnswer(BaseModel):
    """Items of one version; `cursor` requests the next page, if there is one."""

    version: str
    items: list[FoundItem]
    cursor: str | None = None


class FieldValue(BaseModel):
    """A value of a field, and the number of items that have it."""

    value: str
    items: int


class FieldSummary(BaseModel):
    """A field of the catalog.

    `missing`: the number of items without a value. `minimum` and `maximum`: of numbers. `values`: the most
    frequent texts, up to 100, of a field whose values are shared by items.
    """

    name: str
    kind: Kind
    missing: int
    minimum: float | None = None
    maximum: float | None = None
    values: list[FieldValue] | None = None


class FieldsAnswer(BaseModel):
    """The fields of a version; `title` names the one that names an item, `picture` the one with pictures."""

    version: str
    title: str | None
    picture: str | None
    fields: list[FieldSummary]


class MapAnswer(BaseModel):
    """The map of a version: the method that projected the item vectors, and the number of its points."""

    version: str
    method: Method
    items: int


class ColourGroup(BaseModel):
    """A group of items, and their number."""

    label: str
    items: int


class ColoursAnswer(BaseModel):
    """Up to 10 groups of items by a field.

    `codes` is base64 of one byte a point, in the order of the points: the number of its group, 255 for none.
    """

    version: str
    field: str
    kind: Kind
    groups: list[ColourGroup]
    codes: str


class MapItem(BaseModel):
    """An item and the number of its point, from 0; null for an item that was added since the export."""

    point: int | None
    id: int | str
    fields: dict[str, Any]


class MapItemsAnswer(BaseModel):
    """The items of some points, or the points of some items, in the order of the request."""

    version: str
    items: list[MapItem]


class EventsAnswer(BaseModel):
    """How many events were stored, and how many were duplicates.

    `clamped`, if any: how many had a time in the future or before 1970, and were stored with another.
    `expired`, if any: how many are older than the retention period, and were not stored.
    `warning`: events have a kind that the data of the live version leaves out, or none.
    """

    stored: int
    duplicates: int
    clamped: int | None = None
    expired: int | None = None
    warning: str | None = None


class StoredEvent(BaseModel):
    """One event of a user; the time is ISO 8601 in UTC."""

    event_id: str
    item_id: int | str
    time: str
    kind: str | None


class UserAnswer(BaseModel):
    """The stored events of a user: their number, and the newest 1000, oldest first."""

    user_id: str
    total: int
    events: list[StoredEvent]


class RandomUserAnswer(BaseModel):
    """The id of a user with stored events."""

    user_id: str


class ForgottenAnswer(BaseModel):
    """How many events of a user were deleted."""

    user_id: str
    deleted: int


class VersionAnswer(Manifest):
    """The live version: its manifest without the files, and since when it is live."""

    files: dict[FileName, FileHash] = Field(exclude=True)
    since: str


class VersionsAnswer(BaseModel):
    """The live version, if there is one yet, and every bundle in the folder, oldest first."""

    live: str | None
    versions: list[CheckedVersion]


class ActivationsAnswer(BaseModel):
    """The latest activations and refusals, newest first."""

    activations: list[Activation]


class ActivateAnswer(BaseModel):
    """The live version, the previous one if there was one, and the processes and replicas that are late.

    `warning`: the version's vector engine doesn't hold it, or its alias could not be moved.
    """

    version: str
    previous: str | None
    warning: str | None = None
    behind: list[int] | None = None
    replicas_behind: list[str] | None = None


class RoutesAnswer(BaseModel):
    """The live version, the canary and the shadow, and the processes and replicas that are late."""

    live: str | None
    canary: RouteBody | None
    shadow: RouteBody | None
    behind: list[int] | None = None
    replicas_behind: list[str] | None = None


class AliveAnswer(BaseModel):
    """The process answers."""

    status: Literal["alive"]


class ReadyAnswer(BaseModel):
    """A version is live."""

    status: Literal["ready"]
    version: str


class ErrorDetail(BaseModel):
    """The field at fault, its value, and a message with the remedy."""

    field: str
    value: Any
    message: str


class ErrorAnswer(BaseModel):
    """The one shape of all errors."""

    error: ErrorDetail


def answers(schema: type[BaseModel], *refusals: int) -> dict[int | str, Described]:
    """Describe a call's answers, for a route's `responses`.

    `refusals` are its particular error statuses; `benchmarks.api_document` adds those that follow from its
    body, parameters and scope.
    """
    return {200: {"model": schema}, **{status: {} for status in refusals}}


def json_response(content: Any) -> Response:
    """Write an answer as JSON."""
    return Response(orjson.dumps(content), media_type="application/json")
