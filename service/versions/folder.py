"""The state in the folder of bundles, with which a service begins: pointer, record, log, and their lock.

Where replicas share a record, that counts, and the folder follows.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from turret.data.files import new_file, sync, try_lock
from turret.service.errors import BusyError, ReplicasUnavailableError, ServiceError
from turret.service.versions.record import (
    RECORD_BYTES,
    Activation,
    Record,
    fault_of,
    new_activation,
    read_record,
)
from turret.tower.errors import BundleError
from turret.tower.format.listing import current, point, versions
from turret.tower.format.manifest import manifest_digest
from turret.tower.format.safe_open import no_link

if TYPE_CHECKING:  # a trainer activates versions too, and its image lacks pydantic-settings
    from turret.service.stores.contract import RecordStore

RECORD, LOG = "record.json", "activations.jsonl"
_MOST_CHANGES = 2**53  # that a folder can tell of; the next one has to be a Number, too
_LOG_BYTES = 1_000_000  # that are read: some thousand activations
_LONGEST_LINE = 64_000  # bytes; a line has some hundreds
_PATIENCE = 60.0
LOOK_SECONDS = 0.01  # between two looks of a call that waits for another process or member
_START_SECONDS, _START_PAUSE = 3.0, 0.2  # in which a Redis that is just starting has to answer
_log = logging.getLogger("turret.activation")


def without_folder(message: str, root: Path) -> str:
    """Name files in `message` relative to the folder of bundles `root`, however the path to it is written.

    A path that is a single name, such as `b`, may also be a word: alone it stays.
    """
    for pattern, replacement in _ways_to(root):
        message = pattern.sub(replacement, message)
    return message


@lru_cache(maxsize=8)  # the system calls of a path took a third of the time of a refusal
def _ways_to(root: Path) -> list[tuple[re.Pattern[str], str]]:
    written = {str(root), os.path.abspath(root), os.path.realpath(root)} - {"", ".", os.sep}
    ways = []
    for folder in sorted(written, key=len, reverse=True):
        path = rf"(?<![\w./-]){re.escape(folder)}"
        ways.append((re.compile(path + re.escape(os.sep)), ""))
        if os.sep in folder:
            ways.append((re.compile(rf"{path}(?![\w-])"), "the folder of bundles"))
    return ways


@contextmanager
def activation_lock(root: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Lock the folder against activations and deletions by other processes, of any service.

    Raises BusyError if the lock is not free within `patience` seconds.
    """
    end = time.monotonic() + patience
    with _lockable(root) as descriptor:
        while not _try(root, descriptor):
            if time.monotonic() >= end:
                raise BusyError(f"another activation in {root} is in progress; retry")
            time.sleep(LOOK_SECONDS)
        yield


@asynccontextmanager
async def activation_turn(root: Path) -> AsyncIterator[None]:
    """Like `activation_lock`, for the event loop: waits until it is free or the task is cancelled."""
    with _lockable(root) as descriptor:
        while not _try(root, descriptor):
            await asyncio.sleep(LOOK_SECONDS)
        yield


