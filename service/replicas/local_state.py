"""The state of one replica, taken from the record of all replicas, or the record made from it."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from time import monotonic

from turret.service.errors import ReplicasUnavailableError, ServiceError
from turret.service.replicas.live_record import LiveRecord, read_record
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.stores.contract import RecordStore
from turret.service.versions.activation_log import ActivationLog, now
from turret.service.versions.activation_state import (
    activation_lock,
    begin_provisionally,
    initialise,
    new_record,
    set_target,
    target_of,
)
from turret.service.versions.traffic_split import stored_routes, write_routes
from turret.tower.errors import BundleError
from turret.tower.format.pointer import current, point
from turret.tower.format.snapshot import Snapshot

_START_SECONDS = 3.0
_PAUSE = 0.2
_log = logging.getLogger("turret.replicas")


def adopt(root: Path, shared_state: SharedState, record: LiveRecord) -> bool:
    """Make the record's activation and routes those of this replica, unless it has newer ones.

    The workers read the routes from the folder; return whether it has those of the record, as it does where
    replicas share it. Else `adopt_routes` has to write them.
    """
    set_target(shared_state, record.number, record.version, Snapshot(record.manifest))
    if record.routes_number > shared_state.routes.value:
        if stored_routes(root) != record.routes:
            return False
        shared_state.routes.raise_to(record.routes_number)
    return True


def adopt_routes(root: Path, shared_state: SharedState, record: LiveRecord) -> None:
    """Write the record's routes into the folder, and make them those of this replica.

    The caller holds the lease, and has read the record since: else it could overwrite newer routes of another
    replica that shares the folder. Raises ServiceError.
    """
    write_routes(root, record.routes)
    shared_state.routes.raise_to(record.routes_number)


def own_record(root: Path, shared_state: SharedState) -> LiveRecord | None:
    """Make the record of the version served here; None if no activation confirmed it."""
    number, version, pinned = target_of(shared_state)
    if number < 1 or pinned is None:
        return None
    return LiveRecord(
        number=number,
        version=version,
        manifest=pinned.manifest,
        time=now(),
        routes=stored_routes(root),
        routes_number=shared_state.routes.value,
    )


def complete_log(root: Path, record: LiveRecord) -> None:
    """Log the record's activation, and point to it, if the replica that took the call could not.

    It has ended, or has another folder. Raises BusyError while another activation has the lock, and
    BundleError or ServiceError if the folder can't be written.
    """
    with activation_lock(root, patience=0):
        activation_log = ActivationLog(root)  # one that has remembered nothing
        if activation_log.sequence >= record.number:
            return
        line = new_record(record.version, record.who, record.previous)
        pinned = {"sequence": record.number, "manifest": record.manifest}
        activation_log.keep(line.model_copy(update=pinned))
        point(root, record.version)


def begin(settings: Settings, shared_state: SharedState, records: RecordStore) -> None:
    """Set the first target of a replica: that of the record, else the folder's current version.

    Runs in the parent process of a service. Raises ServiceError without a version, unless the service waits
    for one.
    """
    shared_state.replicated = True
    root = settings.bundles
    try:
        record = asyncio.run(_read(records))
    except ReplicasUnavailableError as error:
        _log.warning(
            "%s; serving the current version of the folder until the replicas' record is read", error
        )
        with suppress(*((ServiceError, BundleError) if settings.wait else ())):
            begin_provisionally(root, shared_state)
        return
    if record is None:
        if not settings.wait:  # else a worker looks for a version that can be loaded
            initialise(root, ActivationLog(root), shared_state)
        return
    adopt(root, shared_state, record)
    _tell_pointer(root, record)


def _tell_pointer(root: Path, record: LiveRecord) -> None:
    with suppress(BundleError):
        if (pointed := current(root)) not in (None, record.version):
            _log.warning(
                "%s names version %s, but the live version of all replicas is %s; activate %s to serve it",
                root / "current",
                pointed,
                record.version,
                pointed,
            )


async def _read(records: RecordStore) -> LiveRecord | None:
    """Read the record; a Redis that is just starting gets some seconds."""
    end = monotonic() + _START_SECONDS
    try:
        while True:
            try:
                return read_record((await records.view()).record)
            except ReplicasUnavailableError:
                if monotonic() >= end:
                    raise
            await asyncio.sleep(_PAUSE)
    finally:
        await records.close()
