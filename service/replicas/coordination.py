"""Activations of several replicas: one at a time, in one order, and acknowledged by all."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from turret.service.errors import BusyError, ReplicasUnavailableError, ServiceError
from turret.service.replicas.live_record import LiveRecord, Report, read_record, read_report
from turret.service.replicas.local_state import adopt, adopt_routes, own_record
from turret.service.shared_state import SharedState
from turret.service.stores.contract import RecordStore, RecordView
from turret.service.versions.activation_log import ActivationLog, ActivationRecord, number_after
from turret.service.versions.activation_state import set_target, target_of
from turret.service.versions.traffic_split import Routes, stored_routes, write_routes
from turret.tower.errors import BundleError
from turret.tower.format.pointer import current, point
from turret.tower.format.snapshot import Snapshot

SILENT_SECONDS = 3.0  # a replica without a report for this long is not waited for
_LEASE_SECONDS = 10.0
_RENEW_SECONDS = 2.0
_LOOK_SECONDS = 0.01
_log = logging.getLogger("turret.replicas")


class Replicas:
    """The Coordination of a replica `name` with the others, by a record in their common store.

    An activation is made by replacing the record, if it is still the one that the call has read: so no two
    activations have one number, also if a replica is stopped for longer than its lease lasts.
    """

    def __init__(
        self,
        root: Path,
        activation_log: ActivationLog,
        shared_state: SharedState,
        records: RecordStore,
        name: str,
    ) -> None:
        self._root = root
        self._activation_log = activation_log
        self._shared_state = shared_state
        self._records = records
        self._name = name
        self._stored = b""
        self._record: LiveRecord | None = None
        self._others: tuple[str, ...] = ()
        self._trouble = ""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Take the lease of all replicas, and adopt their record; see models.coordination.

        Raises ReplicasUnavailableError.
        """
        holder = f"{self._name}/{os.getpid()}"
        try:
            while not await self._records.take_lease(holder, _LEASE_SECONDS):
                await asyncio.sleep(_LOOK_SECONDS)
        except ReplicasUnavailableError as error:
            raise _unchanged(error) from None
        except asyncio.CancelledError:
            await self._return_lease(holder)
            raise
        renewing = asyncio.create_task(self._renew(holder))
        try:
            try:
                self._stored, self._record = await self.settle(await self._records.view(), has_turn=True)
            except ReplicasUnavailableError as error:
                raise _unchanged(error) from None
            yield
        finally:
            renewing.cancel()
            await self._return_lease(holder)

    async def commit(self, record: ActivationRecord, snapshot: Snapshot) -> int:
        """Replace the record of all replicas, then log; see models.coordination.

        Raises BusyError if another replica was faster. After ReplicasUnavailableError the record may have
        been replaced: all replicas follow it then.
        """
        numbers = (self._record.number if self._record else 0, self._shared_state.target.value)
        number = number_after(max(*numbers, self._activation_log.sequence))
        line = record.model_copy(update={"sequence": number, "manifest": snapshot.manifest})
        routes, routes_number = await self._routes()
        live = LiveRecord(
            number=number,
            version=record.version,
            manifest=snapshot.manifest,
            previous=record.previous,
            who=record.who,
            time=record.time,
            routes=routes,
            routes_number=routes_number,
        )
        before = await asyncio.to_thread(_pointed, self._root)
        await asyncio.to_thread(point, self._root, record.version)
        try:
            await self._swap(live)
        except ServiceError:
            if before:
                with suppress(BundleError):
                    await asyncio.to_thread(point, self._root, before)
            raise
        await asyncio.to_thread(self._activation_log.keep, line)
        set_target(self._shared_state, number, record.version, snapshot)
        return number

    async def commit_routes(self, routes: Routes) -> int:
        """Write the file and replace the record of all replicas; see models.coordination."""
        if self._record is None:
            raise BundleError("no version is live yet; activate one before its routes", "missing")
        number = number_after(self._record.routes_number)
        before = await asyncio.to_thread(stored_routes, self._root)
        await asyncio.to_thread(write_routes, self._root, routes)
        try:
            await self._swap(self._record.model_copy(update={"routes": routes, "routes_number": number}))
        except ServiceError:
            with suppress(ServiceError):
                await asyncio.to_thread(write_routes, self._root, before)
            raise
        self._shared_state.routes.raise_to(number)
        return number

    async def behind(self, number: int, routes: int, seconds: float) -> tuple[str, ...]:
        """Wait for the reports of the other replicas; see models.coordination."""
        return await self._without(
            lambda report: report.number >= number and report.routes >= routes, seconds
        )

    async def items_behind(self, number: int, seconds: float) -> tuple[str, ...]:
        """Wait until all other replicas see change `number` of an item; return those that don't in time."""
        return await self._without(lambda report: report.items >= number, seconds)

    async def settle(self, view: RecordView, has_turn: bool = False) -> tuple[bytes, LiveRecord | None]:
        """Bring this replica to the record, or a lost or older record to this replica's version.

        Return the record afterwards. Raises ReplicasUnavailableError.
        """
        stored, record = view.record, read_record(view.record)
        if self._is_behind_us(record):
            stored, record = await self._restore(stored, record)
        if record is not None and self._is_ahead(record):
            is_done = await asyncio.to_thread(adopt, self._root, self._shared_state, record)
            if not is_done:
                await self._adopt_routes(record, has_turn)
        return stored, record

    async def _adopt_routes(self, record: LiveRecord, has_turn: bool) -> None:
        """Write the record's routes into the folder, unless another replica is about to change them."""
        holder = f"{self._name}/{os.getpid()}/routes"
        if not (has_turn or await self._records.take_lease(holder, _LEASE_SECONDS)):
            return
        try:
            if has_turn or read_record((await self._records.view()).record) == record:
                await asyncio.to_thread(adopt_routes, self._root, self._shared_state, record)
            self._trouble = ""
        except ReplicasUnavailableError:
            raise
        except ServiceError as error:
            if str(error) != self._trouble:
                _log.error("%s", error)
            self._trouble = str(error)
        finally:
            if not has_turn:
                await self._return_lease(holder)

    def _is_behind_us(self, record: LiveRecord | None) -> bool:
        number, _, pinned = target_of(self._shared_state)
        if record is None or pinned is None or record.number != number:
            return record is None or record.number < number
        return record.manifest != pinned.manifest

    def _is_ahead(self, record: LiveRecord) -> bool:
        state = self._shared_state
        return record.number > state.target.value or record.routes_number > state.routes.value

    async def _restore(self, stored: bytes, record: LiveRecord | None) -> tuple[bytes, LiveRecord | None]:
        """Write this replica's version in place of a record that is lost or older."""
        own = await asyncio.to_thread(own_record, self._root, self._shared_state)
        if own is None:
            return stored, record
        if record is not None:
            number = own.number + (own.number == record.number)
            routes = max(own.routes_number, record.routes_number)
            own = own.model_copy(update={"number": number, "routes_number": routes})
        after = await self._records.swap(stored, own.encoded())
        if after == own.encoded():
            _log.warning(
                "the replicas' record was %s; it says again that version %s is live",
                "missing" if record is None else f"older (version {record.version})",
                own.version,
            )
        return after, read_record(after)

    async def _routes(self) -> tuple[Routes, int]:
        if self._record is not None:
            return self._record.routes, self._record.routes_number
        return await asyncio.to_thread(stored_routes, self._root), self._shared_state.routes.value

    async def _swap(self, record: LiveRecord) -> None:
        """Replace the record that this turn began with."""
        try:
            after = await self._records.swap(self._stored, record.encoded())
        except ReplicasUnavailableError as error:
            raise ReplicasUnavailableError(
                f"{error}; the change is not confirmed: if the store has it, all replicas make it when the "
                "store is back"
            ) from None
        if after != record.encoded():
            other = read_record(after)
            raise BusyError(
                f"another replica has activated version {other.version if other else 'none'} meanwhile; retry"
            )
        self._stored, self._record = after, record

    async def _return_lease(self, holder: str) -> None:
        with suppress(ReplicasUnavailableError):  # it ends by itself
            await self._records.prolong_lease(holder, 0)

    async def _renew(self, holder: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with suppress(ReplicasUnavailableError):
                await self._records.prolong_lease(holder, _LEASE_SECONDS)

    async def _without(self, has: Callable[[Report], bool], seconds: float) -> tuple[str, ...]:
        """Wait until the reports of all replicas have something; return the names of the others.

        A silent replica is not waited for: it takes the record when it is back.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            try:
                view = await self._records.view()
            except ReplicasUnavailableError as error:
                _log.warning("the other replicas may be behind: %s", error)
                return self._others
            others = [beat for beat in view.beats if beat.replica != self._name]
            late = [beat for beat in others if not has(read_report(beat.report))]
            self._others = tuple(sorted(beat.replica for beat in late))
            if all(beat.age > SILENT_SECONDS for beat in late) or loop.time() >= end:
                return self._others
            await asyncio.sleep(_LOOK_SECONDS)


def _unchanged(error: ReplicasUnavailableError) -> ReplicasUnavailableError:
    return ReplicasUnavailableError(
        f"{error}; without it the replicas can't agree on a version, so nothing is changed; retry"
    )


def _pointed(root: Path) -> str | None:
    with suppress(BundleError):  # the activation repairs a damaged pointer
        return current(root)
    return None