def _try(root: Path, descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError as error:
        words = "keep it on a local disk, or on a network file system with locks, as NFS 4 or CephFS"
        raise ServiceError(f"{root} can't be locked: {error.strerror}; {words}") from None


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
        words = f"{root} can't be made: {error.strerror}; name another with --bundles"
        raise ServiceError(f"the folder of bundles {words}") from None


async def first_record(root: Path, records: "RecordStore", waits: bool = False) -> Record | None:
    """Read the record of a service, or make it from the folder; closes `records`.

    None if there is none yet, and the service `waits` for a version; the folder's version, unconfirmed, while
    the record can't be read. Raises ServiceError without a version.
    """
    try:
        stored = await _read_patiently(records)
        if (record := read_record(stored)) is not None:
            _tell_pointer(root, record)
            return record
        if waits:  # a worker looks for a version that can be loaded
            return None
        record = record_of(root)
        record = read_record(await records.swap(stored, record.encoded())) or record
        keep(root, record)
        return record
    except ReplicasUnavailableError as error:
        message = "%s; serving the current version of the folder until the replicas' record is read"
        _log.warning(message, error)
        return None if waits else record_of(root).unconfirmed()
    finally:
        await records.close()


async def _read_patiently(records: "RecordStore") -> bytes:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            return await records.read()
        except ReplicasUnavailableError:
            if time.monotonic() >= end:
                raise
        await asyncio.sleep(_START_PAUSE)


def _tell_pointer(root: Path, record: Record) -> None:
    with suppress(BundleError):
        if (pointed := current(root)) not in (None, record.live.version):
            _log.warning(
                "%s names version %s, but the live version of all replicas is %s; activate %s to serve it",
                root / "current",
                pointed,
                record.live.version,
                pointed,
            )


def record_of(root: Path) -> Record:
    """The record that a service begins with: that of the folder, and an activation if its pointer was moved.

    Raises ServiceError, listing all, if there is no current version.
    """
    version, manifest = current(root), None
    if version is None:
        names = [summary.version for summary in versions(root)]
        there = f"there are {', '.join(names)}: activate one" if names else "export one into it"
        raise ServiceError(f"{root} holds no current version; {there}")
    with suppress(BundleError):  # loading it reports the reason
        manifest = manifest_digest(root / version)
    try:
        kept = kept_record(root)
    except ServiceError as error:
        _log.warning("%s", error)
        kept = None
    if kept is None:
        return Record(live=new_activation(version, "start", manifest=manifest))
    if kept.live.version == version and manifest in (None, kept.live.manifest):
        return kept
    return kept.activated(new_activation(version, "pointer", manifest=manifest))


def kept_record(root: Path) -> Record | None:
    """The record that the folder keeps for the next start. Raises ServiceError if the file holds none."""
    path = root / RECORD
    try:
        with open(path, "rb", opener=no_link) as file:
            record = Record.model_validate_json(file.read(RECORD_BYTES))
        if max(record.number, record.live.number or 0) <= _MOST_CHANGES:
            return record
        fault = f"{path} holds no record (its number is above {_MOST_CHANGES})"
    except FileNotFoundError:
        return None
    except OSError as error:
        fault = f"{path} can't be read ({error.strerror})"
    except ValidationError as error:
        fault = f"{path} holds no record ({fault_of(error)})"
    raise ServiceError(f"{fault}; delete it, with its routes and the versions to go back to")


def keep_record(root: Path, record: Record) -> None:
    """Keep a record for the next start, and point to its live version, unless the folder has done so before.

    The caller has the folder's lock. Raises BundleError if the folder can't be written.
    """
    kept = _valid_record(root)
    if kept == record:  # somebody may have moved the pointer since, for the next start
        return
    try:
        with new_file(root / RECORD) as fresh:
            fresh.write_bytes(record.encoded() + b"\n")
    except OSError as error:
        raise BundleError(f"{root / RECORD} can't be written: {error.strerror}") from None
    if kept is None or kept.live != record.live:
        point(root, record.live.version)


def keep(root: Path, record: Record) -> bool:
    """Let the folder follow a record, if it has none that is newer; False while an activation has its lock.

    The log gets the activations since the last one that it has, of each version the last. The first
    of several processes does it. A folder that can't be written keeps its state, which is logged.
    """
    try:
        with activation_lock(root, patience=0):
            kept = _valid_record(root)
            if kept is None or kept.number <= record.number:
                keep_record(root, record)
                known = {(line.number, line.version) for line in _lines(root)}
                entries = (record.live, *record.before)
                missed = takewhile(lambda entry: (entry.number, entry.version) not in known, entries)
                for line in reversed([*missed]):
                    add_line(root, line)
    except BusyError:
        return False
    except (BundleError, ServiceError) as error:
        _log.warning("%s", error)
    return True


def latest_lines(root: Path, most: int | None = None) -> list[Activation]:
    """The latest activations and refusals in the log, newest first, from its last megabyte.

    Any author of models can write the file: lines that are none of ours are left out.
    """
    return list(islice(_lines(root), most))


def add_line(root: Path, line: Activation) -> None:
    """Add an activation that isn't the last one of the log, or a refusal; a failure is logged."""
    path = root / LOG
    last = next((entry for entry in _lines(root) if entry.number), None)
    if line.number and last and (line.number, line.version) == (last.number, last.version):
        return
    try:
        with open(path, "ab+", buffering=0, opener=no_link) as file:
            size = os.fstat(file.fileno()).st_size
            is_torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"  # a crash tore it
            file.write(b"\n" * is_torn + line.model_dump_json(exclude_defaults=True).encode() + b"\n")
            os.fsync(file.fileno())
        sync(path.parent)
    except OSError as error:
        message = "%s can't be written (%s), so it lacks a line: version %s %s"
        _log.warning(message, path, error.strerror, line.version, line.outcome)


def _lines(root: Path) -> Iterator[Activation]:
    with suppress(OSError), open(root / LOG, "rb", opener=no_link) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
        for line in reversed(file.read(_LOG_BYTES).splitlines()):
            with suppress(ValidationError):
                if len(line) < _LONGEST_LINE:
                    yield Activation.model_validate_json(line)


def _valid_record(root: Path) -> Record | None:
    with suppress(ServiceError):  # a change repairs the file
        return kept_record(root)
    return None
