"""The comparison of a version with the live one: opened on request, released when nobody uses it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from turret.service.comparison.background import BackgroundThread
from turret.service.comparison.catalog_changes import catalog_changes
from turret.service.comparison.chosen import ChosenVersion
from turret.service.comparison.measured_overlap import measure_overlap, queries_of_golden, queries_of_users
from turret.service.comparison.opening import VersionOpener
from turret.service.comparison.side import Side
from turret.service.comparison.side_by_side import side_by_side
from turret.service.comparison.user_sample import sample_users
from turret.service.errors import ConflictError, NotReadyError
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.query import Query, QueryReader
from turret.service.schemas.requests import RecommendRequest
from turret.service.schemas.times import show_time
from turret.service.stores.contract import HistoryStore
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel
from turret.service.versions.memory import give_back

WATCH_SECONDS = 1.0
_MOST_WAITING = 8  # calls in a worker, with the one that runs
_NONE_OPEN = "no version is open for comparison; open one with POST /admin/comparison"


class Comparison:
    """Compares one version at a time with the live one, for the whole service.

    The version's name is in the memory that all workers share; each worker opens it with its first call.
    Calls run one at a time, and rank in a thread of low priority.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        chosen: ChosenVersion,
        opener: VersionOpener,
        overlay: ItemOverlayCache,
        other_overlay: ItemOverlayCache,
        queries: QueryReader,
        histories: HistoryStore,
        thread: BackgroundThread,
        overlay_seconds: float,
    ) -> None:
        self._model_holder = model_holder
        self._chosen = chosen
        self._opener = opener
        self._overlay = overlay
        # Apart from the live one's: reading it for a version that was just opened takes long.
        self._other_overlay = other_overlay
        self._queries = queries
        self._histories = histories
        self._thread = thread
        self._overlay_seconds = overlay_seconds
        self._model: LoadedModel | None = None
        self._one_at_a_time = asyncio.Lock()
        self._calls = 0
        self._watching: asyncio.Task[None] | None = None

    async def open(self, version: str) -> dict[str, Any]:
        """Open a version in place of any other, and describe the comparison. Raises as `_opened`."""
        async with self._turn():
            await self._opened(version)
        return self.state(version)

    def state(self, version: str | None = None) -> dict[str, Any]:
        """Describe the comparison; with a `version`, as if there were none unless it is of that one."""
        live, chosen = self._model_holder.version, self._chosen.read()
        if chosen is None or chosen.version == live or version not in (None, chosen.version):
            return {"version": None, "live": live}
        return {
            "version": chosen.version,
            "live": live,
            "opened": show_time(chosen.opened),
            "expires_seconds": chosen.seconds,
        }

    def end(self, version: str | None) -> dict[str, Any]:
        """End the comparison; with a `version`, only if it is of that one. All workers release it soon."""
        self._chosen.clear(version)
        return self.state()

    async def recommend(self, request: RecommendRequest, version: str | None) -> dict[str, Any]:
        """Answer a request from both versions, with the same history."""
        async with self._pair(version) as (live, other):
            query = await self._read(request, live, other)
            return await self._thread.run(side_by_side, live, other, query)

    async def overlap(self, users: int, k: int, version: str | None) -> dict[str, Any]:
        """Measure the overlap over `users` stored users, or over recorded queries if none is stored."""
        async with self._pair(version) as (live, other):
            histories = await sample_users(self._histories, users, self._thread)
            if histories:
                queries = await self._thread.run(queries_of_users, histories, k, _now())
            else:
                queries = await self._thread.run(queries_of_golden, live.model.bundle, k, _now())
            measured = await self._thread.run(measure_overlap, live, other, queries, self._thread.rest)
            return _names(live, other) | {"source": "users" if histories else "golden"} | measured

    async def catalog(self, version: str | None) -> dict[str, Any]:
        """Compare the catalogs of both versions."""
        async with self._pair(version) as (live, other):
            bundles = live.model.bundle, other.model.bundle
            changes = await self._thread.run(catalog_changes, *bundles, self._thread.rest)
            return _names(live, other) | changes

    async def close(self) -> None:
        """Finish the running call and release the version."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        self._model = None
        await self._thread.close()

    @asynccontextmanager
    async def _pair(self, version: str | None) -> AsyncIterator[tuple[Side, Side]]:
        """The live version and the other one, for the turn of a call. Raises as `_opened`."""
        async with self._turn():
            live = self._model_holder.live
            model = await self._opened(version)
            yield await self._side(live, self._overlay), await self._side(model, self._other_overlay)
            self._chosen.renew(model.version)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._calls >= _MOST_WAITING:
            message = "too many comparisons wait for their turn; retry after Retry-After"
            raise NotReadyError("comparison", None, message, 2)
        self._calls += 1
        try:
            async with self._one_at_a_time:
                yield
        finally:
            self._calls -= 1

    async def _opened(self, version: str | None) -> LoadedModel:
        """The model of `version`, by default the chosen one, opened if this worker doesn't have it.

        Raises NothingLiveError without a live version, ConflictError if none is chosen, or if it is the live
        one or was changed, and as VersionOpener.
        """
        live, chosen = self._model_holder.live.version, self._chosen.read()
        if version is None:
            if chosen is None:
                raise ConflictError("version", None, _NONE_OPEN)
            version = chosen.version
        if version == live:
            self._chosen.clear(version)
            await self._release()
            message = f"version {version} is live now; compare another one of GET /v1/versions with it"
            raise ConflictError("version", version, message)
        manifest = chosen.manifest if chosen and chosen.version == version else None
        if self._model is not None and manifest == self._model.bundle.snapshot.manifest:
            await self._check_unchanged(self._model)
            self._chosen.renew(version)
            return self._model
        return await self._open(version, manifest)

    async def _open(self, version: str, manifest: str | None) -> LoadedModel:
        await self._opener.find(version)
        await self._release()  # both would take the memory of two
        try:
            self._model = model = await self._opener.open(version, manifest)
        except ConflictError:
            self._chosen.clear(version)
            raise
        self._chosen.choose(version, model.bundle.snapshot.manifest)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return model

    async def _check_unchanged(self, model: LoadedModel) -> None:
        """Raise ConflictError, and release the model, if its files were replaced, changed or removed."""
        changes = await self._thread.run(model.bundle.changed_files)
        if changes:
            self._chosen.clear(model.version)
            await self._release()
            message = (
                f"files of version {model.version} changed or are gone since it was opened ({changes[0]}); "
                "open it again, or another one of GET /v1/versions"
            )
            raise ConflictError("version", model.version, message)

    async def _side(self, model: LoadedModel, overlay: ItemOverlayCache) -> Side:
        fresh, is_behind = await overlay.within(model.bundle, self._overlay_seconds)
        return Side(model, fresh, ("items",) if is_behind else ())

    async def _read(self, request: RecommendRequest, live: Side, other: Side) -> Query:
        """Read the query once for both; each version may need another number of stored events."""
        now = _now()
        queries = [await self._queries.read(request, side.model, now) for side in (live, other)]
        return max(queries, key=lambda query: len(query.history))

    async def _watch(self) -> None:
        """Release the version once it has expired, or another worker has closed or replaced it."""
        while self._model is not None:
            await asyncio.sleep(WATCH_SECONDS)
            await self._release_unused()

    async def _release_unused(self) -> None:
        """Release the version, after the running calls, unless it is the chosen one and not live."""
        async with self._one_at_a_time:
            if self._model is not None and self.state(self._model.version)["version"] is None:
                await self._release()

    async def _release(self) -> None:
        if self._model is not None:
            self._model = None
            await self._thread.run(give_back)


def _names(live: Side, other: Side) -> dict[str, Any]:
    return {"version": other.model.version, "live": live.model.version}


def _now() -> int:
    return time.time_ns() // 1_000_000
