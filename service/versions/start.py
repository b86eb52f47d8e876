"""The record at the start of a service: where it is, and what it says first."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from time import monotonic

from turret.service.errors import ReplicasUnavailableError
from turret.service.settings import Settings
from turret.service.stores.contract import RecordStore
from turret.service.stores.registry import store_kind
from turret.service.stores.sqlite.shared import SqliteRecords
from turret.service.versions.folder import keep, record_of
from turret.service.versions.record import Record, read_record
from turret.tower.errors import BundleError
from turret.tower.format.listing import current

_START_SECONDS, _START_PAUSE = 3.0, 0.2  # in which a Redis that is just starting has to answer
_log = logging.getLogger("turret.replicas")


def open_records(settings: Settings, folder: Path) -> RecordStore:
    """Open the record that all members share: in their store, or else in a file of `folder`, for one machine.

    Raises ServiceError for a faulty address, and for a file that can't be opened.
    """
    opener = store_kind(settings.store).open_records
    return opener(settings) if opener else SqliteRecords(folder / "record.sqlite")


async def first_record(root: Path, records: RecordStore, waits: bool = False) -> Record | None:
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


async def _read_patiently(records: RecordStore) -> bytes:
    end = monotonic() + _START_SECONDS
    while True:
        try:
            return await records.read()
        except ReplicasUnavailableError:
            if monotonic() >= end:
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
