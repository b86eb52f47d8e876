"""Follows the record of all replicas, and reports the version served here."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from turret.service.errors import BusyError, ReplicasUnavailableError, ServiceError
from turret.service.replicas.coordination import SILENT_SECONDS, Replicas
from turret.service.replicas.live_record import LiveRecord, Report, read_report
from turret.service.replicas.local_state import complete_log
from turret.service.stores.contract import Beat, RecordStore, RecordView
from turret.service.telemetry.metrics import Metrics
from turret.service.versions.activation_state import (
    activation_lock,
    begin_provisionally,
    current_version,
    initialise,
)
from turret.service.versions.loaded_model import open_live
from turret.service.versions.model_holder import ModelHolder
from turret.tower.errors import BundleError

POLL_SECONDS = 0.05
FORGET_SECONDS = 600.0  # after which a replica that ended without a word is no longer named
_BEAT_SECONDS = 1.0
_COMPLETE_SECONDS = 2.0  # in which the replica that took a call logs its activation
_FIRST_SECONDS = 0.5
_HANGS_SECONDS = 1.0  # a worker without a heartbeat for this long leaves the record to the next one
_log = logging.getLogger("turret.replicas")


class Follower:
    """Follows for all workers of a replica, in the first one that runs; others follow the shared state.

    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        model_holder: ModelHolder,
        replicas: Replicas,
        records: RecordStore,
        name: str,
        metrics: Metrics,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._model_holder = model_holder
        self._shared_state = model_holder.shared_state
        self._replicas = replicas
        self._records = records
        self._name = name
        self._metrics = metrics
        self._clock = clock
        self._items = 0
        self._reported: tuple[bytes, float] = (b"", 0.0)
        self._adopted: tuple[int, float | None] = (0, None)  # since when its line may be missing
        self._tried_first = float("-inf")
        self._trouble = ""

    async def join(self) -> None:
        """Report this replica and load the live version before the first request is answered.

        An activation that begins later waits for this replica.
        """
        await self._step_safely()
        with suppress(BundleError, ServiceError):  # `follow` of the worker tries again, and logs it
            if self._shared_state.target.value:
                await self._model_holder.follow()

    async def follow(self) -> None:
        """Follow and report until cancelled."""
        while True:
            if not self._leads():
                self._metrics.replicas.set(0)
                self._metrics.replicas_behind.set(0)
            elif await self._step_safely():
                continue
            await asyncio.sleep(POLL_SECONDS)

    async def leave(self) -> None:
        """Withdraw the report of this replica, as it ends."""
        with suppress(ReplicasUnavailableError):
            await self._records.leave(self._name)
        await self._records.close()

    def _leads(self) -> bool:
        """Whether no worker before this one runs; two that do so for a moment do the same."""
        number = self._model_holder.worker_slot.number
        return not any(
            slot.pid and slot.silence < _HANGS_SECONDS for slot in self._shared_state.slots[:number]
        )

    async def _step_safely(self) -> bool:
        """Take a step; return whether something has changed that has to be reported at once."""
        try:
            changed = await self._step()
        except ReplicasUnavailableError as error:
            self._tell(f"{error}; the live version stays, and activations are refused")
            return False
        except Exception as error:  # answers continue with the live version
            self._tell(f"the replicas' record can't be followed: {error!r}", error)
            return False
        if self._trouble:
            _log.warning("the replicas' record is followed again")
            self._trouble = ""
        return changed

    def _tell(self, trouble: str, error: Exception | None = None) -> None:
        """Log once why this replica cannot follow."""
        if trouble != self._trouble:
            _log.warning("%s", trouble, exc_info=error)
        self._trouble = trouble

    async def _step(self) -> bool:
        try:
            view = await self._look()
            _, record = await self._replicas.settle(view)
        except ReplicasUnavailableError:
            self._metrics.replicas.set(0)
            self._metrics.replicas_behind.set(0)
            self._shared_state.others_serve = False
            await self._look_for_first(is_confirmed=False)
            raise
        changed = view.items != self._items
        if changed:
            self._shared_state.items.bump()
            self._items = view.items
        self._watch(view.beats, record)
        if record is None:
            await self._look_for_first(is_confirmed=True)
        else:
            await self._complete_log(record)
        return changed

    async def _look(self) -> RecordView:
        """Read the record and all reports; report what is new, and once a second that this replica lives."""
        report = self._report().model_dump_json().encode()
        last, at = self._reported
        if report == last and self._clock() - at < _BEAT_SECONDS:
            return await self._records.view()
        view = await self._records.view(self._name, report, FORGET_SECONDS)
        self._reported = report, self._clock()
        return view

    def _report(self) -> Report:
        slots = [slot for slot in self._shared_state.slots if slot.pid]
        return Report(
            number=min((slot.live for slot in slots), default=0),
            routes=min((slot.routes for slot in slots), default=0),
            items=self._items,
        )

    def _watch(self, beats: tuple[Beat, ...], record: LiveRecord | None) -> None:
        number, routes = (record.number, record.routes_number) if record else (0, 0)
        present = {beat.replica for beat in beats if beat.age < SILENT_SECONDS}
        reports = {beat.replica: read_report(beat.report) for beat in beats}
        serving = {
            name
            for name, report in reports.items()
            if name in present and report.number >= number and report.routes >= routes
        }
        self._metrics.replicas.set(len(present))
        self._metrics.replicas_behind.set(len(reports) - len(serving))
        self._shared_state.others_serve = bool(serving - {self._name})

    async def _look_for_first(self, is_confirmed: bool) -> None:
        """Make the folder's version the first one, as no replica has one; tried twice a second."""
        target = self._shared_state.target.value
        if target > 0 or (target and not is_confirmed) or self._clock() - self._tried_first < _FIRST_SECONDS:
            return
        self._tried_first = self._clock()
        await asyncio.to_thread(self._make_first, is_confirmed)

    def _make_first(self, is_confirmed: bool) -> None:
        model_holder = self._model_holder
        root = model_holder.root
        try:
            open_live(root, current_version(root))
            if not is_confirmed:
                begin_provisionally(root, self._shared_state)
                return
            with activation_lock(root, patience=0):
                initialise(root, model_holder.activation_log, self._shared_state)
        except (BundleError, ServiceError) as error:
            model_holder.why_empty = str(error)

    async def _complete_log(self, record: LiveRecord) -> None:
        number, since = self._adopted
        if number != record.number:
            self._adopted = record.number, self._clock()
        elif since is not None and self._clock() - since > _COMPLETE_SECONDS:
            try:
                await asyncio.to_thread(complete_log, self._model_holder.root, record)
            except BusyError:
                self._adopted = number, self._clock()
                return
            except (BundleError, ServiceError) as error:
                _log.warning("%s", error)
            self._adopted = number, None
