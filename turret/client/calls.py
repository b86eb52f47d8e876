"""The calls of the API: each function turns typed arguments into a `Call`, which a client sends."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar, Unpack
from urllib.parse import quote

from pydantic import BaseModel

from turret.client import answers, version_answers
from turret.client.answers import Id
from turret.client.errors import ClientError
from turret.data.errors import shown

Answered = TypeVar("Answered", covariant=True)
Model = TypeVar("Model", bound=BaseModel)
Time = float | str | date  # seconds since 1970, ISO 8601, or a date or datetime (UTC without a zone)
# After which failures a call may be sent again: each where it is idempotent, or those alone after which the
# service has certainly not carried it out.
Retried = Literal["always", "unless received", "never"]
_EVENTS, _BYTES = 1_000, 900_000  # of one call; the service takes 1,000 events and a megabyte
_ID_LENGTH = 512  # as the service has it
_COMPARISON = "/admin/comparison"
_ACTIVATION_SECONDS = 600.0  # with its checks and the loading in every process


class RankingRequest(TypedDict, total=False):
    """The conditions on an answer of ranked items, all optional; docs/serving.md describes them."""

    k: int
    exclude: Sequence[Id]
    filter: Mapping[str, Any]
    min_score: float
    diversity: float
    cap: Mapping[str, int]
    cursor: str
    min_version: str
    explain: bool
    rules: Sequence[str]


class Rule(TypedDict, total=False):
    """A filter on catalog fields, and caps by field; docs/filters.md describes them."""

    filter: Mapping[str, Any]
    cap: Mapping[str, int]


class UsedItem(TypedDict):
    """An item of a history, and the kind of its event."""

    item: Id
    kind: NotRequired[str | None]


class RecommendRequest(RankingRequest, total=False):
    """The fields of a recommendation, all optional; docs/serving.md describes them."""

    user_id: Id
    session_id: Id
    history: Sequence[Id | UsedItem]
    history_times: Sequence[Time]
    at: Time
    features: Mapping[str, Any]
    exclude_seen: bool | Sequence[str]
    among: Literal["all", "new", "again"]


class Event(TypedDict):
    """An event of a user, or of a stranger's session; with both, the session's events become the user's.

    Without a `time` it counts as of now. `event_id` is random unless it is given.
    """

    user_id: NotRequired[Id]
    session_id: NotRequired[Id]
    item_id: Id
    event_id: NotRequired[Id]
    time: NotRequired[Time]
    kind: NotRequired[str]


class ItemChange(TypedDict):
    """A change of an item: PUT (the default) with `features`, PATCH with parts of an item, or DELETE."""

    id: Id
    method: NotRequired[Literal["PUT", "PATCH", "DELETE"]]
    features: NotRequired[Mapping[str, Any]]
    fields: NotRequired[Mapping[str, Any] | None]
    withdrawn: NotRequired[Literal[False]]


class Route(TypedDict):
    """A version, and its share of users (canary) or of requests (shadow), above 0 and at most 1."""

    version: str
    share: float


class Routes(TypedDict, total=False):
    """The routes beside the live version."""

    canary: Route | None
    shadow: Route | None


@dataclass(frozen=True, slots=True)
class Call(Generic[Answered]):
    """A request, and how its answer is read; `seconds` is the least timeout that it needs."""

    method: str
    path: str
    read: Callable[[bytes], Answered]
    content: bytes | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    retried: Retried = "always"
    seconds: float = 0.0


def _json(value: Any, call: str) -> bytes:
    """A body of a call, or a part of it. Raises ClientError for a value that JSON doesn't have."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ClientError(f"{call}: {error}") from None


