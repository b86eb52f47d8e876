"""The versions that a worker answers from: a request reads its version once, a swap replaces it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from turret.service.errors import ConflictError, NothingLiveError, NotReadyError
from turret.service.stores.contract import now_ms
from turret.service.versions.memory import give_back
from turret.service.versions.record import Activation, Record, Route, Routes
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.checksums import FileStamps
from turret.tower.retrieval import Retriever

_log = logging.getLogger("turret.activation")


@dataclass(frozen=True)
class LoadedModel:
    """A bundle and its retriever.

    `since` is when it was loaded; `number` is that of its activation, 0 for a canary or a shadow.
    """

    bundle: Bundle
    retriever: Retriever
    since: datetime
    number: int = 0

    @property
    def version(self) -> str:
        """The bundle's version."""
        return self.bundle.manifest.version


@dataclass(frozen=True)
class TrafficSplit:
    """The routes with their loaded versions; None for a version that can't be loaded."""

    routes: Routes
    canary: LoadedModel | None = None
    shadow: LoadedModel | None = None
    candidate: LoadedModel | None = None


class ModelHolder:
    """Holds the live version of one worker, its canary, its shadow and its candidate.

    `record` is the last one that this worker has read, `is_cut_off` whether the others may no longer wait for
    it, as it can't read the record, and `others_serve` whether another replica serves its live version.
    Replacing versions takes `change_lock`. `prepare` is awaited with a bundle before it answers requests.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.record: Record | None = None
        self.is_cut_off = False
        self.others_serve = False
        self.traffic = TrafficSplit(Routes())
        self.number = -1  # of the record that it answers by
        self.change_lock = asyncio.Lock()
        self.prepare: Callable[[Bundle], Awaitable[object]] = _nothing
        self.why_empty = "the service has just started"
        self._live: LoadedModel | None = None
        self._fallback: LoadedModel | None = None
        self._swapped = asyncio.Event()

    @property
    def live(self) -> LoadedModel:
        """The live version; a request reads this once. Raises NothingLiveError while there is none."""
        if self._live is None:
            raise NothingLiveError(f"no version is live yet: {self.why_empty}")
        return self._live

    @property
    def answering(self) -> LoadedModel:
        """The live version for an answer, unless another replica should give it.

        Raises NothingLiveError while there is none, and NotReadyError for an earlier version while another
        replica serves the live one: a proxy sends the request there.
        """
        live = self.live
        if self.others_serve and self.has_fallen_back:
            message = "this replica can't open the live version; send the request to another instance"
            raise NotReadyError("version", None, message, 2)
        return live

    @property
    def version(self) -> str | None:
        """The name of the live version, if there is one."""
        return self._live.version if self._live else None

    @property
    def has_fallen_back(self) -> bool:
        """Whether this worker serves an earlier version, as it can't load that of the record."""
        return self._live is not None and self._live is self._fallback

    @property
    def is_behind(self) -> bool:
        """Whether the record has another live version, or other routes, than this worker."""
        return self.record is not None and self.record.number != self.number

    def choose(self, user_key: str | None) -> LoadedModel:
        """Choose the version for a user, or for a request id: the same until the routes change.

        Raises NothingLiveError and NotReadyError as `answering` does.
        """
        canary = self.traffic.canary
        if canary is not None and user_key is not None and self.traffic.routes.takes(user_key):
            return canary
        return self.answering

    def serving(self, version: str) -> LoadedModel | None:
        """Return the live version or the canary if it has this name."""
        models = (self._live, self.traffic.canary)
        return next((model for model in models if model and model.version == version), None)

    async def live_at_least(self, version: str, timeout: float = 1.0) -> LoadedModel:
        """Return the live version once it is no older than the last activation of `version`, of any member.

        Waits up to `timeout` seconds for this worker to load it. Versions are ordered by activation: after a
        rollback, the restored version is the newer one. Raises NotReadyError on a timeout, and for a worker
        that is cut off, as it may have missed an activation; ConflictError for a version that was never live.
        """
        if self.is_cut_off:
            message = "this process can't read which version is live; send the request to another instance"
            raise NotReadyError("min_version", version, message, 2)
        activation = self.record.activation_of(version) if self.record else None
        if activation is None:
            message = "this version was never live here; /v1/versions lists the versions"
            raise ConflictError("min_version", version, message)
        try:
            async with asyncio.timeout(timeout):
                while self._live is None or self._live.number < (activation.number or 0):
                    await self._swapped.wait()
        except TimeoutError:
            message = f"version {version} is not live in this process yet; retry"
            raise NotReadyError("min_version", version, message, 1) from None
        return self.live

    async def first(self) -> LoadedModel:
        """Wait for the first version of a service that has begun without one."""
        while self._live is None:
            await self._swapped.wait()
        return self._live

    def begin(self, record: Record) -> None:
        """Open the versions of a worker's first record, before it answers.

        If the live one can't be opened, the last one before it that can stands in. Raises the BundleError of
        the live one if none can be opened.
        """
        refused: BundleError | None = None
        for activation in (record.live, *record.before):
            try:
                live = open_live(self.root, activation.version, activation.manifest)
                break
            except BundleError as error:
                refused = refused or error
        else:
            assert refused is not None
            raise refused
        if refused is not None:
            message = "version %s can't be opened (%s); falling back to version %s"
            _log.error(message, record.live.version, refused, live.version)
        self.record = record
        self._put(live, activation)
        self._fallback = self._live if refused else None
        self.traffic, self.number = self._open_routes(record.routes), -1 if refused else record.number

    def _put(self, live: LoadedModel, activation: Activation) -> None:
        """Make `live` the live version, by an activation; requests under way keep theirs."""
        self._live = replace(live, number=activation.number or 0)
        swapped, self._swapped = self._swapped, asyncio.Event()
        swapped.set()

    async def follow(self) -> None:
        """Open the versions of the record that this worker lacks. Raises BundleError."""
        async with self.change_lock:
            if self.record is not None:
                await self.take(self.record)

    async def take(self, record: Record, *opened: LoadedModel) -> None:
        """Answer by a record from now on; `opened` are versions of it. The caller has `change_lock`.

        Versions that are not open yet are opened and prepared before. Raises BundleError.
        """
        live = next((model for model in (*opened, self._live) if model and _holds(model, record.live)), None)
        if live is None:
            live = await asyncio.to_thread(open_live, self.root, record.live.version, record.live.manifest)
            await self.prepare(live.bundle)
        self._put(live, record.live)
        traffic = await asyncio.to_thread(self._open_routes, record.routes, opened)
        for model in (traffic.canary, traffic.shadow, traffic.candidate):
            if model is not None:
                await self.prepare(model.bundle)
        self.traffic, self.number = traffic, record.number
        await asyncio.to_thread(give_back)

    def end_candidate(self) -> None:
        """Release the compared version once its time is over."""
        routes = self.traffic.routes
        if routes.candidate is not None and is_over(routes.candidate):
            routes = routes.model_copy(update={"candidate": None})
            self.traffic = replace(self.traffic, routes=routes, candidate=None)

    def _open_routes(self, routes: Routes, opened: Sequence[LoadedModel] = ()) -> TrafficSplit:
        """Load the versions of the routes; the live version replaces those that can't be loaded."""
        if routes.candidate is not None and is_over(routes.candidate):
            routes = routes.model_copy(update={"candidate": None})
        known = (*opened, self._live, self.traffic.canary, self.traffic.shadow, self.traffic.candidate)
        models = (self._model_of(route, known) for route in (routes.canary, routes.shadow, routes.candidate))
        return TrafficSplit(routes, *models)

    def _model_of(self, route: Route | None, known: Sequence[LoadedModel | None]) -> LoadedModel | None:
        if route is None:
            return None
        for model in known:
            if model and _holds(model, route):
                return model
        try:
            return open_live(self.root, route.version, route.manifest)
        except BundleError as error:
            _log.warning(
                "the route to version %s is ignored, as it can't be opened: %s", route.version, error
            )
            return None


def is_over(candidate: Route) -> bool:
    """Whether the time of a compared version is over."""
    return now_ms() >= candidate.expires


def _holds(model: LoadedModel, named: Activation | Route) -> bool:
    """Whether a loaded version has the content that was checked."""
    return model.version == named.version and model.bundle.digest == named.manifest


async def _nothing(_: Bundle) -> None:
    """The default `prepare`: there is no overlay."""


def open_live(
    root: Path, version: str, manifest: str | None = None, checked: FileStamps | None = None
) -> LoadedModel:
    """Load a version, whose manifest has to have the SHA-256 `manifest`, if given; `checked` as in `load`.

    Raises BundleError if it can't be served.
    """
    bundle = load(root, version, manifest, checked)
    live = LoadedModel(bundle, Retriever(bundle), datetime.now(UTC))
    _warm_up(live)
    return live


def _warm_up(live: LoadedModel) -> None:
    """Warm up lazily built state so that the first request does not pay for it."""
    rows = np.arange(min(len(live.bundle.vocabulary), 10))
    with suppress(EncodingError):  # other histories may be encodable
        live.bundle.vocabulary.known_rows(live.bundle.vocabulary.ids(rows))
        live.retriever.recommend([rows], [{}], len(rows), [rows])
