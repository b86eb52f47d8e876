"""Answers requests: chooses the version, reads histories, and decides where the ranking runs."""

import asyncio
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_bytes

import orjson

from turret.data.answers.form import CANARY, LIVE, answer_id_of
from turret.data.vocabulary import Id
from turret.service.answer_log.entries import AnswerSink, LoggedAnswer, context_of
from turret.service.observing.metrics import Metrics
from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.popular.popular_now import PopularNow
from turret.service.ranking.answers import Answer, ids_of
from turret.service.ranking.batches import (
    LOOP_SECONDS,
    MicroBatcher,
    RecordAnswers,
    Stages,
    latency_of,
    recommend,
    recommend_timed,
    vectors_of,
)
from turret.service.ranking.exploration import Explorer
from turret.service.ranking.item_view import item_status
from turret.service.ranking.query import Query, QueryReader, at_position
from turret.service.request_record import RequestRecord
from turret.service.schemas.fields import read_cursor
from turret.service.schemas.requests import PopularRequest, RecommendRequest, SimilarRequest
from turret.service.stores.contract import now_ms
from turret.service.versions.holder import LoadedModel, ModelHolder
from turret.tower.bundle.golden import overlap_between

_WAITING_THREADS = 16
# Threads for long answers, and for batches. With two threads that have many short answers each, the event
# loop gets the interpreter back after twice as long.
_RANKING_THREADS, _BATCH_THREADS = 2, 1
_LOOP_SCAN = 200_000  # items that a filter reads in a millisecond or two
_MIN_VERSION_SECONDS = 1.0  # to wait until this worker has loaded the `min_version` of a request


class Shadow:
    """Lets the shadow answer its share of the requests, one at a time, in a thread.

    At most `limit` requests wait; more are dropped and counted. No failure of the shadow affects a response.
    """

    def __init__(
        self, model_holder: ModelHolder, overlay: ItemOverlayCache, metrics: Metrics, limit: int = 100
    ) -> None:
        self._model_holder = model_holder
        self._overlay = overlay
        self._metrics = metrics
        self._waiting: asyncio.Queue[tuple[LoadedModel, Query, Answer]] = asyncio.Queue(limit)
        self._answering: asyncio.Task[None] | None = None

    def offer(self, query: Query, answer: Answer) -> None:
        """Draw whether the shadow answers an answered query too; if so, queue the query."""
        shadow, route = self._model_holder.traffic.shadow, self._model_holder.traffic.routes.shadow
        if shadow is None or route is None or random.random() >= route.share:
            return
        if self._answering is None or self._answering.done():
            self._answering = asyncio.get_running_loop().create_task(self._answer_all())
        try:
            self._waiting.put_nowait((shadow, query, answer))
        except asyncio.QueueFull:
            self._metrics.shadow_answers.labels("dropped").inc()

    async def close(self) -> None:
        """Drop the waiting requests."""
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)

    async def _answer_all(self) -> None:
        while True:
            shadow, query, answer = await self._waiting.get()
            try:
                fresh = await self._overlay.of(shadow.bundle)
                (other,) = await asyncio.to_thread(recommend, shadow, fresh, [query])
            except Exception:  # counted: a failing shadow is not a fault of the service
                self._metrics.shadow_answers.labels("failed").inc()
            else:
                self._metrics.shadow_answers.labels("answered").inc()
                self._metrics.shadow_overlap.observe(overlap_between(ids_of(answer), ids_of(other)))