def _each(call: str, name: str, values: Any, of: type = object) -> Iterator[Any]:
    """The values of a list, one by one. Raises ClientError for anything else, a single one among them."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise ClientError(f"{call}: {name} can't be {shown(values)}: give a list")
    for one in values:
        if not isinstance(one, of):
            raise ClientError(f"{call}: {name} can't have {shown(one)}: give dictionaries")
        yield one


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        return value.tolist()
    if isinstance(value, Sequence | set | frozenset):
        return list(value)
    raise TypeError(f"{value!r} is no JSON value; send texts, numbers, lists and mappings of them")


def _get(path: str, model: type[Model], retried: Retried = "always", **parameters: Any) -> Call[Model]:
    return _call("GET", path, model, None, retried, **parameters)


def _call(
    method: str,
    path: str,
    model: type[Model],
    body: Any = None,
    retried: Retried = "always",
    seconds: float = 0.0,
    **parameters: Any,
) -> Call[Model]:
    """A call with the `parameters` that are not None."""
    content = None if body is None else _json(body, f"{method} {path}")
    given = {name: value for name, value in parameters.items() if value is not None}
    return Call(method, path, model.model_validate_json, content, given, retried, seconds)


def _id(name: str, given: Id) -> str:
    """An id as a part of a path. Raises ClientError for what is none."""
    is_whole = hasattr(given, "__index__") and not isinstance(given, bool) and -(2**63) <= int(given) < 2**63
    text = str(given) if is_whole or isinstance(given, str) else ""
    try:
        quoted = quote(text, safe="") if len(text) <= _ID_LENGTH else ""
    except UnicodeEncodeError:
        quoted = ""
    if not quoted:
        raise ClientError(
            f"{name} can't be {shown(given)}: give a 64-bit integer, or a text of 1 to {_ID_LENGTH} "
            "characters"
        )
    # Clients and proxies take . and .. for folders.
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def _item(item_id: Id, below: str = "") -> str:
    return f"/v1/items/{_id('item_id', item_id)}{below}"


def _user(user_id: Id) -> str:
    return f"/v1/users/{_id('user_id', user_id)}"


# ---- Recommendations


def recommend(**request: Unpack[RecommendRequest]) -> Call[answers.RecommendAnswer]:
    """Recommend the next items for `user_id`, for its stored history, or for a `history` (oldest first)."""
    return _call("POST", "/v1/recommend", answers.RecommendAnswer, request)


def recommend_batch(requests: Sequence[RecommendRequest]) -> Call[answers.BatchAnswer]:
    """Answer up to 100 requests in one call, all from one version."""
    listed = list(_each("POST /v1/recommend/batch", "requests", requests, Mapping))
    return _call("POST", "/v1/recommend/batch", answers.BatchAnswer, {"requests": listed})


def search(
    query: str | None = None,
    features: Mapping[str, Any] | None = None,
    **conditions: Unpack[RankingRequest],
) -> Call[answers.RecommendAnswer]:
    """Find the items that answer a query in words, or one whose ready vector is among its `features`."""
    asked = {"query": query, "features": features}
    body = {name: value for name, value in asked.items() if value is not None} | dict(conditions)
    return _call("POST", "/v1/search", answers.RecommendAnswer, body)


# ---- Events and users


def event_calls(events: Iterable[Event]) -> Iterator[Call[answers.EventsAnswer]]:
    """Cut events into calls; each event gets its id here, so that a repeated call stores nothing twice."""
    waiting: list[bytes] = []
    size = 0
    for event in _each("POST /v1/events", "events", events, Mapping):
        encoded = _json({"event_id": uuid.uuid4().hex, **event}, "POST /v1/events")
        if waiting and (len(waiting) == _EVENTS or size + len(encoded) > _BYTES):
            yield _store(waiting)
            waiting, size = [], 0
        waiting.append(encoded)
        size += len(encoded)
    if waiting:
        yield _store(waiting)


def _store(events: list[bytes]) -> Call[answers.EventsAnswer]:
    content = b'{"events": [%b]}' % b", ".join(events)
    return Call("POST", "/v1/events", answers.EventsAnswer.model_validate_json, content)


def sum_of(parts: Sequence[answers.EventsAnswer]) -> answers.EventsAnswer:
    """Add the counts of several calls; the warning is the last one."""
    return answers.EventsAnswer(
        stored=sum(part.stored for part in parts),
        duplicates=sum(part.duplicates for part in parts),
        clamped=sum(part.clamped for part in parts),
        expired=sum(part.expired for part in parts),
        moved=sum(part.moved for part in parts),
        moved_duplicates=sum(part.moved_duplicates for part in parts),
        warning=next((part.warning for part in reversed(parts) if part.warning), None),
    )


def user(user_id: Id) -> Call[answers.UserAnswer]:
    """Show the stored events of a user: their number, and the newest 1000, oldest first."""
    return _get(_user(user_id), answers.UserAnswer)


def forget_user(user_id: Id) -> Call[answers.ForgottenAnswer]:
    """Delete all stored events of a user."""
    return _call("DELETE", _user(user_id), answers.ForgottenAnswer)


def random_user() -> Call[answers.RandomUserAnswer]:
    """Return the id of some user with stored events."""
    return _get("/v1/random-user", answers.RandomUserAnswer)


# ---- Items


def find_items(
    query: str | None = None,
    *,
    ids: Sequence[Id] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[answers.FoundItemsAnswer]:
    """Find items by the words of their id and text fields, or by ids; without both, the most popular."""
    given = None if ids is None else [str(one) for one in _each("GET /v1/items", "ids", ids)]
    return _get("/v1/items", answers.FoundItemsAnswer, query=query, id=given, limit=limit, cursor=cursor)


def similar_items(item_id: Id, **conditions: Unpack[RankingRequest]) -> Call[answers.RecommendAnswer]:
    """Return the items whose vectors are nearest to this item's, as far as they meet the conditions."""
    if conditions.keys() <= {"k"}:
        return _get(_item(item_id, "/similar"), answers.RecommendAnswer, k=conditions.get("k"))
    return _call("POST", _item(item_id, "/similar"), answers.RecommendAnswer, conditions)


