"""`POST /v1/events`."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from turret.service.http.routes.dependencies import Parts, reads
from turret.service.http.routes.responses import EventsAnswer, answers, body_of, json_response
from turret.service.schemas.requests import EventBody, EventsRequest
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.window import TimeWindow, days
from turret.tower.format.manifest import Manifest

router = APIRouter(prefix="/v1", tags=["events"])


@router.post("/events", responses=answers(EventsAnswer), openapi_extra=body_of(EventsRequest))
async def store_events(
    body: Annotated[EventsRequest, Depends(reads(EventsRequest))], parts: Parts
) -> Response:
    """Store events. Once acknowledged, they are stored and count for the user's next recommendation.

    `clamped` counts events whose time was out of the window and was changed, `expired` those older than the
    retention period; both are omitted if zero. `warning` counts events that training will leave out by their
    kind.
    """
    now = time.time_ns() // 1_000_000
    placed = _window(parts.settings).apply([_event(event, now) for event in body.events], now)
    stored = await parts.histories.append(placed.events)
    parts.metrics.events_stored.inc(stored)
    parts.metrics.event_duplicates.inc(len(placed.events) - stored)
    answer: dict[str, Any] = {"stored": stored, "duplicates": len(placed.events) - stored}
    answer |= {name: count for name in ("clamped", "expired") if (count := getattr(placed, name))}
    holder = parts.model_holder
    if holder.version and (warning := _kind_warning(placed.events, holder.live.bundle.manifest)):
        answer["warning"] = warning
    return json_response(answer)


def _kind_warning(events: Sequence[Event], manifest: Manifest) -> str | None:
    """A sentence on the events of kinds that the data of the version leaves out; None if there are none."""
    kinds = [(event.kind or "").strip() or manifest.default_kind for event in events]
    if not manifest.kinds or not (left_out := sum(kind not in manifest.kinds for kind in kinds)):
        return None
    return (
        f"{left_out} of {len(events)} events have no kind, or one that training leaves out; send as kind "
        f"one of {', '.join(manifest.kinds)}"
    )


def _window(settings: Settings) -> TimeWindow:
    return TimeWindow(round(settings.clock_skew * 1000), days(settings.keep_days))


def _event(body: EventBody, now: int) -> Event:
    time_of = now if body.time is None else body.time
    return Event(str(body.event_id), str(body.user_id), body.item_id, time_of, body.kind)
