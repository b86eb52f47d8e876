"""The answers of the service, typed; the published description of the API has its schemas from here.

The answers about versions and rules are in `turret.client.version_answers`.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Id = int | str
FieldKind = Literal["number", "boolean", "text", "numbers", "texts", "mixed", "none"]


class Answer(BaseModel):
    """A frozen answer; fields of a later release of the service are ignored."""

    model_config = ConfigDict(frozen=True, defer_build=True)


# ---- Recommendations


class Item(Answer):
    """A recommended item: its id, score, source and catalog fields.

    The score is the inner product / temperature for `towers` (its absolute value in a version with absolute
    scoring), the number of training events for `popular`, and the decayed count of stored events for
    `popular_now`. A `fresh` item was added since the version was made; its score is on the scale of the
    answer's other items. A `pinned` item has its place by a pin, an `explored` one by a draw.
    """

    id: Id
    score: float
    source: Literal["towers", "popular", "popular_now", "fresh"]
    fields: dict[str, Any]
    pinned: bool = False
    explored: bool = False


class ExplainedPlan(Answer):
    """How the items were found.

    `kind`: a plain search of the index (`index`), an over-fetching search, of which some are left out
    (`over_fetch`), a search among the allowed items inside the index (`selector`), scoring every allowed item
    (`subset`), the same while the vector engine is unavailable (`fallback`), or `popularity`. `allowed`: how
    many items the filter allows, if there is one; `fetched`: how many were examined for the answer.
    """

    kind: Literal["index", "over_fetch", "selector", "subset", "fallback", "popularity"]
    allowed: int | None
    fetched: int


class Pull(Answer):
    """An item of the history, and by how much the whole score falls without any of its events."""

    id: Id
    change: float


class Uses(Answer):
    """How often the history has an item, by kinds too, the mean days between its uses, and since the last.

    The days are null for a history without times, and those between for an item of one use.
    """

    times: int
    kinds: dict[str, int]
    every_days: float | None
    last_days_ago: float | None


class ExplainedBoost(Answer):
    """A boost of an item by a rule, or by the request (null)."""

    rule: str | None
    by: float


class ExplainedItem(Answer):
    """The parts of an item's score, and the history items that raise it, strongest first.

    `boosts`: what has raised the score, and by how much. `uses`: those of the item
    itself in the history, if there are some. `matched`: the words (each as "=word") and letter trigrams that
    the item's texts share with a query. `interest`: of several interests of a user, the one with
    the item's score, as the items of the history that are closest to it.
    """

    id: Id
    score_parts: dict[str, float | bool]
    pulled_by: tuple[Pull, ...]
    boosts: tuple[ExplainedBoost, ...] = ()
    uses: Uses | None = None
    matched: tuple[str, ...] | None = None
    interest: tuple[Id, ...] | None = None


class Explanation(Answer):
    """The search plan, the time of each stage, and the reasons for each item."""

    plan: ExplainedPlan
    milliseconds: dict[str, float]
    items: tuple[ExplainedItem, ...] | None = None


class RecommendAnswer(Answer):
    """A recommendation.

    `degraded` lists the parts that were unavailable: `history` (the stored history), `items` (recent changes
    of items), `engine` (the vector engine of the version), `rules` (a default rule that the version can't
    apply). `unknown_items` are items of the history and of pins that the version doesn't know. `exhausted`:
    fewer items than requested were left. `cursor` requests the next page, if there may be one. `answer_id`
    names the answer in the events that it leads to; the answers of a comparison have none.
    """

    version: str
    items: tuple[Item, ...]
    degraded: tuple[Literal["history", "items", "engine", "rules"], ...]
    exhausted: bool = False
    unknown_items: tuple[Id, ...] = ()
    cursor: str | None = None
    explanation: Explanation | None = None
    answer_id: str | None = None


class BatchAnswer(Answer):
    """One answer a request, in order."""

    results: tuple[RecommendAnswer, ...]


class ItemVector(Answer):
    """The vector of an item; null for one that the version doesn't know."""

    id: Id
    vector: tuple[float, ...] | None


class VectorsAnswer(Answer):
    """The vectors of items, and of the users of requests, null for a history without a known item.

    Where users have several interests, a request has a vector of each, and a score is the best of them.
    A score is the inner product of both, without its sign where `absolute`, divided by the `temperature`.
    `normalised`: the vectors have the length 1; `item_bias`: the last number of an item is its bias.
    """

    version: str
    normalised: bool
    temperature: float
    absolute: bool
    item_bias: bool
    items: tuple[ItemVector, ...]
    requests: tuple[tuple[float, ...] | tuple[tuple[float, ...], ...] | None, ...]
    degraded: tuple[Literal["history", "items"], ...]


# ---- Events and users


class EventsAnswer(Answer):
    """How many events were stored, and how many were duplicates.

    `clamped`: how many had a time in the future or before 1970, and were stored with another. `expired`: how
    many are older than the retention period, and were not stored. `moved`: how many stored events of a
    session became those of its user; `moved_duplicates`: how many did not, as the user has other events with
    their ids. `warning`: events have a kind that the data of the live version leaves
    out, or none, or are of items that it lacks.
    """

    stored: int
    duplicates: int
    clamped: int = 0
    expired: int = 0
    moved: int = 0
    moved_duplicates: int = 0
    warning: str | None = None


class RandomUserAnswer(Answer):
    """The id of a user with stored events."""

    user_id: str


class StoredEvent(Answer):
    """One event of a user; the time is ISO 8601 in UTC. `answer_id`: the event named the answer before it."""

    event_id: str
    item_id: Id
    time: str
    kind: str | None
    answer_id: str | None = None


