"""The comparison of a version with the live one: it is the candidate of the routes, open in every worker."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from turret.service.compare.overlap import measure_overlap, recorded_queries, stored_queries
from turret.service.compare.sides import Side, side_by_side
from turret.service.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    NotReadyError,
    ReplicasUnavailableError,
)
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.query import Query, QueryReader
from turret.service.schemas.requests import RecommendRequest
from turret.service.schemas.times import show_time
from turret.service.stores.contract import HistoryStore
from turret.service.thread_priority import lower_priority
from turret.service.versions.activation import Activator, reason_of
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel
from turret.tower.errors import BundleError

_NONE_OPEN = "no version is open for comparison; open one with POST /admin/comparison"
Result = TypeVar("Result")


class Comparison:
    """Compares the candidate with the live version.

    Both rank in a thread of low priority, so that no comparison delays requests. The item store has
    `overlay_seconds` to answer, then items may be missing.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        activator: Activator,
        overlay: ItemOverlayCache,
        queries: QueryReader,
        histories: HistoryStore,
        overlay_seconds: float,
    ) -> None:
        self._model_holder = model_holder
        self._activator = activator
        self._overlay = overlay
        self._queries = queries
        self._histories = histories
        self._thread = ThreadPoolExecutor(1, "comparison", lower_priority)  # begins after any fork
        self._overlay_seconds = overlay_seconds

    async def open(self, version: str) -> dict[str, Any]:
        """Open a version in every worker, in place of any other, and describe the comparison.

        Opening it again renews its time. Raises NotFoundError for an unknown version,
        ConflictError for the live one and for one that can't be opened, NothingLiveError without a live
        version, and NotReadyError while another activation is in progress.
        """
        if version == self._model_holder.live.version:
            message = f"version {version} is live now; compare another one of GET /v1/versions with it"
            raise ConflictError("version", version, message)
        await self._compare(version)
        return self.state(version)

    def state(self, version: str | None = None) -> dict[str, Any]:
        """Describe the comparison; with a `version`, as if there were none unless it is of that one."""
        live, candidate = self._model_holder.version, self._model_holder.traffic.routes.candidate
        if candidate is None or version not in (None, candidate.version):
            return {"version": None, "live": live}
        return {
            "version": candidate.version,
            "live": live,
            "opened": show_time(candidate.opened),
            "expires_seconds": max(0.0, (candidate.until - _now()) / 1000),
        }

    async def end(self, version: str | None) -> dict[str, Any]:
        """End the comparison; with a `version`, only if it is of that one. Raises NotReadyError as `open`."""
        if self.state(version)["version"] is not None:
            await self._compare(None)
        return self.state()

    async def recommend(self, request: RecommendRequest, version: str | None) -> dict[str, Any]:
        """Answer a request from both versions, with the same history. Raises as `_sides`."""
        live, other = await self._sides(version)
        query = await self._read(request, live, other)
        return await self._run(side_by_side, live, other, query)

    async def overlap(self, users: int, k: int, version: str | None) -> dict[str, Any]:
        """Measure the overlap over `users` stored users, or over recorded queries if none is stored.

        Raises as `_sides`.
        """
        live, other = await self._sides(version)
        source, queries = "users", await stored_queries(self._histories, users, k, _now())
        if not queries:
            source, queries = "golden", await self._run(recorded_queries, live.model.bundle, k, _now())
        measured = await measure_overlap(live, other, queries, self._thread)
        return {"version": other.model.version, "live": live.model.version, "source": source, **measured}

    async def close(self) -> None:
        """Finish the running call of the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    async def _sides(self, version: str | None) -> tuple[Side, Side]:
        """The live version and the candidate; a `version` that isn't the candidate is opened first.

        Raises ConflictError if none is open, NotReadyError if this worker is late, and as `open`.
        """
        candidate = self._model_holder.traffic.candidate
        if version is not None and (candidate is None or candidate.version != version):
            await self.open(version)
            candidate = self._model_holder.traffic.candidate
            if candidate is None or candidate.version != version:
                message = f"this process has not opened version {version} yet; retry"
                raise NotReadyError("version", version, message, 1)
        if candidate is None:
            raise ConflictError("version", None, _NONE_OPEN)
        return await self._side(self._model_holder.live), await self._side(candidate)

    async def _compare(self, version: str | None) -> None:
        try:
            await self._activator.compare(version)
        except BundleError as error:
            refused = NotFoundError if reason_of(error) == "unknown" else ConflictError
            raise refused("version", version, str(error)) from None
        except (BusyError, ReplicasUnavailableError) as error:
            raise NotReadyError("version", version, str(error), 2) from None

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
