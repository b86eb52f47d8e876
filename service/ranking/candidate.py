"""Compares a version with the live version; the routes have it as candidate, open in every worker."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from turret.data.vocabulary import Id
from turret.service.errors import (
    ConflictError,
    HistoryUnavailableError,
    NotFoundError,
    NotReadyError,
    RequestError,
)
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.answers import Answer, ids_of
from turret.service.ranking.batches import recommend
from turret.service.ranking.query import NO_HISTORY, Query, QueryReader, make_query
from turret.service.schemas.fields import show_time
from turret.service.schemas.requests import RecommendRequest
from turret.service.stores.contract import HistoryStore, now_ms
from turret.service.versions.activation import Activator
from turret.service.versions.holder import LoadedModel, ModelHolder
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load_golden, overlap_between
from turret.tower.errors import BundleError, EncodingError

SCAN_SECONDS, RANKING_SECONDS = 5.0, 20.0  # limits of one measurement of an overlap
_LATEST = 2**62  # ms since 1970: later than any stored event
_TENTHS = 10
Result = TypeVar("Result")


class Side(NamedTuple):
    """A model with its overlay; `missing` lists the parts that its answers have to do without."""

    model: LoadedModel
    fresh: FreshItems
    missing: Sequence[str] = ()

    def answer(self, query: Query, other: "Side") -> Answer:
        """Answer a query without the features that only the `other` side reads.

        Raises RequestError or EncodingError, whose message names the version.
        """
        read, others = ({each.name for each in side.model.bundle.user_features} for side in (self, other))
        fields = {
            field: {name: value for name, value in values.items() if name not in others - read}
            for field, values in (("features", query.request.features), ("context", query.request.context))
        }
        query = replace(query, request=query.request.model_copy(update=fields))
        try:
            (answer,) = recommend(self.model, self.fresh, [query])
        except (RequestError, EncodingError) as error:
            error.args = (f"version {self.model.version}: {error}",)
            raise
        answer["degraded"] += self.missing
        answer.pop("cursor", None)  # a comparison has one page
        return answer


class Comparison:
    """Compares the candidate with the live version.

    Both rank in a thread of low priority, so that no comparison delays requests.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        activator: Activator,
        overlay: ItemOverlayCache,
        queries: QueryReader,
        histories: HistoryStore,
    ) -> None:
        self._model_holder = model_holder
        self._activator = activator
        self._overlay = overlay
        self._queries = queries
        self._histories = histories
        self._thread = ThreadPoolExecutor(1, "comparison", os.nice, (10,))  # Linux: only this thread is nice

    async def open(self, version: str) -> dict[str, Any]:
        """Open a version in every worker, in place of any other, and describe the comparison.

        Opening it again renews its time. Raises NotFoundError for an unknown version, ConflictError for the
        live version and for a version that can't be opened, and UnavailableError without a live version or
        while another activation is in progress.
        """
        if version == self._model_holder.live.version:
            message = f"version {version} is live now; compare another one of GET /v1/versions with it"
            raise ConflictError("version", version, message)
        await self._compare(version)
        return self.state(version)

    def state(self, version: str | None = None) -> dict[str, Any]:
        """Describe the comparison; with a `version`, only a comparison of that version counts."""
        live, candidate = self._model_holder.version, self._model_holder.traffic.routes.candidate
        if candidate is None or version not in (None, candidate.version):
            return {"version": None, "live": live}
        return {
            "version": candidate.version,
            "live": live,
            "opened": show_time(candidate.opened),
            "expires_seconds": max(0.0, (candidate.expires - now_ms()) / 1000),
        }

    async def end(self, version: str | None) -> dict[str, Any]:
        """End the comparison; with a `version`, only a comparison of that version. Raises as `open`."""
        if self.state(version)["version"] is not None:
            await self._compare(None)
        return self.state()

    async def recommend(self, request: RecommendRequest, version: str | None) -> dict[str, Any]:
        """Answer a request from both versions, with the same history. Raises as `_sides`."""
        live, other = await self._sides(version)
        now = now_ms()
        # Each version may need another number of stored events.
        queries = [await self._queries.read(request, side.model, now) for side in (live, other)]
        longest = max(queries, key=lambda query: len(query.history))
        return await self._run(_side_by_side, live, other, longest)

    async def overlap(self, users: int, k: int, version: str | None) -> dict[str, Any]:
        """Measure the overlap over `users` stored users, or over recorded queries if none is stored.

        See the document of the call. Stops after RANKING_SECONDS. Raises as `_sides`.
        """
        live, other = await self._sides(version)
        now, stored = now_ms(), await self._some_users(users)
        requests = [RecommendRequest.model_construct(user_id=user, k=k) for user in stored]
        queries: Sequence[Query] = await self._queries.read_all(requests, live.model, now)
        if not queries:
            queries = await self._run(_recorded_queries, live.model.bundle, k, now)
        loop = asyncio.get_running_loop()
        end, pairs = loop.time() + RANKING_SECONDS, list[tuple[list[Id], list[Id]]]()
        for query in queries:  # each query in a separate call, so that other calls run in between
            if not pairs or loop.time() < end:
                pairs.append(await self._run(_both_ids, live, other, query))
        overlaps = [overlap_between(*pair) for pair in pairs]
        # An overlap of 1 belongs to the last tenth.
        tenths = [min(int(overlap * _TENTHS + 1e-9), _TENTHS - 1) for overlap in overlaps]
        changed_first = sum(
            list(map(str, live_ids[:1])) != list(map(str, other_ids[:1])) for live_ids, other_ids in pairs
        )
        return {
            "version": other.model.version,
            "live": live.model.version,
            "source": "users" if stored else "golden",
            "histories": len(pairs),
            "overlap_mean": sum(overlaps) / len(pairs),
            "overlap_histogram": [tenths.count(tenth) for tenth in range(_TENTHS)],
            "changed_first": changed_first / len(pairs),
        }

    async def close(self) -> None:
        """Finish the running call of the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    async def _sides(self, version: str | None) -> list[Side]:
        """The live version and the candidate; a `version` that isn't the candidate is opened first.

        Raises ConflictError if no version is open, NotReadyError if this worker is late, and as `open`.
        """
        candidate = self._model_holder.traffic.candidate
        if version is not None and (candidate is None or candidate.version != version):
            await self.open(version)
            candidate = self._model_holder.traffic.candidate
            if candidate is None or candidate.version != version:
                message = f"this process has not opened version {version} yet; retry"
                raise NotReadyError("version", version, message, 1)
        if candidate is None:
            message = "no version is open for comparison; open one with POST /admin/comparison"
            raise ConflictError("version", None, message)
        models = (self._model_holder.live, candidate)
        return [Side(model, *await self._overlay.for_answer(model.bundle)) for model in models]

    async def _some_users(self, count: int) -> list[str]:
        """The first users of a scan of the store that lasts at most SCAN_SECONDS."""
        users: dict[str, None] = {}
        with suppress(TimeoutError, HistoryUnavailableError):
            async with asyncio.timeout(SCAN_SECONDS):
                async for events in self._histories.scan(0, _LATEST):
                    users |= dict.fromkeys(event.user for event in events)
                    if len(users) >= count:
                        break
        return list(users)[:count]

    async def _compare(self, version: str | None) -> None:
        try:
            await self._activator.compare(version)
        except BundleError as error:
            refused = NotFoundError if error.reason == "unknown" else ConflictError
            raise refused("version", version, str(error)) from None

    async def _run(self, call: Callable[..., Result], *args: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)


def _side_by_side(live: Side, other: Side, query: Query) -> dict[str, Any]:
    """Answer a query from both versions. Raises as `Side.answer`.

    `moves` has the rank of each item in both answers, from 1, or None; those of the live version come first.
    Ids are compared as texts: 7 and "7" are one item.
    """
    answers = live.answer(query, other), other.answer(query, live)
    live_ids, other_ids = map(ids_of, answers)
    live_ranks, other_ranks = (
        {str(item): rank for rank, item in enumerate(ids, start=1)} for ids in (live_ids, other_ids)
    )
    items = {str(item): item for item in (*other_ids, *live_ids)}
    moves = [
        {"id": items[text], "live_rank": live_ranks.get(text), "other_rank": other_ranks.get(text)}
        for text in live_ranks | other_ranks
    ]
    overlap = overlap_between(live_ids, other_ids)
    return {"live": answers[0], "other": answers[1], "overlap": overlap, "moves": moves}


def _both_ids(live: Side, other: Side, query: Query) -> tuple[list[Id], list[Id]]:
    """The ids of both answers; no ids for a version that can't encode the query."""
    answers: list[list[Id]] = []
    for side, beside in ((live, other), (other, live)):
        try:
            answers.append(ids_of(side.answer(query, beside)))
        except (RequestError, EncodingError):
            answers.append([])
    return answers[0], answers[1]


def _recorded_queries(bundle: Bundle, k: int, now: int) -> list[Query]:
    """Make the queries recorded with a version, with their features and times. Raises ConflictError."""
    try:
        recorded = load_golden(bundle.folder).queries
    except BundleError as error:
        message = f"no user is stored, and the recorded queries can't be read: {error}; store events first"
        raise ConflictError("version", bundle.manifest.version, message) from None
    queries = []
    for golden in recorded:
        times = [round(1000 * time) for time in golden.history_times or ()] or None
        at = None if golden.at is None else round(1000 * golden.at)
        request = RecommendRequest.model_construct(
            history=list(golden.history),
            history_times=times,
            at=at,
            k=k,
            features=golden.features,
            context=golden.context,
        )
        query = make_query(request, NO_HISTORY, (), now)
        query.history_kinds = golden.history_kinds or ()
        queries.append(query)
    return queries
