"""All calls except those on versions and rules; each function makes a `Call` for a client."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from turret.client import answers
from turret.client.answers import Id
from turret.client.requests import (
    Call,
    Event,
    ItemChange,
    RankingRequest,
    RecommendRequest,
    as_json,
    call,
    each,
    get,
    path_id,
)

_EVENTS, _BYTES = 1_000, 900_000  # the most of one call; the service takes 1,000 events and a megabyte


def _item(item_id: Id, below: str = "") -> str:
    return f"/v1/items/{path_id('item_id', item_id)}{below}"


def _user(user_id: Id) -> str:
    return f"/v1/users/{path_id('user_id', user_id)}"


# ---- Recommendations


def recommend(**request: Unpack[RecommendRequest]) -> Call[answers.RecommendAnswer]:
    """Recommend the next items for `user_id`, for its stored history, or for a `history` (oldest first)."""
    return call("POST", "/v1/recommend", answers.RecommendAnswer, request)


def recommend_batch(requests: Sequence[RecommendRequest]) -> Call[answers.BatchAnswer]:
    """Answer up to 100 requests in one call, all from one version."""
    listed = list(each("POST /v1/recommend/batch", "requests", requests, Mapping))
    return call("POST", "/v1/recommend/batch", answers.BatchAnswer, {"requests": listed})


def search(
    query: str | None = None,
    features: Mapping[str, Any] | None = None,
    **conditions: Unpack[RankingRequest],
) -> Call[answers.RecommendAnswer]:
    """Find the items that answer a query in words, or a query whose ready vector is in its `features`."""
    inputs = {"query": query, "features": features}
    body = {name: value for name, value in inputs.items() if value is not None} | dict(conditions)
    return call("POST", "/v1/search", answers.RecommendAnswer, body)


def popular(
    half_life: str | None = None,
    kinds: Sequence[str] | None = None,
    trend: bool = False,
    **conditions: Unpack[RankingRequest],
) -> Call[answers.RecommendAnswer]:
    """List the items with the most stored events of late, or with `trend` those that rise."""
    named = {"half_life": half_life, "kinds": kinds, "trend": trend or None}
    body = {name: value for name, value in named.items() if value is not None} | dict(conditions)
    return call("POST", "/v1/popular", answers.RecommendAnswer, body)


def vectors(
    items: Sequence[Id] = (), requests: Sequence[RecommendRequest] = ()
) -> Call[answers.VectorsAnswer]:
    """Give the vectors of items and of the users of up to 100 requests; their products are the scores."""
    named = {"items": items, "requests": requests}
    body = {name: list(each("POST /v1/vectors", name, values)) for name, values in named.items()}
    return call("POST", "/v1/vectors", answers.VectorsAnswer, body)


# ---- Events and users


def event_calls(events: Iterable[Event]) -> Iterator[Call[answers.EventsAnswer]]:
    """Cut events into calls; each event gets its id here, so that a repeated call stores nothing twice."""
    waiting: list[bytes] = []
    size = 0
    for event in each("POST /v1/events", "events", events, Mapping):
        encoded = as_json({"event_id": uuid.uuid4().hex, **event}, "POST /v1/events")
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
    return get(_user(user_id), answers.UserAnswer)


def forget_user(user_id: Id) -> Call[answers.ForgottenAnswer]:
    """Delete all stored events of a user."""
    return call("DELETE", _user(user_id), answers.ForgottenAnswer)


def random_user() -> Call[answers.RandomUserAnswer]:
    """Return the id of some user with stored events."""
    return get("/v1/random-user", answers.RandomUserAnswer)


# ---- Items


def find_items(
    query: str | None = None,
    *,
    ids: Sequence[Id] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[answers.FoundItemsAnswer]:
    """Find items by the words of their id and text fields, or by ids; without both, the most popular."""
    id_texts = None if ids is None else [str(item_id) for item_id in each("GET /v1/items", "ids", ids)]
    return get("/v1/items", answers.FoundItemsAnswer, query=query, id=id_texts, limit=limit, cursor=cursor)


def similar_items(item_id: Id, **conditions: Unpack[RankingRequest]) -> Call[answers.RecommendAnswer]:
    """Return the items whose vectors are nearest to this item's, as far as they meet the conditions."""
    if conditions.keys() <= {"k"}:
        return get(_item(item_id, "/similar"), answers.RecommendAnswer, k=conditions.get("k"))
    return call("POST", _item(item_id, "/similar"), answers.RecommendAnswer, conditions)


def item(item_id: Id) -> Call[answers.ItemAnswer]:
    """Return an item as the service knows it: fields, features if it is fresh, state, and popularity."""
    return get(_item(item_id), answers.ItemAnswer)


def put_item(
    item_id: Id, features: Mapping[str, Any], fields: Mapping[str, Any] | None = None
) -> Call[answers.ItemPutAnswer]:
    """Add an item by its features, or replace the fields of a known one.

    `fields` are the features by default.
    """
    body = {"features": features} | ({} if fields is None else {"fields": fields})
    return call("PUT", _item(item_id), answers.ItemPutAnswer, body)


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
    return call("PATCH", _item(item_id), answers.ItemPutAnswer, body)


def change_items(changes: Iterable[ItemChange]) -> Call[answers.ItemsChangedAnswer]:
    """Change up to 10,000 items in one call; each has its own result, in the order given."""
    listed = each("POST /v1/items", "changes", changes, Mapping)
    lines = [as_json(change, "POST /v1/items") for change in listed]
    return Call("POST", "/v1/items", answers.ItemsChangedAnswer.model_validate_json, b"\n".join(lines))


def withdraw_item(item_id: Id) -> Call[answers.ItemWithdrawnAnswer]:
    """Withdraw an item: no answer of any version has it until it is put back."""
    return call("DELETE", _item(item_id), answers.ItemWithdrawnAnswer)


def fields() -> Call[answers.FieldsAnswer]:
    """Summarise the fields of the live version's catalog: kinds, frequent values and bounds."""
    return get("/v1/fields", answers.FieldsAnswer)


def item_map() -> Call[answers.MapAnswer]:
    """Describe the map of the live version's item vectors."""
    return get("/v1/map", answers.MapAnswer)


def map_points() -> Call[bytes]:
    """Return the points of the map: two little-endian 16-bit integers, x and y, an item."""
    return Call("GET", "/v1/map/points", bytes)


def map_colours(field: str) -> Call[answers.ColoursAnswer]:
    """Group the points of the map by a field of the catalog."""
    return get("/v1/map/colours", answers.ColoursAnswer, field=field)


def map_items(
    *, points: Sequence[int] | None = None, ids: Sequence[Id] | None = None
) -> Call[answers.MapItemsAnswer]:
    """Return the items of some points of the map, or the points of some items."""
    id_texts = None if ids is None else [str(item_id) for item_id in each("GET /v1/items", "ids", ids)]
    return get("/v1/map/items", answers.MapItemsAnswer, point=points, id=id_texts)


# ---- Probes


def alive() -> Call[answers.AliveAnswer]:
    """Answer while the process runs."""
    return get("/livez", answers.AliveAnswer, "never")


def ready() -> Call[answers.ReadyAnswer]:
    """Answer while the service can answer requests; AnswerError 503 has the reason while it can't."""
    return get("/readyz", answers.ReadyAnswer, "never")


def metrics() -> Call[str]:
    """Return the metrics in the Prometheus text format."""
    return Call("GET", "/metrics", bytes.decode)