def item(item_id: Id) -> Call[answers.ItemAnswer]:
    """Return an item as the service knows it: fields, features if it is fresh, state, and popularity."""
    return _get(_item(item_id), answers.ItemAnswer)


def put_item(
    item_id: Id, features: Mapping[str, Any], fields: Mapping[str, Any] | None = None
) -> Call[answers.ItemPutAnswer]:
    """Add an item by its features, or replace the fields of a known one.

    `fields` are the features by default.
    """
    body = {"features": features} | ({} if fields is None else {"fields": fields})
    return _call("PUT", _item(item_id), answers.ItemPutAnswer, body)


def patch_item(
    item_id: Id,
    *,
    features: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    restore: bool = False,
) -> Call[answers.ItemPutAnswer]:
    """Change features or fields of an item in part: the others stay, and None removes one.

    With `restore`, a withdrawn item is served again, with all that it had.
    """
    body = {"features": features or {}, "fields": fields or {}, **({"withdrawn": False} if restore else {})}
    return _call("PATCH", _item(item_id), answers.ItemPutAnswer, body)


def change_items(changes: Iterable[ItemChange]) -> Call[answers.ItemsChangedAnswer]:
    """Change up to 10,000 items in one call; each has its own result, in the order given."""
    listed = _each("POST /v1/items", "changes", changes, Mapping)
    lines = [_json(change, "POST /v1/items") for change in listed]
    return Call("POST", "/v1/items", answers.ItemsChangedAnswer.model_validate_json, b"\n".join(lines))


def withdraw_item(item_id: Id) -> Call[answers.ItemWithdrawnAnswer]:
    """Withdraw an item: no answer of any version has it until it is put back."""
    return _call("DELETE", _item(item_id), answers.ItemWithdrawnAnswer)


def rules() -> Call[answers.RulesAnswer]:
    """Show the stored rules, and when and by which key they were set."""
    return _get("/v1/rules", answers.RulesAnswer)


def set_rules(rules: Mapping[str, Rule]) -> Call[answers.RulesAnswer]:
    """Replace all rules, in every worker of every replica; needs a key of the scope rules."""
    return _call("PUT", "/v1/rules", answers.RulesAnswer, {"rules": rules}, seconds=_ACTIVATION_SECONDS)


def roll_back_rules(since: str) -> Call[answers.RulesAnswer]:
    """Replace the rules that were set at `since` by those before; needs a key of the scope rules."""
    body = {"since": since}
    return _call("POST", "/v1/rules/rollback", answers.RulesAnswer, body, seconds=_ACTIVATION_SECONDS)


def fields() -> Call[answers.FieldsAnswer]:
    """Summarise the fields of the live version's catalog: kinds, frequent values and bounds."""
    return _get("/v1/fields", answers.FieldsAnswer)


def item_map() -> Call[answers.MapAnswer]:
    """Describe the map of the live version's item vectors."""
    return _get("/v1/map", answers.MapAnswer)


def map_points() -> Call[bytes]:
    """Return the points of the map: two little-endian 16-bit integers, x and y, an item."""
    return Call("GET", "/v1/map/points", bytes)


def map_colours(field: str) -> Call[answers.ColoursAnswer]:
    """Group the points of the map by a field of the catalog."""
    return _get("/v1/map/colours", answers.ColoursAnswer, field=field)


