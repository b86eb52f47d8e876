"""The versions that a worker answers from: a request reads its version once, a swap replaces it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from turret.service.errors import (
    ConflictError,
    InvalidFieldError,
    NothingLiveError,
    NotReadyError,
    ServiceError,
)
from turret.service.shared_state import SharedState
from turret.service.versions.activation_log import ActivationLog
from turret.service.versions.activation_state import (
    activation_lock,
    current_version,
    fall_back,
    initialise,
    make_folder,
    new_record,
    target_of,
)
from turret.service.versions.loaded_model import LoadedModel, TrafficSplit, open_live
from turret.service.versions.memory import give_back
from turret.service.versions.traffic_split import Route, Routes, read_routes
from turret.tower.bundle.bundle import Bundle
from turret.tower.errors import BundleError
from turret.tower.format.pointer import is_version
from turret.tower.format.snapshot import Snapshot

POLL_SECONDS = 0.5
_log = logging.getLogger("turret.activation")


class ModelHolder:
    """Holds the live version of one worker, its canary and its shadow.

    Replacing them takes `change_lock`. `prepare` is awaited with a bundle before it answers requests.

    Loads the target version of the shared state, or else the folder's current one. Raises ServiceError if
    there is none, BundleError if it and all previous ones can't be loaded. With `wait` it makes the folder,
    and starts empty until `fill` finds a version or one is activated.
    """

    def __init__(
        self, root: Path, wait: bool = False, shared_state: SharedState | None = None, number: int = 0
    ) -> None:
        if wait:
            make_folder(root)
        self.root = root
        self.shared_state = shared_state or SharedState()
        self.worker_slot = self.shared_state.slots[number]
        self.activation_log = ActivationLog(root)
        self.traffic = TrafficSplit(Routes())
        self._live: LoadedModel | None = None
        self._swapped = asyncio.Event()
        self.change_lock = asyncio.Lock()
        self.prepare: Callable[[Bundle], Awaitable[object]] = _nothing
        self.why_empty = "the service has just started"
        self._fallback: LoadedModel | None = None
        if not self.shared_state.target.value and not wait:
            initialise(root, self.activation_log, self.shared_state)
        if self.shared_state.target.value:
            self._put_first(wait)
        self.traffic, self.worker_slot.routes = self._open_routes()

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
        if self.has_fallen_back and self.shared_state.others_serve:
            message = (
                f"this replica can't open the live version and would answer with {live.version}; "
                "send the request to another instance"
            )
            raise NotReadyError("version", None, message, 2)
        return live

    @property
    def version(self) -> str | None:
        """The name of the live version, if there is one."""
        return self._live.version if self._live else None

    @property
    def generation(self) -> int:
        """The number of the live activation, 0 while there is none."""
        return self._live.generation if self._live else 0

    @property
    def has_fallen_back(self) -> bool:
        """Whether this worker of a replica serves an earlier version, as it can't load the target."""
        return self._live is not None and self._live is self._fallback

    def choose(self, user_key: str | None) -> LoadedModel:
        """Choose the version for a user, or for a request id: the same until the routes change.

        Raises NothingLiveError and NotReadyError as `answering` does.
        """
        canary = self.traffic.canary
        if canary is None or user_key is None or not self.traffic.routes.takes(user_key):
            return self.answering
        return canary

    def serving(self, version: str) -> LoadedModel | None:
        """Return the live version or the canary if it has this name."""
        models = (self._live, self.traffic.canary)
        return next((model for model in models if model and model.version == version), None)

    async def live_at_least(self, version: str, timeout: float = 1.0) -> LoadedModel:
        """Return the live version once it is no older than the last activation of `version`.

        Waits up to `timeout` seconds for this worker to load it. Versions are ordered by activation: after a
        rollback, the restored version is the newer one. Raises NotReadyError on a timeout, ConflictError for
        a version that was never live, InvalidFieldError for a text that is no version name.
        """
        needed = await self._sequence_of(version)
        try:
            async with asyncio.timeout(timeout):
                while self.generation < needed:
                    await self._swapped.wait()
        except TimeoutError:
            message = f"version {version} is not live in this process yet; retry"
            raise NotReadyError("min_version", version, message, 1) from None
        return self.live

    async def fill(self) -> bool:
        """Wait for a current version that can be loaded, and make it live.

        Returns whether this worker was the first to find it.
        """
        while self._live is None:
            first = await asyncio.to_thread(self._load_first)
            if first:
                live, is_first = first
                await self.prepare(live.bundle)
                self.put(live)
                return is_first
            await asyncio.sleep(POLL_SECONDS)
        return False

    def put(self, live: LoadedModel) -> None:
        """Make `live` the live version; requests under way keep theirs."""
        self._live = live
        self.worker_slot.live = live.generation
        swapped, self._swapped = self._swapped, asyncio.Event()
        swapped.set()

    async def follow(self) -> None:
        """Load the target version and routes of the shared state, if they are new. Raises BundleError."""
        if self.change_lock.locked():
            return
        async with self.change_lock:
            if self.shared_state.target.value != self.generation:
                live = await asyncio.to_thread(self.open_target)
                await self.prepare(live.bundle)
                self.put(live)
                await asyncio.to_thread(give_back)
            if self.shared_state.routes.value != self.worker_slot.routes:
                await self.follow_routes()

    def open_target(self) -> LoadedModel:
        """Load the target version, which another worker has checked. Raises BundleError."""
        target, version, pinned = self._target()
        return open_live(self.root, version, target, pinned)

    def load_target(self) -> LoadedModel:
        """Load and check the target version, or else the last one before it that can be loaded.

        Such a fallback is logged as an activation, so the other workers follow it; one of several replicas
        falls back alone. Raises the BundleError of the target if none can be loaded.
        """
        target, version, pinned = self._target()
        try:
            return open_live(self.root, version, target, pinned and Snapshot(pinned.manifest))
        except BundleError as refused:
            return self._fall_back(target, version, refused)

    def pinned_before(self, version: str) -> Snapshot | None:
        """The content of a version at its last activation, if known."""
        manifest = self.activation_log.manifest_of(version)
        return Snapshot(manifest) if manifest else None

    async def follow_routes(self) -> None:
        """Load and prepare the versions of the routes, then route to them."""
        traffic, generation = await asyncio.to_thread(self._open_routes)
        for model in (traffic.canary, traffic.shadow):
            if model is not None:
                await self.prepare(model.bundle)
        self.traffic, self.worker_slot.routes = traffic, generation

    def _open_routes(self) -> tuple[TrafficSplit, int]:
        """Load the versions of the routes; the live version replaces those that can't be loaded."""
        generation = self.shared_state.routes.value
        try:
            routes = read_routes(self.root)
        except ServiceError as error:
            _log.warning("%s", error)
            routes = Routes()
        canary = self._model_of(routes.canary) if routes.canary else None
        shadow = self._model_of(routes.shadow) if routes.shadow else None
        return TrafficSplit(routes, canary, shadow), generation

    def _model_of(self, route: Route) -> LoadedModel | None:
        for model in (self._live, self.traffic.canary, self.traffic.shadow):
            if model and model.version == route.version and _matches(model, route.manifest):
                return model
        try:
            pinned = Snapshot(route.manifest) if route.manifest else None
            return open_live(self.root, route.version, 0, pinned)
        except BundleError as error:
            _log.warning(
                "the route to version %s is ignored, as it can't be opened: %s", route.version, error
            )
            return None

    async def _sequence_of(self, version: str) -> int:
        if (
            self.shared_state.replicated  # another replica's activation may not have reached this one
            or self.shared_state.target.value > self.activation_log.sequence
            or self.activation_log.sequence_of(version) is None
        ):
            await asyncio.to_thread(self.activation_log.refresh)
        sequence = self.activation_log.sequence_of(version)
        if sequence is None:
            message = "this version was never live here; /v1/versions lists the versions"
            refused = ConflictError if is_version(version) else InvalidFieldError
            raise refused("min_version", version, message)
        return sequence

    def _target(self) -> tuple[int, str, Snapshot | None]:
        target, version, pinned = target_of(self.shared_state)
        self.activation_log.refresh()
        if self.activation_log.at(target) is None:  # the folder is read-only, or another replica's
            record = new_record(version, "pointer", None)
            self.activation_log.remember(record.model_copy(update={"sequence": target}))
        return target, version, pinned

    def _put_first(self, wait: bool) -> None:
        try:
            self.put(self.load_target())
        except BundleError as error:  # the files of the other replicas' version may reach this folder later
            if not (wait and self.shared_state.replicated):
                raise
            self.why_empty = str(error)

    def _fall_back(self, target: int, version: str, refused: BundleError) -> LoadedModel:
        if self.shared_state.replicated:
            return self._open_one_before(version, refused)
        with activation_lock(self.root):
            if self.shared_state.target.value == target:  # else another worker has already fallen back
                return self._open_one_before(version, refused)
        return self.load_target()

    def _open_one_before(self, version: str, refused: BundleError) -> LoadedModel:
        for before in self.activation_log.before(version):
            try:
                live = open_live(self.root, before, 0, self.pinned_before(before))
            except BundleError:
                continue
            _log.error(
                "version %s can't be opened (%s); falling back to version %s", version, refused, before
            )
            if self.shared_state.replicated:  # all replicas decide together
                self._fallback = replace(live, generation=self.activation_log.sequence_of(before) or 0)
                return self._fallback
            record = new_record(before, "fallback", version, str(refused))
            sequence = fall_back(
                self.root, self.activation_log, self.shared_state, record, live.bundle.snapshot
            )
            return replace(live, generation=sequence)
        raise refused

    def _load_first(self) -> tuple[LoadedModel, bool] | None:
        """Load the first version, and tell whether this worker has initialised it."""
        try:
            if self.shared_state.target.value:
                is_first = self.shared_state.replicated and self.worker_slot.number == 0
                return self.load_target(), is_first
            if self.shared_state.replicated:  # a replica that finds a version announces it to all
                return None
            live = open_live(self.root, current_version(self.root))
            with activation_lock(self.root):
                if self.shared_state.target.value:
                    return None
                initialise(self.root, self.activation_log, self.shared_state)
            target, version, pinned = self._target()
            is_target = pinned is not None and pinned.manifest == live.bundle.snapshot.manifest
            is_target = is_target and version == live.version
            return (replace(live, generation=target), True) if is_target else None
        except (BundleError, ServiceError) as error:
            self.why_empty = str(error)
        return None


def _matches(live: LoadedModel, manifest: str | None) -> bool:
    return manifest in (None, live.bundle.snapshot.manifest)


async def _nothing(_: Bundle) -> None:
    """The default `prepare`: there is no overlay."""
