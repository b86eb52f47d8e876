"""Everything a running service holds, and the one way in which it recommends."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import orjson
from fastapi import Request
from starlette.types import Scope

from service.activation import Activator
from service.admin_key import admin_key
from service.answering import Answer, Stages, recommend
from service.board import Board
from service.cursor import read_cursor
from service.errors import HistoryUnavailableError
from service.history.breaker import Breaker
from service.history.contract import Event
from service.history.opening import guarded, open_store
from service.metrics import Metrics
from service.questions import Question, question
from service.schemas import RecommendRequest
from service.seat import Seat
from service.settings import Settings
from service.shadow import Shadow
from service.slot import Live, Slot

# An answer of more items takes longer to write than most take to be found.
LONG_K = 100


class State:
    """The slot, the store and the metrics of one application.

    Raises ServiceError or BundleError when the bundles can't be served or the histories can't be kept.
    """

    def __init__(self, settings: Settings, seat: Seat | None = None) -> None:
        self.settings = settings
        self.seat = seat or Seat(Board())
        self.slot = Slot(settings.bundles, settings.wait, self.seat.board, self.seat.number)
        self.activator = Activator(
            self.slot, settings, lambda request: self.seat.run_gate(request, settings.gate_seconds)
        )
        self.admin_key = admin_key(settings)
        self.store: Breaker = guarded(open_store(settings), settings)
        self.metrics = Metrics(lambda: self.slot.version)
        self.shadow = Shadow(self.slot, self.metrics, settings.shadow_queue)
        # Ranking beside the event loop keeps probes and small requests quick while a large batch is ranked.
        self._ranking = ThreadPoolExecutor(settings.ranking_threads, "ranking")

    async def recommend_one(self, request: RecommendRequest, scope: Scope) -> bytes:
        """Answer a request in JSON. It is ranked in the event loop, as that is shorter than a thread's turn.

        What takes long all the same is ranked beside the loop: see `_is_long`.
        """
        facts = scope.setdefault("turret", {})
        live = await self._live_for(request, facts.get("request_id"))
        stages: Stages = {}
        begun = time.perf_counter()
        questions = await self._questions([request], time.time_ns() // 1_000_000)
        stages["history"] = time.perf_counter() - begun
        if _is_long(request):
            (answer,) = await self._beside(live, questions, stages)
        else:
            (answer,) = recommend(live, questions, stages)
        facts |= {"stages": stages, "version": live.version}
        if self.shadow.wants() and request.cursor is None:
            self.shadow.offer(_ids(answer), lambda shadow: _ids(recommend(shadow, questions)[0]))
        return orjson.dumps(answer)

    async def recommend(self, requests: Sequence[RecommendRequest]) -> list[Answer]:
        """Answer requests, all from one bundle. Raises EncodingError with the position of the faulty one."""
        needed = dict.fromkeys(one.min_version for one in requests if one.min_version is not None)
        for version in needed:
            await self.slot.live_at_least(version, self.settings.min_version_seconds)
        live = self.slot.live
        return await self._beside(live, await self._questions(requests, time.time_ns() // 1_000_000), {})

    async def _live_for(self, request: RecommendRequest, request_id: str | None) -> Live:
        """Choose the version: new enough, if that is asked for; that of the page before; else by the user."""
        if request.min_version is not None:
            return await self.slot.live_at_least(request.min_version, self.settings.min_version_seconds)
        if self.slot.routed.canary is None:
            return self.slot.live
        if request.cursor is not None:
            return self.slot.serving(read_cursor(request.cursor).version) or self.slot.live
        return self.slot.choose(request_id if request.user_id is None else str(request.user_id))

    async def _beside(self, live: Live, questions: Sequence[Question], stages: Stages) -> list[Answer]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._ranking, recommend, live, questions, stages)

    async def close(self) -> None:
        """Finish what is under way."""
        await self.shadow.close()
        await self.store.close()
        await asyncio.to_thread(self._ranking.shutdown)

    async def _questions(self, requests: Sequence[RecommendRequest], now: int) -> list[Question]:
        users = {str(one.user_id) for one in requests if one.history is None and one.user_id is not None}
        stored, degraded = await self._stored(sorted(users))
        return [question(one, stored.get(str(one.user_id), ()), degraded, now) for one in requests]

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


def _ids(answer: Answer) -> list[int | str]:
    return [item["id"] for item in answer["items"]]


def _is_long(request: RecommendRequest) -> bool:
    """Whether an answer may take so long that others should not wait for it."""
    return request.explain or request.k > LONG_K or not request.is_in_order