def map_items(
    *, points: Sequence[int] | None = None, ids: Sequence[Id] | None = None
) -> Call[answers.MapItemsAnswer]:
    """Return the items of some points of the map, or the points of some items."""
    given = None if ids is None else [str(one) for one in _each("GET /v1/items", "ids", ids)]
    return _get("/v1/map/items", answers.MapItemsAnswer, point=points, id=given)


# ---- Versions


def version() -> Call[version_answers.VersionAnswer]:
    """Describe the live version: scoring, metrics, measured recall."""
    return _get("/v1/version", version_answers.VersionAnswer)


def versions() -> Call[version_answers.VersionsAnswer]:
    """List every bundle of the folder with its metrics and recall."""
    return _get("/v1/versions", version_answers.VersionsAnswer)


def activations() -> Call[version_answers.ActivationsAnswer]:
    """List the latest 100 activations and refused versions, newest first, with reasons."""
    return _get("/v1/activations", version_answers.ActivationsAnswer)


def activate(
    version: str, *, force: bool = False, compared: bool = False
) -> Call[version_answers.ActivateAnswer]:
    """Make a version live in every worker, after it has passed the gate.

    `force` accepts a low recorded metric or none, and a low overlap; `compared` says that both versions were
    compared on the same events.
    """
    given = {"force": force, "compared": compared}
    body = {"version": version} | {name: True for name, value in given.items() if value}
    return _swap("/admin/activate", body)


def roll_back(version: str) -> Call[version_answers.ActivateAnswer]:
    """Replace the live version, which is `version`, by the one before it."""
    return _swap("/admin/rollback", {"version": version})


def _swap(path: str, body: dict[str, Any]) -> Call[version_answers.ActivateAnswer]:
    return _call("POST", path, version_answers.ActivateAnswer, body, "unless received", _ACTIVATION_SECONDS)


def routes() -> Call[version_answers.RoutesAnswer]:
    """Show the live version, the canary and the shadow."""
    return _get("/admin/routes", version_answers.RoutesAnswer)


def set_routes(**routes: Unpack[Routes]) -> Call[version_answers.RoutesAnswer]:
    """Set the `canary` or the `shadow`; None ends it, and one that is left out stays."""
    return _call("POST", "/admin/routes", version_answers.RoutesAnswer, routes, seconds=_ACTIVATION_SECONDS)


def open_comparison(version: str) -> Call[version_answers.ComparisonAnswer]:
    """Open a version beside the live one, in place of any other, after it has passed the gate."""
    body = {"version": version}
    return _call("POST", _COMPARISON, version_answers.ComparisonAnswer, body, seconds=_ACTIVATION_SECONDS)


def comparison(version: str | None = None) -> Call[version_answers.ComparisonAnswer]:
    """Show which version is compared, if any; `version` asks for that one alone."""
    return _get(_COMPARISON, version_answers.ComparisonAnswer, version=version)


def close_comparison(version: str | None = None) -> Call[version_answers.ComparisonAnswer]:
    """End the comparison; with `version`, only if it is of that one."""
    return _call("DELETE", _COMPARISON, version_answers.ComparisonAnswer, version=version)


def compare(request: RecommendRequest, *, version: str | None = None) -> Call[version_answers.ComparedAnswer]:
    """Answer one request from both versions; `version` opens another one first."""
    path = f"{_COMPARISON}/recommend"
    return _call(
        "POST", path, version_answers.ComparedAnswer, request, seconds=_ACTIVATION_SECONDS, version=version
    )


def overlap(
    *, version: str | None = None, users: int = 200, k: int = 10
) -> Call[version_answers.OverlapAnswer]:
    """Measure the overlap of both versions' answers over stored users, or over recorded queries."""
    path, seconds = f"{_COMPARISON}/overlap", _ACTIVATION_SECONDS
    return _call(
        "GET", path, version_answers.OverlapAnswer, seconds=seconds, users=users, k=k, version=version
    )


# ---- Probes


def alive() -> Call[answers.AliveAnswer]:
    """Answer while the process runs."""
    return _get("/livez", answers.AliveAnswer, "never")


def ready() -> Call[answers.ReadyAnswer]:
    """Answer while the service can answer requests; AnswerError 503 has the reason while it can't."""
    return _get("/readyz", answers.ReadyAnswer, "never")


def metrics() -> Call[str]:
    """Return the metrics in the Prometheus text format."""
    return Call("GET", "/metrics", bytes.decode)