class UserAnswer(Answer):
    """The stored events of a user: their number, and the newest 1000, oldest first."""

    user_id: str
    total: int
    events: tuple[StoredEvent, ...]


class ForgottenAnswer(Answer):
    """How many events of a user were deleted."""

    user_id: str
    deleted: int


# ---- Items


class FoundItem(Answer):
    """An item with its fields; `training_events` is null for an item added since the version was made.

    `withdrawn`: no answer has it, but histories with it still count it.
    """

    id: Id
    fields: dict[str, Any]
    training_events: int | None
    withdrawn: bool = False


class FoundItemsAnswer(Answer):
    """Items of one version; `cursor` requests the next page, if there is one."""

    version: str
    items: tuple[FoundItem, ...]
    cursor: str | None = None


class ItemAnswer(Answer):
    """An item as the live version and the changes since know it.

    `fields` are those of answers and filters; `fields_replaced`: a PUT has replaced those of the version.
    `features` are those of a fresh item as they were put, else null. `in_index`: the version was trained with
    the item. A `withdrawn` item is in no answer. `training_events` and `popularity_rank` (1 for the most
    events; equal counts share a rank) are null for a fresh item. `versions`: the live version and the canary,
    if they were trained with it. `degraded` has `items` while recent changes can't be read.
    """

    version: str
    id: Id
    fields: dict[str, Any]
    features: dict[str, Any] | None
    in_index: bool
    fresh: bool
    fields_replaced: bool
    withdrawn: bool
    training_events: int | None
    popularity_rank: int | None
    versions: tuple[str, ...]
    degraded: tuple[Literal["items"], ...]


class ItemPutAnswer(Answer):
    """The stored item: its vector is computed from the features, or comes from training.

    `replicas_behind` names the other replicas of the service whose answers may lack the change for a moment.
    `warning`: no item of the version has one of the fields, or only with values of another type; or the
    replicas could not be asked.
    """

    version: str
    id: Id
    vector: Literal["features", "training"]
    replicas_behind: tuple[str, ...] = ()
    warning: str | None = None


class RefusedChange(Answer):
    """Why a change was refused, as the call of one item says it."""

    field: str
    value: Any
    message: str


class ItemResult(Answer):
    """The outcome of one line: its `status` is that of the call of one item, with `error` unless it is 200.

    `id` is null where the line has none that can be read.
    """

    line: int
    id: Id | None
    status: int
    vector: Literal["features", "training"] | None = None
    withdrawn: bool = False
    error: RefusedChange | None = None


class ItemsChangedAnswer(Answer):
    """The results of all lines, in their order, and how many are in effect; see ItemPutAnswer."""

    version: str
    changed: int
    refused: int
    results: tuple[ItemResult, ...]
    replicas_behind: tuple[str, ...] = ()
    warning: str | None = None


class ItemWithdrawnAnswer(Answer):
    """The item is in no answer of any version from now on, until it is put or patched; see ItemPutAnswer."""

    version: str
    id: Id
    withdrawn: Literal[True]
    replicas_behind: tuple[str, ...] = ()
    warning: str | None = None


class FieldValue(Answer):
    """A value of a field, and the number of items that have it."""

    value: str
    items: int


class FieldSummary(Answer):
    """A field of the catalog.

    `label` and `unit`: how people read it, as `turret data prepare --show` says. `missing`: the number of
    items without a value. `minimum` and `maximum`: of numbers. `values`: the most frequent texts, up to 100,
    of a field whose values are shared by items.
    """

    name: str
    kind: FieldKind
    label: str | None = None
    unit: str | None = None
    missing: int
    minimum: float | None = None
    maximum: float | None = None
    values: tuple[FieldValue, ...] | None = None


class FieldsAnswer(Answer):
    """The fields of a version; `title` names the one that names an item, `picture` the one with pictures.

    `show` names the ones that people see beside it, in this order; empty where the preparation named none.
    """

    version: str
    title: str | None
    picture: str | None
    show: tuple[str, ...] = ()
    fields: tuple[FieldSummary, ...]


class MapAnswer(Answer):
    """The map of a version: the number of its points.

    `colour`: the field whose groups explain the largest share of the variance of the item vectors, None
    without such a field.
    """

    version: str
    items: int
    colour: str | None = None


class ColourGroup(Answer):
    """A group of items, and their number."""

    label: str
    items: int


class ColoursAnswer(Answer):
    """Up to 10 groups of items by a field.

    `codes` is base64 of one byte a point, in the order of the points: the number of its group, 255 for none.
    """

    version: str
    field: str
    kind: FieldKind
    groups: tuple[ColourGroup, ...]
    codes: str


class MapItem(Answer):
    """An item and the number of its point, from 0; null for an item that was added since the export."""

    point: int | None
    id: Id
    fields: dict[str, Any]


class MapItemsAnswer(Answer):
    """The items of some points, or the points of some items, in the order of the request."""

    version: str
    items: tuple[MapItem, ...]


# ---- Probes and errors


class AliveAnswer(Answer):
    """The process answers."""

    status: Literal["alive"]


class ReadyAnswer(Answer):
    """A version is live."""

    status: Literal["ready"]
    version: str


class ErrorDetail(Answer):
    """The field at fault, its value, and a message with the remedy."""

    field: str
    value: Any
    message: str


class ErrorAnswer(Answer):
    """The one shape of all errors; `others` are further fields at fault, up to 20."""

    error: ErrorDetail
    others: tuple[ErrorDetail, ...] = ()
