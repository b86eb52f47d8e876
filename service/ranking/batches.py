"""Answers queries by one version, stage by stage; queries that arrive together are answered together."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from turret.data.vocabulary import Id
from turret.service.answer_log.entries import ShownItems
from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.answers import Answer, answer_of, record_of
from turret.service.ranking.explaining import explain, without_each
from turret.service.ranking.exploring import explore
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import Query
from turret.service.ranking.resolving import encode, resolve
from turret.service.ranking.searching import rank
from turret.service.versions.holder import LoadedModel
from turret.tower.bundle.bundle import Bundle

Stages = dict[str, float]
RecordAnswers = Callable[[Bundle, Sequence[AnswerRecord]], None]


# Processor time of an answer in the event loop. One of 27,000 items takes some .1 ms; an exact search of a
# million, or a large user tower, takes more than this: those run in a thread.
LOOP_SECONDS = 0.005
# A batch may take longer: all of its requests wait anyway, and in a large one each takes less.
_BATCH_SECONDS, _LARGEST_BATCH = 0.02, 16
_WEIGHT = 0.1  # of each answer in the mean
# Reading the clock of a thread is a system call, which can cost a tenth of an answer.
_FIRST, _SHARE = 16, 1 / 32


class LatencyEstimate:
    """The moving average of the processor time that one version's answers take.

    It decides which answers the event loop ranks, and how many at a time. Thread time counts, as on a busy
    machine every answer seems slow.
    """

    __slots__ = ("_samples", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._samples = 0

    @property
    def wants_sample(self) -> bool:
        """Whether to time the next answer: the first ones, all while they are slow, else a share of them."""
        return self._samples < _FIRST or self.seconds > LOOP_SECONDS or random.random() < _SHARE

    def add(self, seconds: float) -> None:
        """Add the processor time of an answer, from any thread."""
        self._samples += 1
        self.seconds += (seconds - self.seconds) * (_WEIGHT if self.seconds else 1.0)

    @property
    def batch_size(self) -> int:
        """How many answers fit into one batch; one until the first is timed."""
        return max(1, min(_LARGEST_BATCH, int(_BATCH_SECONDS / self.seconds))) if self.seconds else 1


_latencies: WeakKeyDictionary[Bundle, LatencyEstimate] = WeakKeyDictionary()


def latency_of(model: LoadedModel) -> LatencyEstimate:
    """The estimate of the latency of a version's answers in this process."""
    return _latencies.setdefault(model.bundle, LatencyEstimate())


def recommend(
    model: LoadedModel,
    fresh: FreshItems,
    queries: Sequence[Query],
    stages: Stages | None = None,
    records: list[AnswerRecord] | None = None,
) -> list[Answer]:
    """Answer every query: by the towers if any item of its history is known, else by popularity.

    A query that is `similar_to` an item is answered by the item's vector. The function does no I/O.

    Adds the seconds of each stage to `stages`, and a record of each recommendation to `records`. Raises
    RequestError for fields that the version can't read, and EncodingError for features whose vector is not
    finite; both have the position of the query.
    """
    stages, view = {} if stages is None else stages, ItemView(model.bundle, fresh)
    begun = perf_counter()
    resolve(queries, view)
    resolved = perf_counter()
    encode(queries, model, view)
    encoded = perf_counter()
    ranked = list(zip(queries, rank(queries, model, view), strict=True))
    usual = ranked
    if any(query.explorer is not None for query in queries):
        ranked = [(query, explore(query, ranking, model, view)) for query, ranking in ranked]
    searched = perf_counter()
    if records is not None:
        records += [record_of(*pair, fresh) for pair in usual if pair[0].similar_to is None]
    for query, ranking in ranked:
        first = 1 if query.after is None else 1 + query.after.shown
        chances = None if query.explored is None else query.explored.propensities
        query.shown = ShownItems(fresh, ranking.rows, ranking.scores, query.source, first, chances)
    answers = [answer_of(*pair, view) for pair in ranked]
    stages |= {
        "rows": resolved - begun,
        "encode": encoded - resolved,
        "search": searched - encoded,
        "answer": perf_counter() - searched,
    }
    for answer, (query, ranking) in zip(answers, ranked, strict=True):
        if query.request.explain:
            shorter = without_each(query)
            encode([*shorter.values()], model, view)
            took = {stage: round(seconds * 1e3, 4) for stage, seconds in stages.items()}
            answer["explanation"] = {**explain(view, query, ranking, shorter), "milliseconds": took}
    return answers


