"""The comparison of a version with the live one: it is opened on request, and released later."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from turret.service.compare.opening import ComparedVersion
from turret.service.compare.overlap import measure_overlap, recorded_queries, stored_queries
from turret.service.compare.sides import Side, side_by_side
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.query import Query, QueryReader
from turret.service.schemas.requests import RecommendRequest
from turret.service.schemas.times import show_time
from turret.service.stores.contract import HistoryStore
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel

Result = TypeVar("Result")


class Comparison:
    """Compares one version at a time with the live one, for the whole service.

    Both rank in the `thread`, whose priority is low, so that no comparison delays requests. The item store
    has `overlay_seconds` to answer, then items may be missing.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        compared: ComparedVersion,
        overlay: ItemOverlayCache,
        queries: QueryReader,
        histories: HistoryStore,
        thread: ThreadPoolExecutor,
        overlay_seconds: float,
    ) -> None:
        self._model_holder = model_holder
        self._compared = compared
        self._overlay = overlay
        self._queries = queries
        self._histories = histories
        self._thread = thread
        self._overlay_seconds = overlay_seconds

    async def open(self, version: str) -> dict[str, Any]:
        """Open a version in place of any other, and describe the comparison. Raises as `ComparedVersion`."""
        await self._compared.opened(version)
        return self.state(version)

    def state(self, version: str | None = None) -> dict[str, Any]:
        """Describe the comparison; with a `version`, as if there were none unless it is of that one."""
        live, chosen = self._model_holder.version, self._compared.chosen(version)
        if chosen is None:
            return {"version": None, "live": live}
        return {
            "version": chosen.version,
            "live": live,
            "opened": show_time(chosen.opened),
            "expires_seconds": chosen.seconds,
        }

    async def end(self, version: str | None) -> dict[str, Any]:
        """End the comparison; with a `version`, only if it is of that one. All workers release it soon."""
        self._compared.clear(version)
        return self.state()

    async def recommend(self, request: RecommendRequest, version: str | None) -> dict[str, Any]:
        """Answer a request from both versions, with the same history."""
        live, other = await self._sides(version)
        query = await self._read(request, live, other)
        return await self._run(side_by_side, live, other, query)

    async def overlap(self, users: int, k: int, version: str | None) -> dict[str, Any]:
        """Measure the overlap over `users` stored users, or over recorded queries if none is stored."""
        live, other = await self._sides(version)
        source, queries = "users", await stored_queries(self._histories, users, k, _now())
        if not queries:
            source, queries = "golden", await self._run(recorded_queries, live.model.bundle, k, _now())
        measured = await measure_overlap(live, other, queries, self._thread)
        return {"version": other.model.version, "live": live.model.version, "source": source, **measured}

    async def close(self) -> None:
        """Finish the running call of the thread, and release the version."""
        await self._compared.close()
        await asyncio.to_thread(self._thread.shutdown)

    async def _sides(self, version: str | None) -> tuple[Side, Side]:
        """The live version and the compared one, by default the open one."""
        live = self._model_holder.live
        other = await self._compared.opened(version)
        return await self._side(live), await self._side(other)

    async def _side(self, model: LoadedModel) -> Side:
        fresh, is_behind = await self._overlay.within(model.bundle, self._overlay_seconds)
        return Side(model, fresh, ("items",) if is_behind else ())

    async def _read(self, request: RecommendRequest, live: Side, other: Side) -> Query:
        """Read the query once for both; each version may need another number of stored events."""
        now = _now()
        queries = [await self._queries.read(request, side.model, now) for side in (live, other)]
        return max(queries, key=lambda query: len(query.history))

    async def _run(self, call: Callable[..., Result], *args: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)


def _now() -> int:
    return time.time_ns() // 1_000_000
