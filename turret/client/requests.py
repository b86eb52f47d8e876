"""The arguments of calls, and a call as a client sends it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from turret.client.answers import Id
from turret.client.errors import ClientError
from turret.data.errors import shown

Answered = TypeVar("Answered", covariant=True)
Model = TypeVar("Model", bound=BaseModel)
Time = float | str | date  # seconds since 1970, ISO 8601, or a date or datetime (UTC without a zone)
# When a failed call may be sent again: after any failure, as the call is idempotent, or only after a failure
# in which the service has certainly not carried it out.
Retried = Literal["always", "unless received", "never"]
_ID_LENGTH = 512  # the limit of the service
ACTIVATION_SECONDS = 600.0
"""The least timeout of an activation, with its checks and the loading in every process."""


class RankingRequest(TypedDict, total=False):
    """The conditions on an answer of ranked items, all optional; docs/serving.md describes them."""

    k: int
    exclude: Sequence[Id]
    filter: Mapping[str, Any]
    min_score: float
    diversity: float
    cap: Mapping[str, int]
    boost: "Sequence[Boost]"
    pin: "Sequence[Pin]"
    cursor: str
    min_version: str
    explain: bool
    rules: Sequence[str] | None


class Boost(TypedDict):
    """A number that is added to the scores of the items that a filter selects; below 0 it buries them."""

    filter: Mapping[str, Any]
    by: float


class Pin(TypedDict):
    """An item, and its position in the answer, from 1."""

    item: Id
    position: int


# `from` is a keyword of Python, so that the fields are in a dictionary.
Rule = TypedDict(
    "Rule",
    {
        "filter": Mapping[str, Any] | None,
        "cap": Mapping[str, int],
        "boost": Sequence[Boost],
        "pin": Sequence[Pin],
        "from": Time | None,
        "until": Time | None,
        "share": float,
        "default": bool,
    },
    total=False,
)
"""A filter on catalog fields, caps by field, boosts and pins, and when and for whom they apply; docs/rules.md
describes them.
"""


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
    context: Mapping[str, Any]
    exclude_seen: bool | Sequence[str]
    among: Literal["all", "new", "again"]


class Event(TypedDict):
    """An event of a user, or of a stranger's session; with both, the session's events become the user's.

    An event without a `time` gets the present one. `event_id` is random unless it is given. `answer_id` is
    that of the answer that led to the event.
    """

    user_id: NotRequired[Id]
    session_id: NotRequired[Id]
    item_id: Id
    event_id: NotRequired[Id]
    time: NotRequired[Time]
    kind: NotRequired[str]
    answer_id: NotRequired[str]


class ItemChange(TypedDict):
    """A change of an item: PUT (the default) with `features`, PATCH with parts of an item, or DELETE."""

    id: Id
    method: NotRequired[Literal["PUT", "PATCH", "DELETE"]]
    features: NotRequired[Mapping[str, Any]]
    fields: NotRequired[Mapping[str, Any] | None]
    withdrawn: NotRequired[Literal[False]]


class Explore(TypedDict):
    """Some places of a share of the answers are drawn from candidates; docs/operations.md describes it."""

    places: Sequence[int]
    share: float
    among: NotRequired[Literal["new", "near"]]
    method: NotRequired[Literal["epsilon", "plackett_luce"]]
    views: NotRequired[int]


class Route(TypedDict):
    """A version, and its share of users (canary) or of requests (shadow), above 0 and at most 1.

    A canary may `explore`.
    """

    version: str
    share: float
    explore: NotRequired[Explore | None]


class Routes(TypedDict, total=False):
    """The routes beside the live version, and the exploration of the live version."""

    canary: Route | None
    shadow: Route | None
    explore: Explore | None


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


def as_json(value: Any, call: str) -> bytes:
    """A body of a call, or a part of it. Raises ClientError for a value that JSON doesn't have."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ClientError(f"{call}: {error}") from None


def each(call: str, name: str, values: Any, of: type = object) -> Iterator[Any]:
    """The values of a list, one by one. Raises ClientError for anything else, such as a single value."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise ClientError(f"{call}: {name} can't be {shown(values)}: give a list")
    for value in values:
        if not isinstance(value, of):
            raise ClientError(f"{call}: {name} can't have {shown(value)}: give dictionaries")
        yield value


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


def get(path: str, model: type[Model], retried: Retried = "always", **parameters: Any) -> Call[Model]:
    """A call without a body, with the `parameters` that are not None."""
    return call("GET", path, model, None, retried, **parameters)


def call(
    method: str,
    path: str,
    model: type[Model],
    body: Any = None,
    retried: Retried = "always",
    seconds: float = 0.0,
    **parameters: Any,
) -> Call[Model]:
    """A call with the `parameters` that are not None."""
    content = None if body is None else as_json(body, f"{method} {path}")
    query_parameters = {name: value for name, value in parameters.items() if value is not None}
    return Call(method, path, model.model_validate_json, content, query_parameters, retried, seconds)


def path_id(name: str, value: Id) -> str:
    """An id as a part of a path. Raises ClientError for a value that is no id."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63
    text = str(value) if is_whole or isinstance(value, str) else ""
    try:
        quoted = quote(text, safe="") if len(text) <= _ID_LENGTH else ""
    except UnicodeEncodeError:
        quoted = ""
    if not quoted:
        raise ClientError(
            f"{name} can't be {shown(value)}: give a 64-bit integer, or a text of 1 to {_ID_LENGTH} "
            "characters"
        )
    # Clients and proxies take . and .. for folders.
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")