class Recommender:
    """Answers requests from the live version, the canary, and the items put and withdrawn since.

    Short answers are ranked in the event loop, in batches: that is quicker than handing them to a thread.
    Long ones are ranked in threads, so that probes and short requests don't wait for them. `record` receives
    the records of every answer, in the event loop's thread. `answer_log` receives the answers, with the
    features of their requests that `context` names.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        overlay: ItemOverlayCache,
        queries: QueryReader,
        shadow: Shadow,
        record: RecordAnswers,
        popular: PopularNow,
        explorer: Explorer,
    ) -> None:
        self._model_holder = model_holder
        self._overlay = overlay
        self._queries = queries
        self._popular = popular
        self._shadow = shadow
        self._record = record
        self._explorer = explorer
        self.answer_log: AnswerSink | None = None
        self.context: Sequence[str] = ()
        self._batcher = MicroBatcher(record)
        self._threads = ThreadPoolExecutor(_RANKING_THREADS, "ranking")
        self._batch_threads = ThreadPoolExecutor(_BATCH_THREADS, "batches")
        # These threads wait for another process; only as many start as are needed.
        self._waiting_threads = ThreadPoolExecutor(_WAITING_THREADS, "waiting")

    async def recommend_one(self, request: RecommendRequest, record: RequestRecord) -> bytes:
        """Answer a request in JSON; its id chooses the version of requests without a user.

        The stages, the version and the missing parts go into `record`.
        """
        model = await self._model_for(request, record.request_id)
        begun = time.perf_counter()
        query = await self._queries.read(request, model, record.received)
        self._explore(model, query)
        record.stages["history"] = time.perf_counter() - begun
        answer = await self._answered(model, query, record.stages)
        self._enter("search" if request.is_search else "recommend", answer, model, query, record)
        record.version, record.degraded = model.version, answer["degraded"]
        record.source = query.source
        if self._model_holder.traffic.shadow is not None and request.cursor is None:
            query.explorer = None
            self._shadow.offer(query, answer)
        return orjson.dumps(answer)

    async def recommend(self, requests: Sequence[RecommendRequest], record: RequestRecord) -> list[Answer]:
        """Answer a batch from one version. An error has the position of its request."""
        for position, request in enumerate(requests):
            if request.min_version is not None:
                with at_position(position):
                    await self._model_holder.live_at_least(request.min_version, _MIN_VERSION_SECONDS)
        model = self._model_holder.answering
        queries = await self._queries.read_all(requests, model, now_ms())
        for query in queries:
            self._explore(model, query)
        fresh, missing = await self._overlay.for_answer(model.bundle)
        answers = await self._in_thread(self._batch_threads, model, fresh, queries, {})
        for answer, query in zip(answers, queries, strict=True):
            answer["degraded"] += missing
            self._enter("recommend", answer, model, query, record)
        return answers

    async def vectors(self, items: Sequence[Id], requests: Sequence[RecommendRequest]) -> Answer:
        """Give the vectors whose inner products are scores, of items and of the users of requests.

        None is the vector of an item, or of a history, that the version doesn't know. An error has the
        position of its request.
        """
        model = self._model_holder.answering
        queries = await self._queries.read_all(requests, model, now_ms())
        fresh, missing = await self._overlay.for_answer(model.bundle)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._batch_threads, vectors_of, model, fresh, items, queries, missing
        )

    async def similar_to(self, item: str, request: SimilarRequest, record: RequestRecord) -> Answer:
        """Answer with the nearest items of an item. Raises NotFoundError for an unknown item.

        These answers don't count for the quality of a version's recommendations.
        """
        recommendation = request.as_recommendation()
        model = await self._model_for(recommendation, None)
        query = await self._queries.read(recommendation, model, record.received)
        query.similar_to = item
        answer = await self._answered(model, query, {})
        self._enter("similar", answer, model, query, record)
        return answer

    async def popular(self, request: PopularRequest, record: RequestRecord) -> Answer:
        """Answer with the items that have the most events of late. Raises as `PopularNow.wanted`."""
        recommendation = request.as_recommendation()
        model = await self._model_for(recommendation, record.request_id)
        query = await self._queries.read(recommendation, model, record.received)
        query.counted = self._popular.wanted(
            request.half_life, request.kinds, request.trend, model.bundle.manifest
        )
        answer = await self._answered(model, query, record.stages)
        self._enter("popular", answer, model, query, record)
        record.version, record.degraded = model.version, answer["degraded"]
        record.source = query.source
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
        await asyncio.to_thread(self._batch_threads.shutdown)
        await asyncio.to_thread(self._waiting_threads.shutdown)

    async def _answered(self, model: LoadedModel, query: Query, stages: Stages) -> Answer:
        """Answer a query, in a thread if that takes long, and add its seconds to `stages`."""
        fresh, missing = await self._overlay.for_answer(model.bundle)
        if _is_long(model, fresh, query):
            # The thread goes on writing to this copy after the client has given up and `stages` are logged.
            shares = dict(stages)
            (answer,) = await self._in_thread(self._threads, model, fresh, [query], shares)
        else:
            answer, shares = await self._batcher.answer(model, fresh, query)
        stages |= shares
        answer["degraded"] += missing
        return answer

    def _explore(self, model: LoadedModel, query: Query) -> None:
        """Let a recommendation be explored, if the route of its version is: the live one, or the canary."""
        traffic = self._model_holder.traffic
        route = traffic.routes.canary if model is traffic.canary else traffic.routes
        query.explore = None if route is None else route.explore
        if query.explore is not None and not query.request.is_search and not query.request.explain:
            query.explorer = self._explorer

    def _enter(
        self,
        call: str,
        answer: Answer,
        model: LoadedModel,
        query: Query,
        record: RequestRecord,
    ) -> None:
        """Give an answer its id, of random bytes behind the time, and offer it to the log.

        So no id is made twice, also where a client repeats a request, and nobody can guess one.
        """
        time, request, shown = record.received, query.request, query.shown
        answer["answer_id"] = answer_id = answer_id_of(time, token_bytes(10))
        if self.answer_log is None or shown is None:
            return
        route = CANARY if model is self._model_holder.traffic.canary else LIVE
        user, context = next(iter(request.visitors), None), context_of(request.inputs, self.context)
        rules = tuple(query.rules)
        self.answer_log.offer(
            LoggedAnswer(answer_id, time, call, model.version, route, user, shown, context, rules)
        )

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
        self,
        threads: ThreadPoolExecutor,
        model: LoadedModel,
        fresh: FreshItems,
        queries: Sequence[Query],
        stages: Stages,
    ) -> list[Answer]:
        """Answer in a thread; only answers of usual size are samples of the version's latency."""
        loop = asyncio.get_running_loop()
        records: list[AnswerRecord] = []
        is_usual = len(queries) == 1 and not queries[0].is_large
        rank = recommend_timed if is_usual else recommend
        if model.bundle.manifest.index.is_remote:
            threads = self._waiting_threads
        answers = await loop.run_in_executor(threads, rank, model, fresh, queries, stages, records)
        self._record(model.bundle, records)
        return answers


def _is_long(model: LoadedModel, fresh: FreshItems, query: Query) -> bool:
    """Whether an answer may take too long for the event loop."""
    # The latency is processor time, which lacks the waits of a search in another process.
    if model.bundle.manifest.index.is_remote or latency_of(model).seconds > LOOP_SECONDS or query.is_large:
        return True
    if not query.request.filter and not query.request.boost and not query.rules:
        return False
    # The first answer to a filter compares it with every item.
    return len(model.bundle.vocabulary) + len(fresh) + len(fresh.replaced.by_row) > _LOOP_SCAN
