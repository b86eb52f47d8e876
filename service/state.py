"""Everything a running service holds, and the one way in which it recommends."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fastapi import Request

from service.admin_key import admin_key
from service.answering import Answer, Question, recommend
from service.errors import HistoryUnavailableError
from service.history.breaker import Breaker
from service.history.contract import Event
from service.history.opening import guarded, open_store
from service.metrics import Metrics
from service.schemas import RecommendRequest
from service.settings import Settings
from service.slot import Slot


class State:
    """The slot, the store and the metrics of one application.

    Raises ServiceError or BundleError when the bundles can't be served or the histories can't be kept.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.slot = Slot(settings.bundles, settings.wait)
        self.admin_key = admin_key(settings)
        self.store: Breaker = guarded(open_store(settings), settings)
        self.metrics = Metrics(lambda: self.slot.version)
        # Ranking beside the event loop keeps probes and small requests quick while a large batch is ranked.
        self._ranking = ThreadPoolExecutor(settings.ranking_threads, "ranking")

    async def recommend(self, requests: Sequence[RecommendRequest]) -> list[Answer]:
        """Answer requests, all from one bundle. Raises EncodingError with the position of the faulty one."""
        live = self.slot.live
        questions = await self._questions(requests, time.time_ns() // 1_000_000)
        return await asyncio.get_running_loop().run_in_executor(self._ranking, recommend, live, questions)

    async def close(self) -> None:
        """Finish what is under way."""
        await self.store.close()
        await asyncio.to_thread(self._ranking.shutdown)

    async def _questions(self, requests: Sequence[RecommendRequest], now: int) -> list[Question]:
        users = {str(one.user_id) for one in requests if one.history is None and one.user_id is not None}
        stored, degraded = await self._stored(sorted(users))
        return [_question(request, stored, degraded, now) for request in requests]

    async def _stored(self, users: Sequence[str]) -> tuple[dict[str, list[Event]], tuple[str, ...]]:
        """Read the users' histories, or do without them."""
        if not users:
            return {}, ()
        try:
            return await self.store.recent(users, self.settings.stored_history_limit), ()
        except HistoryUnavailableError:
            return {}, ("history",)


def state_of(request: Request) -> State:
    """Return the state of the application that a request came to."""
    state: State = request.app.state.service
    return state


def _question(
    request: RecommendRequest, stored: dict[str, list[Event]], degraded: tuple[str, ...], now: int
) -> Question:
    asked = now if request.at is None else request.at
    if request.history is not None:
        return Question(request, request.history, request.history_times, asked)
    if request.user_id is None:
        return Question(request, (), None, asked)
    events = stored.get(str(request.user_id), ())
    history, times = [event.item for event in events], [event.time for event in events]
    return Question(request, history, times, asked, degraded)