def vectors_of(
    model: LoadedModel,
    fresh: FreshItems,
    items: Sequence[Id],
    queries: Sequence[Query],
    missing: Sequence[str] = (),
) -> Answer:
    """The vectors of items and queries, and the rule that makes a score of them; raises as `recommend`."""
    view, scoring = ItemView(model.bundle, fresh), model.bundle.manifest.scoring
    resolve(queries, view)
    encode(queries, model, view)
    rows = [fresh.row(item) for item in items]
    known = view.vectors(np.array([row for row in rows if row is not None], dtype=np.int64))
    vectors = iter(known.tolist())
    degraded = dict.fromkeys([*missing, *(part for query in queries for part in query.degraded)])
    return {
        "version": model.version,
        "normalised": scoring.kind == "cosine" and not scoring.pairs,
        "temperature": scoring.temperature,
        "absolute": scoring.absolute,
        "item_bias": scoring.item_bias,
        "items": [
            {"id": item, "vector": None if row is None else next(vectors)}
            for item, row in zip(items, rows, strict=True)
        ],
        "requests": [None if query.vector is None else query.vector.tolist() for query in queries],
        "degraded": [*degraded],
    }


def recommend_timed(
    model: LoadedModel,
    fresh: FreshItems,
    queries: Sequence[Query],
    stages: Stages,
    records: list[AnswerRecord],
) -> list[Answer]:
    """Like `recommend`, but samples latency into the estimate of its version."""
    latency = latency_of(model)
    if not latency.wants_sample:
        return recommend(model, fresh, queries, stages, records)
    begun = time.thread_time()
    answers = recommend(model, fresh, queries, stages, records)
    latency.add((time.thread_time() - begun) / len(queries))
    return answers


class _Waiting(NamedTuple):
    model: LoadedModel
    fresh: FreshItems
    query: Query
    answer: "asyncio.Future[tuple[Answer, Stages]]"


class MicroBatcher:
    """Answers requests that arrive in one iteration of the event loop together, stage by stage.

    An answer runs through four libraries and megabytes of vectors, and each stage evicts the data of the
    others from the processor's caches. With 16 connections a batch has about twelve requests; stage by stage,
    each costs a third less than alone. No request waits for others: a batch has the requests that the loop
    has read, and a lone request is a batch of its own. `record` receives the records of each batch.
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
            loop.call_soon(self._run_batch, True)
        return await waiting.answer

    def _run_batch(self, is_first: bool = False) -> None:
        """Answer the queries that share a version with the first; the others go into the next batch.

        If several queries wait for the first batch, it begins one turn of the loop later, with the queries
        that arrived while these were being read.
        """
        loop = asyncio.get_running_loop()
        if is_first and len(self._waiting) > 1:
            loop.call_soon(self._run_batch)
            return
        waiting = [entry for entry in self._waiting if not entry.answer.done()]  # some are cancelled
        if not waiting:
            self._waiting = []
            return
        model, fresh = waiting[0].model, waiting[0].fresh
        size = latency_of(model).batch_size
        batch: list[_Waiting] = []
        left: list[_Waiting] = []
        for entry in waiting:
            fits = entry.model is model and entry.fresh is fresh and len(batch) < size
            (batch if fits else left).append(entry)
        self._waiting = left
        if left:
            loop.call_soon(self._run_batch)
        self._answer(batch)

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        model, stages, records = batch[0].model, Stages(), list[AnswerRecord]()
        try:
            queries = [entry.query for entry in batch]
            answers = recommend_timed(model, batch[0].fresh, queries, stages, records)
            self._record(model.bundle, records)  # inside of `try`: every caller gets an answer or an error
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for entry in batch:  # one of the queries has caused the error
                self._answer([entry])
            return
        shares = {stage: seconds / len(batch) for stage, seconds in stages.items()}
        for entry, answer in zip(batch, answers, strict=True):
            entry.answer.set_result((answer, shares))
