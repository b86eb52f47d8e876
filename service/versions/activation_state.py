"""The activation state: the folder's pointer, the activation log and the shared target, changed together."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from turret.data.files.locks import try_lock
from turret.service.errors import BusyError, ServiceError
from turret.service.shared_state import SharedState
from turret.service.versions.activation_log import ActivationLog, ActivationRecord, now
from turret.tower.errors import BundleError
from turret.tower.format.listing import versions
from turret.tower.format.pointer import current, point
from turret.tower.format.snapshot import Snapshot, take_snapshot

_PATIENCE = 60.0
PROVISIONAL = -1  # the number of a target that no activation has confirmed
_LOOK_SECONDS = 0.01
_log = logging.getLogger("turret.activation")


@contextmanager
def activation_lock(root: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Lock the folder against activations by other processes, of any service.

    Raises BusyError if the lock is not free within `patience` seconds.
    """
    end = time.monotonic() + patience
    with _lockable(root) as descriptor:
        while not try_lock(descriptor):
            if time.monotonic() >= end:
                raise BusyError(f"another activation in {root} is in progress; retry")
            time.sleep(_LOOK_SECONDS)
        yield


@asynccontextmanager
async def activation_turn(root: Path) -> AsyncIterator[None]:
    """Like `activation_lock`, for the event loop: waits until it is free or the task is cancelled."""
    with _lockable(root) as descriptor:
        while not try_lock(descriptor):
            await asyncio.sleep(_LOOK_SECONDS)
        yield


@contextmanager
def _lockable(root: Path) -> Iterator[int]:
    # The lock is on the folder itself, which exists even if read-only; the system releases it when its holder
    # is killed.
    try:
        descriptor = os.open(root, os.O_RDONLY)
    except OSError as error:
        raise ServiceError(f"the folder of bundles can't be opened: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(root: Path) -> None:
    """Make the bundles folder if need be. Raises ServiceError."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(
            f"the folder of bundles {root} can't be made: {error.strerror}; name another with --bundles"
        ) from None


def current_version(root: Path) -> str:
    """Return the folder's current version. Raises ServiceError, listing all, if there is none."""
    names = [summary.version for summary in versions(root)]
    version = current(root)
    if version is None:
        there = f"there are {', '.join(names)}: activate one" if names else "export one into it"
        raise ServiceError(f"{root} holds no current version; {there}")
    return version


def initialise(root: Path, activation_log: ActivationLog, shared_state: SharedState) -> None:
    """Make the folder's current version the target of a new service.

    It is logged as an activation unless it was live last. Raises ServiceError if there is none.
    """
    version, snapshot = _pointed(root)
    manifest = snapshot.manifest if snapshot else None
    activation_log.refresh()
    last = activation_log.last
    if last is None or last.version != version or (manifest and last.manifest not in (None, manifest)):
        record = new_record(version, "start" if last is None else "pointer", last.version if last else None)
        last = activation_log.keep(record.model_copy(update={"manifest": manifest}))
    set_target(shared_state, last.sequence or 1, version, snapshot)


def begin_provisionally(root: Path, shared_state: SharedState) -> None:
    """Make the folder's current version the target until the activation of all replicas is known.

    Nothing is logged. Raises ServiceError if there is no current version.
    """
    version, snapshot = _pointed(root)
    shared_state.target.begin_with(PROVISIONAL, _pin(snapshot), version)


def _pointed(root: Path) -> tuple[str, Snapshot | None]:
    """Return the current version with its content, None if that can't be read."""
    version = current_version(root)
    try:
        return version, Snapshot(take_snapshot(root / version).manifest)
    except BundleError:  # loading it reports the reason
        return version, None


def new_record(version: str, who: str, previous: str | None, reason: str = "") -> ActivationRecord:
    """Make the record of an activation at this time."""
    return ActivationRecord(
        time=now(), version=version, who=who, outcome="activated", previous=previous, words=reason[:1000]
    )


def target_of(shared_state: SharedState) -> tuple[int, str, Snapshot | None]:
    """Return the number of the target activation, its version, and the required content of that."""
    sequence, pin, version = shared_state.target.pinned
    manifest, files = pin[:32], pin[32:]
    if not any(manifest):
        return sequence, version, None
    return sequence, version, Snapshot(manifest.hex(), files.hex() if any(files) else "")


def set_target(shared_state: SharedState, sequence: int, version: str, snapshot: Snapshot | None) -> None:
    """Raise the target to an activation of `version` with this content."""
    shared_state.target.raise_to(sequence, _pin(snapshot), version)


def _pin(snapshot: Snapshot | None) -> bytes:
    pin = bytes.fromhex(snapshot.manifest + snapshot.files) if snapshot else b""
    return pin.ljust(64, b"\0")


def commit(
    root: Path,
    activation_log: ActivationLog,
    shared_state: SharedState,
    record: ActivationRecord,
    snapshot: Snapshot,
) -> int:
    """Move the pointer, log the activation, and make it every worker's target; return its number.

    `snapshot` pins the version's content. The caller holds the lock. Raises BundleError, without any effect,
    if the folder can't be written.
    """
    record = record.model_copy(update={"manifest": snapshot.manifest})
    before = None
    with suppress(BundleError):  # this repairs a damaged pointer
        before = current(root)
    point(root, record.version)
    try:
        written = activation_log.add(record)
    except (BundleError, OSError) as error:
        if before:
            point(root, before)
        if isinstance(error, BundleError):
            raise
        raise BundleError(
            f"{activation_log.path} can't be written ({error.strerror}); make room for it, or "
            "move away what is in its place"
        ) from None
    sequence = written.sequence or 1
    set_target(shared_state, sequence, record.version, snapshot)
    return sequence


def fall_back(
    root: Path,
    activation_log: ActivationLog,
    shared_state: SharedState,
    record: ActivationRecord,
    snapshot: Snapshot,
) -> int:
    """Commit a fallback, also with a read-only folder."""
    try:
        return commit(root, activation_log, shared_state, record, snapshot)
    except BundleError as error:
        _log.warning("%s", error)
        record = record.model_copy(update={"manifest": snapshot.manifest})
        sequence = activation_log.remember(record).sequence or 1
        set_target(shared_state, sequence, record.version, snapshot)
        return sequence
