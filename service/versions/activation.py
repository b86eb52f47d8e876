"""Activation of a version: check, log, wait for every worker to load it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from turret.service.errors import BusyError
from turret.service.schemas.fields import HISTORY_LIMIT
from turret.service.settings import Settings
from turret.service.versions.activation_log import ActivationRecord
from turret.service.versions.activation_state import activation_turn, new_record
from turret.service.versions.coordination import Alone, Coordination
from turret.service.versions.engine_switch import switch_engine
from turret.service.versions.gate import GateRequest, Passage
from turret.service.versions.loaded_model import LoadedModel, open_live
from turret.service.versions.memory import give_back
from turret.service.versions.model_holder import ModelHolder
from turret.service.versions.traffic_split import Route, Routes, salted, stored_routes
from turret.tower.errors import BundleError

RunGate = Callable[[GateRequest], Awaitable[Passage]]
Changed = TypeVar("Changed")


class RefusedError(BundleError):
    """A version that failed the gate; `reason` names the check."""


@dataclass(frozen=True)
class Swap:
    """The new live version, the name of the previous one, and the processes that are late.

    `behind` lists the processes that did not load it within `activation_seconds`, `replicas_behind` the other
    replicas; they go on trying. `warning` says that the version's engine doesn't hold it, or kept its alias.
    """

    live: LoadedModel
    replaced: str | None
    warning: str | None = None
    behind: tuple[int, ...] = ()
    replicas_behind: tuple[str, ...] = ()


class Late(NamedTuple):
    """The processes of this replica, and the other replicas, that don't serve a change in time."""

    processes: tuple[int, ...]
    replicas: tuple[str, ...]


