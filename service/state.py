"""Everything a running service holds, and the one way in which it recommends."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import Request

from service.admin_key import admin_key
from service.answering import Answer, Question, recommend
from service.errors import HistoryUnavailableError
from service.history.contract import Event, HistoryStore
from service.history.opening import open_store
from service.observation import Observation
from service.schemas import RecommendRequest
from service.settings import Settings
from service.slot import Slot

Result = TypeVar("Result")


class State:
    """The slot, the store and what is noted of one application.

    Raises ServiceError or BundleError when the bundles can't be served or the histories can't be kept.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.slot = Slot(settings.bundles, settings.wait)
        self.admin_key = admin_key(settings)
        self.store: HistoryStore = open_store(settings.store)
        self.observation = Observation(settings, lambda: self.slot.live if self.slot.version else None)
        self.metrics = self.observation.metrics
        # Ranking beside the event loop keeps probes and small requests quick while a large batch is ranked.
        self._ranking = ThreadPoolExecutor(settings.ranking_threads, "ranking")

    async def recommend(self, requests: Sequence[RecommendRequest]) -> list[Answer]:
        """Answer requests, all from one bundle. Raises EncodingError with the position of the faulty one."""
        live = self.slot.live
        questions = await self._questions(requests, time.time_ns() // 1_000_000)
        return await asyncio.get_running_loop().run_in_executor(self._ranking, recommend, live, questions)

    async def ask_store(self, call: Awaitable[Result]) -> Result:
        """Wait for the store. Raises HistoryUnavailableError when it can't do it, or not in time."""
        try:
            async with asyncio.timeout(self.settings.write_timeout):
                return await call
        except TimeoutError:
            seconds = self.settings.write_timeout
            raise HistoryUnavailableError(f"the store didn't answer within {seconds} seconds") from None

    async def close(self) -> None:
        """Finish what is under way."""
        await self.store.close()
        await asyncio.to_thread(self._ranking.shutdown)
        await self.observation.close()

    async def _questions(self, requests: Sequence[RecommendRequest], now: int) -> list[Question]:
        users = {str(one.user_id) for one in requests if one.history is None and one.user_id is not None}
        stored, degraded = await self._stored(sorted(users))
        return [_question(request, stored, degraded, now) for request in requests]

    async def _stored(self, users: Sequence[str]) -> tuple[dict[str, list[Event]], tuple[str, ...]]:
        """Read the users' histories, or do without them."""
        if not users:
            return {}, ()
        try:
            async with asyncio.timeout(self.settings.history_timeout):
                return await self.store.recent(users, self.settings.stored_history_limit), ()
        except (HistoryUnavailableError, TimeoutError):
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
