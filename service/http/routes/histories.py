"""Stored histories: sending events, and the stored events of a user."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from turret.service.errors import NotFoundError
from turret.service.http.routes.dependencies import CHECKED, Parts, Reads, UserId, json_response
from turret.service.observing.metrics import OTHER_KIND, Metrics
from turret.service.overlay.unknown_names import item_warning
from turret.service.ranking.query import unknown_kinds
from turret.service.schemas.fields import HISTORY_LIMIT, show_time
from turret.service.schemas.requests import EventBody, EventsRequest
from turret.service.stores.contract import (
    Event,
    HistoryStore,
    Moved,
    clamp_times,
    drop_expired,
    now_ms,
    oldest_kept,
)
from turret.tower.errors import first_with_others
from turret.tower.format.manifest import Manifest

router = APIRouter(prefix="/v1", tags=["histories"], dependencies=CHECKED)


@router.post("/events")
async def store_events(
    body: Annotated[EventsRequest, Depends(Reads(EventsRequest))], parts: Parts
) -> Response:
    """Store events. Once acknowledged, they are stored and count for the user's next recommendation.

    `clamped` counts events whose time was out of the window and was changed, `expired` those older than the
    retention period, `moved` the stored events of sessions that became those of a user, and
    `moved_duplicates` those that did not, as their user has other events with their ids; they are omitted if
    zero. `warning` counts events that training will leave out by their kind, and those of unknown items.
    """
    bundle = parts.model_holder.live.bundle if parts.model_holder.version else None
    now = now_ms()
    sent = [_event(event, now) for event in body.events]
    if bundle and bundle.manifest.kinds:
        _check_kinds(sent, bundle.manifest)
    placed = clamp_times(sent, now)
    events = drop_expired(placed, oldest_kept(parts.settings.keep_days, now))
    stored = await parts.histories.append(events)
    parts.metrics.events_stored.inc(stored)
    if stored == len(events):  # else nobody knows which of them are new
        _count_outcomes(events, bundle.manifest if bundle else None, parts.metrics)
    answer: dict[str, Any] = {"stored": stored, "duplicates": len(events) - stored}
    clamped = sum(before is not after for before, after in zip(sent, placed, strict=True))
    moved = await _move_sessions(body.events, parts.histories)
    counts = {"clamped": clamped, "expired": len(placed) - len(events)}
    counts |= {"moved": moved.new, "moved_duplicates": moved.known}
    answer |= {name: count for name, count in counts.items() if count}
    if bundle:
        fresh, _ = await parts.overlay.for_answer(bundle)
        unknown = item_warning(fresh, bundle.manifest.version, [event.item for event in events])
        if warnings := [text for text in (_kind_warning(events, bundle.manifest), unknown) if text]:
            answer["warning"] = ". ".join(warnings)
    return json_response(answer)


@router.get("/random-user")
async def random_user(parts: Parts) -> Response:
    """Return the id of some user with stored events, to look at an example."""
    user = await parts.histories.random_user()
    if user is None:
        message = "no user with stored events found; send some with POST /v1/events or `turret history load`"
        raise NotFoundError("user_id", None, message)
    return json_response({"user_id": user})


@router.get("/users/{user_id}")
async def stored_of(user_id: UserId, parts: Parts) -> Response:
    """Show the stored events of a user: their number, up to a million, and the newest 1000, oldest first."""
    total, events = await parts.histories.events(user_id, HISTORY_LIMIT)
    return json_response({"user_id": user_id, "total": total, "events": [*map(_shown, events)]})


@router.delete("/users/{user_id}")
async def forget(user_id: UserId, parts: Parts) -> Response:
    """Delete all stored events of a user, and within hours the answers of the log of answers.

    Very many events may take longer than the time limit; retry after a 503 to continue.
    """
    if parts.answer_log is not None:
        await parts.answer_log.forget(user_id)
    return json_response({"user_id": user_id, "deleted": await parts.histories.forget(user_id)})


async def _move_sessions(events: Sequence[EventBody], store: HistoryStore) -> Moved:
    """Move the stored events of each session to the first user that it comes with."""
    users: dict[str, str] = {}
    for event in events:
        if event.stranger is not None and event.user_id is not None:
            users.setdefault(event.stranger, str(event.user_id))
    if not users:
        return Moved(0, 0)
    newest = await store.recent(list(users), 1)
    moved = [await store.move(session, user) for session, user in users.items() if newest[session].items]
    return Moved(sum(counts.new for counts in moved), sum(counts.known for counts in moved))


def _count_outcomes(events: Sequence[Event], manifest: Manifest | None, metrics: Metrics) -> None:
    """Count the events that name an answer, by kind; only kinds of the live version are labels."""
    kinds = manifest.kinds if manifest else {}
    for event in events:
        if event.answer_id is not None:
            metrics.outcome_events.labels(event.kind if event.kind in kinds else OTHER_KIND).inc()


def _check_kinds(events: Sequence[Event], manifest: Manifest) -> None:
    kinds = (event.kind for event in events)
    if wrong := unknown_kinds("events.{}.kind", kinds, manifest, manifest.kinds):
        raise first_with_others(wrong)


def _kind_warning(events: Sequence[Event], manifest: Manifest) -> str | None:
    """A sentence on the events of kinds that the data of the version leaves out; None if there are none."""
    used = [name for name, kind in manifest.kinds.items() if kind.role != "ignored"]
    left_out = sum((event.kind or manifest.default_kind) not in used for event in events)
    if not manifest.kinds or not left_out:
        return None
    return (
        f"{left_out} of {len(events)} events have no kind, or one that training leaves out; send as kind "
        f"one of {', '.join(used)}"
    )


def _shown(event: Event) -> dict[str, Any]:
    """An event as it was sent, with the id of its answer if it has one."""
    shown = {
        "event_id": event.event_id,
        "item_id": event.item,
        "time": show_time(event.time),
        "kind": event.kind,
    }
    return shown if event.answer_id is None else shown | {"answer_id": event.answer_id}


def _event(body: EventBody, now: int) -> Event:
    user = body.stranger if body.user_id is None else str(body.user_id)
    assert user is not None, "an event has a user or a session"
    time_of = now if body.time is None else body.time
    kind = (body.kind or "").strip() or None
    return Event(str(body.event_id), user, body.item_id, time_of, kind, body.answer_id)
