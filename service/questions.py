"""Requests with the histories that count for them."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.cursor import Cursor, read_cursor
from service.history.contract import Event
from service.schemas import RecommendRequest


@dataclass(frozen=True)
class Question:
    """A request with the history that counts for it, and what had to be done without.

    `times`, if they are known, and `asked` are in milliseconds since 1970: when the items of the history were
    used, and for when the answer is asked. `after` is where the page before ended.
    """

    request: RecommendRequest
    history: Sequence[int | str]
    times: Sequence[int] | None
    asked: int
    degraded: tuple[str, ...] = ()
    after: Cursor | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the stored history of a user counts."""
        return self.request.history is None and self.request.user_id is not None


def question(
    request: RecommendRequest, stored: Sequence[Event], degraded: tuple[str, ...], now: int
) -> Question:
    """Choose the history: the one that was sent, else the `stored` events of the user, oldest first.

    A page that follows another one counts what was stored until the first was asked for.
    """
    after = None if request.cursor is None else read_cursor(request.cursor)
    now = after.asked if after and after.asked else now
    asked = now if request.at is None else request.at
    if request.history is not None:
        return Question(request, request.history, request.history_times, asked, (), after)
    if request.user_id is None:
        return Question(request, (), None, asked, (), after)
    if after is not None:
        stored = [event for event in stored if event.time <= after.asked]
    history, times = [event.item for event in stored], [event.time for event in stored]
    return Question(request, history, times, asked, degraded, after)
