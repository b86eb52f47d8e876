"""`GET` and `DELETE /v1/users/{id}`, and `GET /v1/random-user`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response

from turret.data.vocabulary import ID_LENGTH
from turret.service.errors import NotFoundError
from turret.service.http.routes.dependencies import Parts
from turret.service.http.routes.path_ids import check_utf8
from turret.service.http.routes.responses import (
    ForgottenAnswer,
    RandomUserAnswer,
    UserAnswer,
    answers,
    json_response,
)
from turret.service.schemas.fields import HISTORY_LIMIT
from turret.service.schemas.times import show_time
from turret.service.stores.contract import Event

UserId = Annotated[str, Path(min_length=1, max_length=ID_LENGTH)]
router = APIRouter(prefix="/v1", tags=["users"], dependencies=[Depends(check_utf8("user_id"))])


@router.get("/random-user", responses=answers(RandomUserAnswer, 404))
async def random_user(parts: Parts) -> Response:
    """Return the id of some user with stored events, to look at an example."""
    user = await parts.histories.random_user()
    if user is None:
        message = "no user with stored events found; send some with POST /v1/events or `turret history load`"
        raise NotFoundError("user_id", None, message)
    return json_response({"user_id": user})


@router.get("/users/{user_id:id}", responses=answers(UserAnswer))
async def stored_of(user_id: UserId, parts: Parts) -> Response:
    """Show the stored events of a user: their number, up to a million, and the newest 1000, oldest first."""
    total, events = await parts.histories.events(user_id, HISTORY_LIMIT)
    answer = {"user_id": user_id, "total": total, "events": [_shown(event) for event in events]}
    return json_response(answer)


@router.delete("/users/{user_id:id}", responses=answers(ForgottenAnswer))
async def forget(user_id: UserId, parts: Parts) -> Response:
    """Delete all stored events of a user.

    Very many events may take longer than the time limit; retry after a 503 to continue.
    """
    return json_response({"user_id": user_id, "deleted": await parts.histories.forget(user_id)})


def _shown(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "item_id": event.item,
        "time": show_time(event.time),
        "kind": event.kind,
    }
