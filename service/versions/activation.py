"""Activation of a version for all workers and replicas: check, open, replace the record, wait for all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NamedTuple, NoReturn

from turret.service.errors import BusyError, ConflictError, ReplicasUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import Late, RecordStore, now_ms
from turret.service.versions.folder import LOOK_SECONDS, activation_turn, add_line, keep_record
from turret.service.versions.follower import Follower
from turret.service.versions.gate_report import GateReport, GateRequest
from turret.service.versions.holder import LoadedModel, ModelHolder, open_live
from turret.service.versions.record import Activation, Record, Route, Routes, RuleSet, new_activation, now
from turret.tower.engines.access import check_loaded
from turret.tower.errors import BundleError
from turret.tower.format.checksums import FileStamps, file_stamps
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import Manifest

_LEASE_SECONDS = 10.0
_RENEW_SECONDS = 2.0
_ROLLBACK = " (rollback)"  # after the name of the key
# A version with few answers in common, or of low recall, may be compared.
_WORTH_A_LOOK = frozenset({"overlap", "recall"})
_log = logging.getLogger("turret.activation")


class Swap(NamedTuple):
    """The new live version, the previous one, and the members that are late.

    The warning of `late` also says that the version's engine doesn't hold it.
    """

    version: str
    replaced: str | None
    late: Late


class Activator:
    """Activates, rolls back and routes for all workers and replicas, from any worker.

    Calls run one at a time: by a lock on the folder, which keeps `turret retrain` from deleting a version
    meanwhile, and a lease of the `records`. A change replaces the record that it
    began with: so no two activations have one number, also if a member is stopped for longer than its lease
    lasts. `run_gate` checks a version.
    """

    def __init__(
        self,
        holder: ModelHolder,
        follower: Follower,
        records: RecordStore,
        settings: Settings,
        run_gate: Callable[[GateRequest], Awaitable[GateReport]],
    ) -> None:
        self._holder = holder
        self._follower = follower
        self._records = records
        self._settings = settings
        self._run_gate = run_gate
        self._root = holder.root

    async def activate(
        self, version: str, force: bool = False, who: str = "admin", compared: bool = False
    ) -> Swap:
        """Make `version` live everywhere, after it has passed the gate.

        `force` and `compared` are those of `GateRequest`. Raises BundleError, without any effect, if a check
        fails, its `reason`; BusyError if other calls hold the lock too long.
        """
        async with self._turn() as before:
            report, checked = await self._check(before, version, force, who, compared=compared)
            failed = (report.reason,) if report.failed else ()
            line = new_activation(version, who, manifest=report.manifest, forced=force, failed=failed)
            live = await asyncio.to_thread(open_live, self._root, version, report.manifest, checked)
            if before is not None and not force:
                await self._check_rules(before, live, before.routes.rules, who)
            after = await self._make_live(before, line, live)
        return await self._swapped(after)

    async def roll_back(self, version: str, who: str = "admin") -> Swap:
        """Replace the live `version` by the previous one, also by one from before a restart.

        A repeated call changes nothing. Raises ConflictError if another version is live.
        It passed the gate when it went live, so only its content, checksums and golden queries are compared;
        a collection that its engine has lost is a warning.
        Raises BundleError if there is none or it can't be loaded, BusyError like `activate`.
        """
        async with self._turn() as before:
            if before is None or not before.before:
                raise BundleError("no other version was live before; activate one by its name", "missing")
            live, last = before.live, before.before[0]
            if version == live.previous and live.who.endswith(_ROLLBACK):
                after = before
            elif version != live.version:
                message = f"version {live.version} is live; look at it, and name it to roll it back"
                raise ConflictError("version", version, message)
            else:
                line = new_activation(last.version, f"{who}{_ROLLBACK}", manifest=last.manifest)
                opened = await asyncio.to_thread(open_live, self._root, last.version, last.manifest)
                after = await self._make_live(before, line, opened)
        return await self._swapped(after)

    async def route(self, change: Callable[[Routes], Routes]) -> Late:
        """Apply changed routes everywhere and store them; return who is late.

        Raises BundleError if one of their versions fails the gate, BusyError like `activate`.
        """
        async with self._turn() as before:
            if before is None:
                raise BundleError("no version is live yet; activate one before its routes", "missing")
            after, changed = before, change(before.routes)
            if changed is not before.routes:
                routes, opened = await self._checked(before, changed)
                after = before.routed(routes)
                await self._commit(before, after)
                await self._holder.take(after, *opened)
        return await self._follower.late(self._settings.activation_seconds, record=after.number)

    async def compare(self, version: str | None) -> Late:
        """Open a version everywhere for a comparison, in place of any other; None ends it.

        Raises as `route`.
        """
        candidate = Route(version=version, opened=now_ms()) if version else None
        return await self.route(lambda routes: routes.model_copy(update={"candidate": candidate}))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Record | None]:
        """Hold all locks of activations, with one deadline for all of them, and give the record."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._settings.activation_seconds) as limit:
                    await stack.enter_async_context(activation_turn(self._root))
                    await stack.enter_async_context(self._lease())
                    await self._follower.look()
                    await stack.enter_async_context(self._holder.change_lock)
            except ReplicasUnavailableError as error:
                raise ReplicasUnavailableError(f"{error}; so nothing is changed; retry") from None
            except TimeoutError:
                if not limit.expired():
                    raise
                seconds = f"{self._settings.activation_seconds:g} seconds"
                raise BusyError(f"another activation has been in progress for {seconds}; retry") from None
            yield self._holder.record

    @asynccontextmanager
    async def _lease(self) -> AsyncIterator[None]:
        """Hold the lease of all members, and renew it meanwhile."""
        holder = self._follower.name
        renewing = asyncio.create_task(self._renew(holder))
        try:
            while not await self._records.take_lease(holder, _LEASE_SECONDS):
                await asyncio.sleep(LOOK_SECONDS)
            yield
        finally:
            renewing.cancel()
            with suppress(ReplicasUnavailableError):  # it ends by itself
                await self._records.take_lease(holder, 0)

    async def _renew(self, holder: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with suppress(ReplicasUnavailableError):
                await self._records.take_lease(holder, _LEASE_SECONDS)

    async def _checked(self, before: Record, routes: Routes) -> tuple[Routes, list[LoadedModel]]:
        """Check and open the versions of routes that are not loaded here, and pin the content of each."""
        pinned, opened = dict[str, Route | None](), list[LoadedModel]()
        for kind, route in ((kind, getattr(routes, kind)) for kind in ("canary", "shadow", "candidate")):
            if route is None:
                continue
            # An old route proves nothing: the folder may have other files by now.
            loaded: LoadedModel | None = getattr(self._holder.traffic, kind)
            if loaded is not None and loaded.version == route.version:
                manifest: str | None = loaded.bundle.digest
            else:
                accepted = _WORTH_A_LOOK if kind == "candidate" else frozenset()
                report, checked = await self._check(before, route.version, True, "routes", accepted)
                manifest = report.manifest
                model = await asyncio.to_thread(open_live, self._root, route.version, manifest, checked)
                opened.append(model)
                if kind == "canary":
                    await self._check_rules(before, model, routes.rules, "routes")
            pinned[kind] = route.model_copy(update={"manifest": manifest})
        return routes.model_copy(update=pinned), opened

    async def _check(
        self,
        before: Record | None,
        version: str,
        force: bool,
        who: str,
        accepted: frozenset[str] = frozenset(),
        compared: bool = False,
    ) -> tuple[GateReport, FileStamps | None]:
        """Raise BundleError, and log it, unless a version passes the gate but for `accepted` checks.

        Also returns the stamps of its files from before the gate read them.
        """
        settings, stamps = self._settings, None
        with suppress(BundleError):  # the gate names the fault
            stamps = await asyncio.to_thread(file_stamps, version_folder(self._root, version))
        report = await self._run_gate(
            GateRequest(
                root=self._root,
                version=version,
                live=before.live.version if before else None,
                force=force,
                compared=compared,
                overlap_minimum=settings.overlap_minimum,
                recall_minimum=settings.recall_minimum,
            )
        )
        if not report.passed and report.reason not in accepted:
            await self._refuse(before, version, who, report.reason, report.refusal)
        return report, stamps

    async def _check_rules(
        self, before: Record | None, opened: LoadedModel, rules: RuleSet, who: str
    ) -> None:
        """Raise BundleError, and log it, where the catalog of a version can't apply a rule."""
        if fault := rules.fault(opened.bundle.catalog):
            name, error = fault
            message = f"{opened.version} can't apply the rule {name!r} ({error}); change the rule"
            await self._refuse(before, opened.version, who, "rules", message)

    async def _refuse(
        self, before: Record | None, version: str, who: str, reason: str, words: str
    ) -> NoReturn:
        refused = Activation(
            time=now(),
            version=version,
            who=who,
            outcome="refused",
            previous=before.live.version if before else None,
            failed=(reason,),
            words=words[:1000],
        )
        await asyncio.to_thread(add_line, self._root, refused)
        raise BundleError(words, reason)

    async def _make_live(self, before: Record | None, line: Activation, live: LoadedModel) -> Record:
        """Make an opened version that of the record, of the folder, and of this worker."""
        await self._holder.prepare(live.bundle)
        line = line.model_copy(update={"manifest": live.bundle.digest})
        after = before.activated(line) if before else Record(live=line)
        await self._commit(before, after)
        await self._holder.take(after, live)
        return after

    async def _commit(self, before: Record | None, after: Record) -> None:
        """Replace the record, in the folder and for all members, and log; without effect if it raises.

        A cancellation takes effect after it.
        """

        async def replace() -> None:
            try:
                await asyncio.to_thread(keep_record, self._root, after)
                await self._follower.replace(before, after)
            except (BundleError, ServiceError):
                if before is not None:
                    with suppress(BundleError, ServiceError):
                        await asyncio.to_thread(keep_record, self._root, before)
                raise
            await asyncio.to_thread(add_line, self._root, after.live)

        task = asyncio.create_task(replace())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _swapped(self, after: Record) -> Swap:
        """Wait for the others, and for the engine, without the lock: a late one loads the newest version."""
        missing = await asyncio.to_thread(_missing_collection, self._holder.live.bundle.manifest)
        late = await self._follower.late(self._settings.activation_seconds, record=after.number)
        warning = "; ".join(filter(None, (missing, late.warning)))
        return Swap(after.live.version, after.live.previous, late._replace(warning=warning or None))


def _missing_collection(live: Manifest) -> str | None:
    """A warning where the engine of `live` doesn't hold its whole collection.

    An activation is refused by the gate for an incomplete collection, a rollback is not: the version that it
    leaves is worse than the exact search, which answers as long as the engine doesn't.
    """
    try:
        check_loaded(live)
    except BundleError as error:
        warning = f"the exact search answers for {live.version}, which its engine doesn't hold: {error}"
        _log.warning("%s", warning)
        return warning
    return None
