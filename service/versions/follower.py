"""The followers of the record that all workers and replicas share, and the report of each member."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from turret.service.errors import BusyError, ReplicasUnavailableError, ServiceError
from turret.service.observing.metrics import Metrics
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.stores.contract import Late, Member, RecordStore
from turret.service.versions.folder import LOOK_SECONDS, keep, record_of
from turret.service.versions.holder import ModelHolder, open_live
from turret.service.versions.record import Record, Report, new_activation, read_record, read_report
from turret.tower.errors import BundleError

POLL_SECONDS = 0.05
SILENT_SECONDS = 3.0  # a member without a report for this long is not waited for
CUT_OFF_SECONDS = 2.0  # without the record, after which a worker may be silent to the others
FORGET_SECONDS = 600.0  # after which a member that ended without a word is no longer named
STOPPED_SECONDS = 1.0
_TICK_SECONDS = 0.2
_BEAT_SECONDS = 1.0
_FIRST_SECONDS = 0.5
RETRY_SECONDS = 3.0  # from a failed attempt to open a version to the next one: memory may be short
_log = logging.getLogger("turret.replicas")


class Follower:
    """One member: a worker process, named `HOST:PORT/PID`.

    20 times a second it reads two numbers of the `records`, and the record if it has changed. It opens
    new versions, and reports its versions at once, and once a second that it lives. `is_shared`: other
    machines have replicas with the same record. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        holder: ModelHolder,
        records: RecordStore,
        name: str,
        overlay: ItemOverlayCache,
        metrics: Metrics,
        is_shared: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self._is_shared = is_shared
        self._holder = holder
        self._records = records
        self._overlay = overlay
        self._metrics = metrics
        self._clock = clock
        self._stored: bytes | None = None  # the record as it was last read
        self._revision = 0
        self._reading = asyncio.Lock()
        self._looked = clock()
        self._reported: tuple[bytes, float] = (b"", float("-inf"))
        self._kept: Record | None = None  # the record that the folder has
        self._tried_first = float("-inf")
        self._opening: asyncio.Task[None] | None = None
        self._ran = clock()
        self._ticking: asyncio.TimerHandle | None = None
        self._stops = self._caught_up = 0
        self._trouble = ""

    async def join(self) -> None:
        """Report this worker, and load the live version, before the first request is answered.

        An activation that begins later waits for this worker.
        """
        self._tick()
        await self._step_safely()
        if self._holder.has_fallen_back and not self._is_shared:
            await self._activate_fallback()
        await self._open_new()

    async def follow(self) -> None:
        """Follow and report until cancelled."""
        while True:
            await self._step_safely()
            await asyncio.sleep(POLL_SECONDS)

    async def leave(self) -> None:
        """Withdraw the report of this worker, as it ends."""
        for pending in (self._ticking, self._opening):
            if pending is not None:
                pending.cancel()
        with suppress(ReplicasUnavailableError):
            await self._records.leave(self.name)
        await self._records.close()

    @property
    def was_stopped(self) -> bool:
        """Whether this process did not run for more than a second, and has not read the record since.

        It may have missed an activation that all others have reported.
        """
        return self._stops > self._caught_up or self._clock() - self._ran > STOPPED_SECONDS

    def _tick(self) -> None:
        self._note_stop()
        self._ran = self._clock()
        self._ticking = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _note_stop(self) -> None:
        if self._clock() - self._ran > STOPPED_SECONDS:
            self._stops += 1
            self._ran = self._clock()

    async def refresh(self) -> None:
        """Read the record, and open its new versions. An unavailable store changes nothing."""
        with suppress(ReplicasUnavailableError):
            await self.look()
        await self._open_new()

    async def look(self) -> None:
        """Read the numbers of the record, and the record if they have changed.

        A record that is lost, or older than this worker's, is written again. Raises ReplicasUnavailableError.
        """
        self._note_stop()
        stops = self._stops
        try:
            async with self._reading:
                await self._look()
            self._looked, self._holder.is_cut_off = self._clock(), False
        except ReplicasUnavailableError:
            self._holder.is_cut_off = self._clock() - self._looked > CUT_OFF_SECONDS
            raise
        finally:
            self._caught_up = max(self._caught_up, stops)

    async def replace(self, before: Record | None, record: Record) -> None:
        """Replace the record `before`, that this worker has read; None for none.

        Raises BusyError if another member was faster. After ReplicasUnavailableError it may be replaced: all
        members follow it then.
        """
        async with self._reading:
            other = self._holder.record
            if other is before:
                try:
                    stored = await self._records.swap(self._stored or b"", record.encoded())
                except ReplicasUnavailableError as error:
                    words = "the change is not confirmed: if the store has it, all replicas will make it"
                    raise ReplicasUnavailableError(f"{error}; {words}") from None
                if stored == record.encoded():
                    self._stored, self._holder.record = stored, record
                    return
                other = read_record(stored)
            version = other.live.version if other else "none"
            raise BusyError(f"another replica has activated version {version} meanwhile; retry")

    async def late(self, seconds: float, record: int = 0, items: int = 0) -> Late:
        """Wait until all members report these numbers, or later ones; return those that don't in time.

        A silent one is not waited for: it reads the record when it is back. While the members can't be read,
        none is known to have it.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        members: tuple[Member, ...] | None = None
        warning = None
        while True:
            try:
                members, warning = await self._records.members(), None
            except ReplicasUnavailableError as error:
                if members is None:
                    warning = f"no other worker or replica could be asked whether it has the change ({error})"
            late = [
                member
                for member in members or ()
                if member.name != self.name
                and not self._is_gone(member)
                and not read_report(member.report).has(record, items)
            ]
            is_known = members is not None and all(member.age > SILENT_SECONDS for member in late)
            if is_known or loop.time() >= end:
                if warning:
                    _log.warning("%s", warning)
                hosts = {_host(member.name) for member in late if self._process(member) is None}
                return Late(sorted(filter(None, map(self._process, late))), sorted(hosts), warning)
            await asyncio.sleep(LOOK_SECONDS)

    async def announce(self, number: int, seconds: float) -> Late:
        """Tell all members of the change `number` of an item, and wait until they have heard of it.

        The result names the other replicas that have not heard of it in time.
        """
        try:
            await self._records.announce(number)
        except ReplicasUnavailableError as error:
            _log.warning("the other workers learn of a changed item a second later: %s", error)
        late = await self.late(seconds, items=number)
        return late._replace(processes=[])

    async def _step_safely(self) -> None:
        """Follow once; log a trouble once, and its end."""
        trouble, unexpected = "", None
        try:
            await self._step()
        except ReplicasUnavailableError as error:
            trouble = f"{error}; the live version stays, and activations are refused"
            self._holder.others_serve = False
            self._metrics.replicas.set(0)
            self._metrics.replicas_behind.set(0)
        except Exception as error:  # answers continue with the live version
            trouble, unexpected = f"the record of the live version can't be followed: {error!r}", error
        if trouble != self._trouble:
            message = trouble or "the record of the live version is followed again"
            _log.warning("%s", message, exc_info=unexpected)
        self._trouble = trouble

    async def _step(self) -> None:
        holder = self._holder
        try:
            await self.look()
        finally:
            if holder.record is None:
                await self._look_for_first()
            elif holder.is_behind and (self._opening is None or self._opening.done()):
                self._opening = asyncio.create_task(self._open())
            holder.end_candidate()
        # The folder follows: the member that took the call has usually done it already.
        record = holder.record
        is_new = record is not None and record.number > 0 and record != self._kept
        if record is not None and is_new and await asyncio.to_thread(keep, holder.root, record):
            self._kept = record
        await self._beat()

    async def _look(self) -> None:
        revision = await self._records.poll()
        self._overlay.number = revision.items
        if self._stored is not None and revision.record == self._revision:
            return
        is_first, self._stored = self._stored is None, await self._records.read()
        record, held = read_record(self._stored), self._holder.record
        if held is not None and (record is None or record.is_behind(held)):
            record = await self._restore(held, record, is_first)
        if record is not None:
            self._holder.record = record
        self._revision = revision.record

    async def _restore(self, held: Record, stored: Record | None, is_first: bool) -> Record | None:
        """Write this worker's record in place of none, or of one that is older."""
        assert self._stored is not None
        number = max(held.number, (stored.number if stored else 0) + 1)
        live = held.live.model_copy(update={"number": held.live.number or 1})
        held = held.model_copy(update={"number": number, "live": live})
        self._stored = await self._records.swap(self._stored, held.encoded())
        if self._stored == held.encoded() and not is_first:
            was = "missing" if stored is None else f"older (version {stored.live.version})"
            message = "the record of the live version was %s; it says again that version %s is live"
            _log.warning(message, was, held.live.version)
        return read_record(self._stored)

    async def _look_for_first(self) -> None:
        """Make the folder's version the first one, as there is none; tried twice a second."""
        if self._clock() - self._tried_first < _FIRST_SECONDS:
            return
        self._tried_first = self._clock()
        holder = self._holder
        try:
            record = await asyncio.to_thread(record_of, holder.root)
            await asyncio.to_thread(open_live, holder.root, record.live.version)
        except (BundleError, ServiceError) as error:
            holder.why_empty = str(error)
            return
        if self._stored is None:  # the store can't be read
            holder.record = record.unconfirmed()
        else:
            with suppress(BusyError):  # another member was first
                await self.replace(None, record)

    async def _open_new(self) -> None:
        with suppress(BundleError):  # tried again, and logged, by `follow`
            if self._holder.is_behind and not self._holder.has_fallen_back:
                await self._holder.follow()

    async def _open(self) -> None:
        """Open the versions of the record. After a failure, wait a while, or until the record changes."""
        record = self._holder.record
        try:
            await self._holder.follow()
        except Exception as error:
            trace = None if isinstance(error, BundleError) else error
            message = "this worker can't open the active version; retrying in %g seconds: %s"
            _log.error(message, RETRY_SECONDS, str(error) or repr(error), exc_info=trace)
            end = self._clock() + RETRY_SECONDS
            while self._clock() < end and self._holder.record is record:
                await asyncio.sleep(POLL_SECONDS)

    async def _activate_fallback(self) -> None:
        """Activate the version that stands in, in all workers of this service."""
        holder, record, live = self._holder, self._holder.record, self._holder.live
        if record is None:
            return
        words = f"version {record.live.version} can't be opened"
        manifest = live.bundle.digest
        activation = new_activation(live.version, "fallback", manifest=manifest, words=words)
        with suppress(BusyError, ReplicasUnavailableError):  # another worker has done it
            await self.look()
            if holder.record is record:
                await self.replace(record, record.activated(activation))
            await holder.follow()

    async def _beat(self) -> None:
        """Report changes at once, and once a second that this worker lives."""
        holder = self._holder
        numbers = Report(number=holder.number, items=self._overlay.number)
        report = numbers.model_dump_json().encode()
        last, at = self._reported
        if report == last and self._clock() - at < _BEAT_SECONDS:
            return
        members = await self._records.members(self.name, report, FORGET_SECONDS)
        for member in members:
            if self._is_gone(member):  # a worker whose successor this may be
                await self._records.leave(member.name)
        self._reported = report, self._clock()
        if self._is_shared:
            self._count_replicas(members)

    def _count_replicas(self, members: tuple[Member, ...]) -> None:
        """Count the replicas, and those that serve the live version and its routes in all their workers."""
        record, present, behind = self._holder.record, set(), set()
        for member in members:
            is_silent, host = member.age >= SILENT_SECONDS, _host(member.name)
            if not is_silent:
                present.add(host)
            if is_silent or (record is not None and read_report(member.report).number < record.number):
                behind.add(host)
        self._metrics.replicas.set(len(present))
        self._metrics.replicas_behind.set(len(behind))
        self._holder.others_serve = bool(present - behind - {_host(self.name)})

    def _is_gone(self, member: Member) -> bool:
        """Whether a worker of this service has ended without a word."""
        process = self._process(member)
        try:
            if process is not None:
                os.kill(process, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass
        return False

    def _process(self, member: Member) -> int | None:
        """The process of a member of this service; None for one of another replica."""
        host, _, process = member.name.rpartition("/")
        return int(process) if host == _host(self.name) and process.isdecimal() else None


def _host(member: str) -> str:
    return member.rpartition("/")[0]
