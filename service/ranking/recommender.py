"""From requests to answers: chooses the version, reads histories, and decides where the ranking runs."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.answers import Answer, Stages, ids_of, recommend
from turret.service.ranking.item_view import item_status
from turret.service.ranking.micro_batcher import MicroBatcher, RecordAnswers, recommend_timed
from turret.service.ranking.query import Query, QueryReader, at_position
from turret.service.schemas.fields import read_cursor
from turret.service.schemas.requests import RecommendRequest, SimilarRequest
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel
from turret.service.versions.shadow import Shadow

_WAITING_THREADS = 16
_RANKING_THREADS = 2  # for long answers
# A longer answer takes longer to write than most take to be found; a longer history, to encode.
_LOOP_ITEMS, _LOOP_HISTORY = 100, 1_000
_MIN_VERSION_SECONDS = 1.0  # to wait until this worker has loaded the `min_version` of a request


class Recommender:
    """Answers requests from the live version, the canary, and the items put and withdrawn since.

    Short answers are ranked in the event loop, in batches: that is quicker than handing them to a thread.
    Long ones are ranked in threads, so that probes and short requests don't wait for them. `record` receives
    the records of every answer, in the event loop's thread.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        overlay: ItemOverlayCache,
        queries: QueryReader,
        shadow: Shadow,
        record: RecordAnswers,
    ) -> None:
        self._model_holder = model_holder
        self._overlay = overlay
        self._queries = queries
        self._shadow = shadow
        self._record = record
        self._batcher = MicroBatcher(record)
        self._threads = ThreadPoolExecutor(_RANKING_THREADS, "ranking")
        # These wait for another process; the interpreter starts as many as are needed.
        self._waiting_threads = ThreadPoolExecutor(_WAITING_THREADS, "waiting")

    async def recommend_one(self, request: RecommendRequest, facts: dict[str, Any]) -> bytes:
        """Answer a request in JSON.

        Stages in seconds, version and missing parts go into `facts`, whose `request_id` chooses the version
        of requests without a user.
        """
        model = await self._model_for(request, facts.get("request_id"))
        stages: Stages = facts.setdefault("stages", {})
        begun = time.perf_counter()
        query = await self._queries.read(request, model, _now())
        stages["history"] = time.perf_counter() - begun
        fresh, missing = await self._overlay.for_answer(model.bundle)
        if _is_long(model, fresh, query):
            # A copy: the thread goes on writing to it after the client has given up and `facts` are logged.
            shares = dict(stages)
            (answer,) = await self._in_thread(model, fresh, [query], shares)
        else:
            answer, shares = await self._batcher.answer(model, fresh, query)
        stages |= shares
        answer["degraded"] += missing
        facts |= {"version": model.version, "degraded": answer["degraded"]}
        if self._shadow.wants() and request.cursor is None:
            self._offer(query, answer)
        return orjson.dumps(answer)

    async def recommend(self, requests: Sequence[RecommendRequest]) -> list[Answer]:
        """Answer a batch from one version. An error has the position of its request."""
        for position, request in enumerate(requests):
            if request.min_version is not None:
                with at_position(position):
                    await self._model_holder.live_at_least(request.min_version, _MIN_VERSION_SECONDS)
        model = self._model_holder.answering
        queries = await self._queries.read_all(requests, model, _now())
        fresh, missing = await self._overlay.for_answer(model.bundle)
        answers = await self._in_thread(model, fresh, queries, {})
        for answer in answers:
            answer["degraded"] += missing
        return answers

    async def similar_to(self, item: str, request: SimilarRequest) -> Answer:
        """Answer with the nearest items of an item. Raises NotFoundError for an unknown one.

        These answers count neither for the quality nor for the latency of a version's recommendations.
        """
        asked = request.as_recommendation()
        model = self._model_holder.answering
        if asked.cursor is not None or asked.min_version is not None:
            model = await self._model_for(asked, None)
        query = (await self._queries.read(asked, model, _now()))._replace(similar_to=item)
        fresh, missing = await self._overlay.for_answer(model.bundle)
        if _is_long(model, fresh, query):
            loop, threads = asyncio.get_running_loop(), self._threads_of(model)
            (answer,) = await loop.run_in_executor(threads, recommend, model, fresh, [query])
        else:
            (answer,) = recommend(model, fresh, [query])
        answer["degraded"] += missing
        return answer

    async def item(self, item: str) -> Answer:
        """Describe an item as the live version and its overlay know it. Raises NotFoundError."""
        model, canary = self._model_holder.answering, self._model_holder.traffic.canary
        fresh, missing = await self._overlay.for_answer(model.bundle)
        return {**item_status(model, fresh, item, (canary,) if canary else ()), "degraded": missing}

    async def close(self) -> None:
        """Finish the answers under way."""
        await self._shadow.close()
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._waiting_threads.shutdown)

    def _threads_of(self, model: LoadedModel) -> ThreadPoolExecutor:
        return self._waiting_threads if model.bundle.manifest.index.is_remote else self._threads

    async def _model_for(self, request: RecommendRequest, request_id: str | None) -> LoadedModel:
        """Choose the version: by `min_version`, else that of the previous page, else by the user."""
        if request.min_version is not None:
            return await self._model_holder.live_at_least(request.min_version, _MIN_VERSION_SECONDS)
        if self._model_holder.traffic.canary is None:
            return self._model_holder.answering
        if request.cursor is not None:
            of_last_page = self._model_holder.serving(read_cursor(request.cursor).version)
            return of_last_page or self._model_holder.answering
        return self._model_holder.choose(next(iter(request.visitors), request_id))

    async def _in_thread(
        self, model: LoadedModel, fresh: FreshItems, queries: Sequence[Query], stages: Stages
    ) -> list[Answer]:
        """Answer in a thread; only answers of usual size are samples of the version's latency."""
        loop = asyncio.get_running_loop()
        records: list[AnswerRecord] = []
        is_usual = len(queries) == 1 and not _is_large(queries[0])
        rank = recommend_timed if is_usual else recommend
        threads = self._threads_of(model)
        answers = await loop.run_in_executor(threads, rank, model, fresh, queries, stages, records)
        self._record(model.bundle, records)
        return answers

    def _offer(self, query: Query, answer: Answer) -> None:
        """Let the shadow answer too, from its own bundle and overlay."""
        self._shadow.offer(
            ids_of(answer),
            lambda shadow: ids_of(recommend(shadow, self._overlay.last_read(shadow.bundle), [query])[0]),
        )


def _now() -> int:
    return time.time_ns() // 1_000_000


def _is_long(model: LoadedModel, fresh: FreshItems, query: Query) -> bool:
    """Whether an answer may take too long for the event loop."""
    if not query.request.filter and not query.rules:
        return model.latency.is_long() or _is_large(query)
    # The first answer to a filter compares it with every item.
    scanned = len(model.bundle.vocabulary) + len(fresh) + len(fresh.replaced.by_row)
    return model.latency.is_long(scanned) or _is_large(query)


def _is_large(query: Query) -> bool:
    """Whether an answer takes longer than most of its version."""
    request, shown = query.request, query.after.shown if query.after else 0
    is_many = request.k + shown > _LOOP_ITEMS or len(query.history) > _LOOP_HISTORY
    return request.explain or not request.is_in_order or is_many
