"""Requests that arrive in one iteration of the event loop are answered together, stage by stage.

An answer runs through four libraries and megabytes of vectors, and each stage evicts the data of the others
from the processor's caches. With 16 connections a batch has about twelve requests; stage by stage, each costs
a third less than alone. No request waits for others: a batch has the requests that the loop has read, and a
lone request is a batch of its own.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from turret.service.errors import RequestError
from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.answers import Answer, Stages, recommend
from turret.service.ranking.query import Query
from turret.service.versions.loaded_model import LoadedModel
from turret.tower.bundle.bundle import Bundle
from turret.tower.errors import EncodingError

RecordAnswers = Callable[[Bundle, Sequence[AnswerRecord]], None]


class _Waiting(NamedTuple):
    model: LoadedModel
    fresh: FreshItems
    query: Query
    answer: "asyncio.Future[tuple[Answer, Stages]]"


class MicroBatcher:
    """Collects queries, and answers them once the event loop has started those that arrived with them.

    `record` receives the records of each batch.
    """

    def __init__(self, record: RecordAnswers) -> None:
        self._record = record
        self._waiting: list[_Waiting] = []

    async def answer(self, model: LoadedModel, fresh: FreshItems, query: Query) -> tuple[Answer, Stages]:
        """Answer a query; also return its share of the seconds of each stage. Raises as `recommend`."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(model, fresh, query, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        return await waiting.answer

    def _begin(self) -> None:
        """Start a batch; if several wait, after those that arrived while these were being read."""
        if len(self._waiting) > 1:
            asyncio.get_running_loop().call_soon(self._run_batch)
        else:
            self._run_batch()

    def _run_batch(self) -> None:
        """Answer the queries that share a version with the first; the others go into the next batch."""
        waiting = [entry for entry in self._waiting if not entry.answer.done()]  # else cancelled
        if not waiting:
            self._waiting = []
            return
        model, fresh = waiting[0].model, waiting[0].fresh
        size = model.latency.batch_size
        batch: list[_Waiting] = []
        left: list[_Waiting] = []
        for entry in waiting:
            fits = entry.model is model and entry.fresh is fresh and len(batch) < size
            (batch if fits else left).append(entry)
        self._waiting = left
        if left:
            asyncio.get_running_loop().call_soon(self._run_batch)
        self._answer(batch)

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        model, stages, records = batch[0].model, Stages(), list[AnswerRecord]()
        try:
            queries = [entry.query for entry in batch]
            answers = recommend_timed(model, batch[0].fresh, queries, stages, records)
            self._record(model.bundle, records)  # inside: every caller gets an answer or an error
        except Exception as error:
            for others in self._without_faulty(batch, error):
                self._answer(others)
            return
        shares = {stage: seconds / len(batch) for stage, seconds in stages.items()}
        for entry, answer in zip(batch, answers, strict=True):
            entry.answer.set_result((answer, shares))

    def _without_faulty(self, batch: Sequence[_Waiting], error: Exception) -> list[list[_Waiting]]:
        """Raise an error in the query that caused it, and return the batches to answer again."""
        names_query = isinstance(error, RequestError | EncodingError)
        position = 0 if len(batch) == 1 else error.position if names_query else None  # type: ignore[attr-defined]
        if position is None:
            return [[entry] for entry in batch]
        batch[position].answer.set_exception(error)
        others = [*batch[:position], *batch[position + 1 :]]
        return [others] if others else []


def recommend_timed(
    model: LoadedModel,
    fresh: FreshItems,
    queries: Sequence[Query],
    stages: Stages,
    records: list[AnswerRecord],
) -> list[Answer]:
    """Like `recommend`, but samples latency into the estimate of its version."""
    if not model.latency.wants_sample():
        return recommend(model, fresh, queries, stages, records)
    begun = time.thread_time()
    answers = recommend(model, fresh, queries, stages, records)
    model.latency.add((time.thread_time() - begun) / len(queries))
    return answers