class Activator:
    """Activates, rolls back and routes for the whole service, from any worker.

    Calls run one at a time, by a lock in this process, one on the folder, and the turn of `coordination`, by
    default that of a service without other replicas. `run_gate` checks a version.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        settings: Settings,
        run_gate: RunGate,
        coordination: Coordination | None = None,
    ) -> None:
        self._model_holder = model_holder
        self._coordination = coordination or Alone(
            model_holder.root, model_holder.activation_log, model_holder.shared_state
        )
        self._settings = settings
        self._run_gate = run_gate
        self._one_at_a_time = asyncio.Lock()

    async def activate(self, version: str, force: bool = False, who: str = "admin") -> Swap:
        """Make `version` live in every worker, after it has passed the gate.

        `force` accepts answers that overlap too little with those of the live version. Raises RefusedError,
        without any effect, if a check fails; BusyError if other calls hold the lock for too long.
        """
        async with self._alone():
            passage = await self._check(version, force, who)
            live = await asyncio.to_thread(open_live, self._model_holder.root, version, 0, passage.snapshot)
            record = new_record(version, who, self._live_version)
            failed = tuple(check.name for check in passage.report.failed)
            swap = await self._replace(live, record.model_copy(update={"forced": force, "failed": failed}))
        return await self._with_late(swap)

    async def roll_back(self, who: str = "admin") -> Swap:
        """Make the previous live version live again, also one from before a restart.

        It passed the gate when it went live, so only its content, checksums and golden queries are compared;
        a collection that its engine has lost is a warning.
        Raises BundleError if there is none or it can't be loaded, BusyError like `activate`.
        """
        async with self._alone():
            version = next(self._model_holder.activation_log.before(self._live_version), None)
            if self._model_holder.version is None or version is None:
                raise BundleError("no other version was live before; activate one by its name", "missing")
            pinned = self._model_holder.pinned_before(version)
            live = await asyncio.to_thread(open_live, self._model_holder.root, version, 0, pinned)
            swap = await self._replace(live, new_record(version, f"{who} (rollback)", self._live_version))
        return await self._with_late(swap)

    async def route(self, routes: Routes) -> Late:
        """Apply `routes` in every worker and store them; return the processes and replicas that are late.

        Raises RefusedError if one of their versions fails the gate, BusyError like `activate`.
        """
        async with self._alone():
            before = await asyncio.to_thread(stored_routes, self._model_holder.root)
            routes = await self._checked(routes)
            generation = await self._write_routes(salted(routes, before))
        return await self._late(0, generation)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold all locks of activations, in this process and among all; one deadline for all of them."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._settings.activation_seconds) as limit:
                    await stack.enter_async_context(self._one_at_a_time)
                    await stack.enter_async_context(activation_turn(self._model_holder.root))
                    await stack.enter_async_context(self._coordination.turn())
                    with suppress(BundleError):  # a version that can't be loaded is about to be replaced
                        await self._model_holder.follow()
                    await stack.enter_async_context(self._model_holder.change_lock)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise BusyError(
                    f"another activation is in progress, and this one did not start within "
                    f"{self._settings.activation_seconds:g} seconds; retry"
                ) from None
            await asyncio.to_thread(self._model_holder.activation_log.refresh)
            yield

    @property
    def _live_version(self) -> str | None:
        """The live version of the other workers, even if this one could not load it."""
        record = self._model_holder.activation_log.at(self._model_holder.shared_state.target.value)
        return record.version if record and self._model_holder.version else self._model_holder.version

    async def _checked(self, routes: Routes) -> Routes:
        """Check the versions of routes that are not loaded here, and pin the content of each."""
        # The old routes prove nothing: the folder may have other files by now.
        live = self._model_holder.live if self._model_holder.version else None
        loaded = (self._model_holder.traffic.canary, self._model_holder.traffic.shadow, live)
        manifests: dict[str, str | None] = {
            model.version: model.bundle.snapshot.manifest for model in loaded if model
        }
        pinned: dict[str, Route | None] = {"canary": routes.canary, "shadow": routes.shadow}
        for kind, route in pinned.items():
            if route is None:
                continue
            if route.version not in manifests:
                snapshot = (await self._check(route.version, True, "routes")).snapshot
                manifests[route.version] = snapshot.manifest if snapshot else None
            pinned[kind] = route.model_copy(update={"manifest": manifests[route.version]})
        return routes.model_copy(update=pinned)

    async def check(self, version: str) -> Passage:
        """Check a version by the gate without activating it.

        Raises BusyError while this worker activates or checks another: a worker has one check at a time.
        """
        if self._one_at_a_time.locked():
            raise BusyError("an activation or another check is in progress; retry")
        async with self._one_at_a_time:
            return await self._run_gate(self._gate_request(version, force=False))

    async def _check(self, version: str, force: bool, who: str) -> Passage:
        passage = await self._run_gate(self._gate_request(version, force))
        report = passage.report
        if report.passed:
            return passage
        record = new_record(version, who, self._live_version, report.refusal)
        failed = tuple(check.name for check in report.failed)
        refused = record.model_copy(update={"outcome": "refused", "failed": failed})
        await asyncio.to_thread(self._log_refusal, refused)
        raise RefusedError(report.refusal, report.reason)

    def _gate_request(self, version: str, force: bool) -> GateRequest:
        settings = self._settings
        return GateRequest(
            root=self._model_holder.root,
            version=version,
            live=self._live_version,
            force=force,
            overlap_minimum=settings.overlap_minimum,
            recall_minimum=settings.recall_minimum,
            memory_factor=settings.memory_factor,
            longest=max(HISTORY_LIMIT, settings.stored_history_limit),
        )

    def _log_refusal(self, record: ActivationRecord) -> None:
        with suppress(OSError):  # the caller gets the refusal all the same
            self._model_holder.activation_log.add(record)

    async def _replace(self, live: LoadedModel, record: ActivationRecord) -> Swap:
        model_holder, replaced = self._model_holder, self._live_version
        before = model_holder.live.bundle.manifest if model_holder.version else None
        await model_holder.prepare(live.bundle)
        sequence = await _uncancelled(self._coordination.commit(record, live.bundle.snapshot))
        live = replace(live, generation=sequence)
        model_holder.put(live)
        routes = model_holder.traffic.routes
        if routes.canary and routes.canary.version == live.version:  # the canary has become live
            await self._write_routes(routes.model_copy(update={"canary": None}))
        await asyncio.to_thread(give_back)
        # Last: an engine that doesn't answer delays no answer of the new version.
        warning = await asyncio.to_thread(switch_engine, live.bundle.manifest, before)
        return Swap(live, replaced, warning)

    async def _write_routes(self, routes: Routes) -> int:
        generation = await _uncancelled(self._coordination.commit_routes(routes))
        await self._model_holder.follow_routes()
        return generation

    async def _with_late(self, swap: Swap) -> Swap:
        """Wait for the others, without the lock: a late one loads the newest version.

        The promotion of a canary has changed the routes as well.
        """
        late = await self._late(swap.live.generation, self._model_holder.shared_state.routes.value)
        return replace(swap, behind=late.processes, replicas_behind=late.replicas)

    async def _late(self, live: int, routes: int) -> Late:
        """Wait for the other workers and replicas to reach the numbers; return those that don't in time."""
        seconds = self._settings.activation_seconds
        replicas = self._coordination.behind(live, routes, seconds)
        return Late(*await asyncio.gather(self._late_workers(live, routes, seconds), replicas))

    async def _late_workers(self, live: int, routes: int, seconds: float) -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            workers = self._model_holder.shared_state.slots
            late = tuple(
                worker.pid
                for worker in workers
                if worker.pid and (worker.live < live or worker.routes < routes)
            )
            if not late or loop.time() >= end:
                return late
            await asyncio.sleep(0.005)


async def _uncancelled(change: Awaitable[Changed]) -> Changed:
    """Await a change that must end within the lock: cancellation takes effect after it."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def reason_of(error: BundleError) -> str:
    """Name the failed check of the gate."""
    if isinstance(error, RefusedError):
        return error.reason
    return {"missing": "unknown", "checksum": "checksum", "answers": "golden"}.get(error.reason, "soundness")
