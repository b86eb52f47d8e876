"""A shadow version answers a share of the requests unseen, for comparison with the real answers."""

import asyncio
import random
from collections.abc import Callable, Sequence

from turret.service.observing.metrics import Metrics
from turret.service.versions.gate import overlap_between
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel

Ids = Sequence[int | str]
Answer = Callable[[LoadedModel], Ids]


class Shadow:
    """Lets the shadow answer its share of the requests, one at a time, in a thread.

    At most `limit` requests wait; more are dropped and counted. Its failures don't affect any response.
    """

    def __init__(self, model_holder: ModelHolder, metrics: Metrics, limit: int = 100) -> None:
        self._model_holder = model_holder
        self._metrics = metrics
        self._waiting: asyncio.Queue[tuple[LoadedModel, Ids, Answer]] = asyncio.Queue(limit)
        self._answering: asyncio.Task[None] | None = None

    def wants(self) -> bool:
        """Draw whether the shadow answers the current request."""
        traffic = self._model_holder.traffic
        share = traffic.routes.shadow.share if traffic.shadow and traffic.routes.shadow else 0.0
        return share > 0.0 and random.random() < share

    def offer(self, ids: Ids, answer: Answer) -> None:
        """Queue a request that was answered with `ids`; `answer` gives the ids of the shadow, in a thread."""
        shadow = self._model_holder.traffic.shadow
        if shadow is None:
            return
        if self._answering is None or self._answering.done():
            self._answering = asyncio.get_running_loop().create_task(self._answer_all())
        try:
            self._waiting.put_nowait((shadow, ids, answer))
        except asyncio.QueueFull:
            self._metrics.shadow_answers.labels("dropped").inc()

    async def close(self) -> None:
        """Drop the waiting requests."""
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)

    async def _answer_all(self) -> None:
        while True:
            shadow, ids, answer = await self._waiting.get()
            try:
                await self._model_holder.prepare(shadow.bundle)
                shadow_ids = await asyncio.to_thread(answer, shadow)
            except Exception:  # counted: a failing shadow is not a fault of the service
                self._metrics.shadow_answers.labels("failed").inc()
            else:
                self._metrics.shadow_answers.labels("answered").inc()
                self._metrics.shadow_overlap.observe(overlap_between(ids, shadow_ids))
