"""What the folder of bundles keeps of the record over restarts: the pointer, the routes, the log.

A service on a local store begins with it. Where replicas share a record, that counts, and the folder follows.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from turret.data.files.locks import try_lock
from turret.data.files.staging import new_file
from turret.service.errors import BusyError, ServiceError
from turret.service.versions import log
from turret.service.versions.record import Activation, Record, Routes, now, number_after
from turret.tower.errors import BundleError
from turret.tower.format.listing import versions
from turret.tower.format.pointer import current, point
from turret.tower.format.safe_open import no_link
from turret.tower.format.snapshot import take_snapshot

ROUTES = "routes.json"
_ROUTES_BYTES = 100_000
_PATIENCE = 60.0
_LOOK_SECONDS = 0.01
_log = logging.getLogger("turret.activation")


def without_folder(message: str, root: Path) -> str:
    """Name files in `message` relative to the folder of bundles `root`, however the path to it is written.

    A path that is a single name, such as `b`, may also be a word: alone it stays.
    """
    written = {str(root), os.path.abspath(root), os.path.realpath(root)} - {"", ".", os.sep}
    for folder in sorted(written, key=len, reverse=True):
        path = rf"(?<![\w./-]){re.escape(folder)}"
        message = re.sub(path + re.escape(os.sep), "", message)
        if os.sep in folder:
            message = re.sub(rf"{path}(?![\w-])", "the folder of bundles", message)
    return message


@contextmanager
def activation_lock(root: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Lock the folder against activations and deletions by other processes, of any service.

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


def record_of(root: Path) -> Record:
    """Make the record of a new service: the folder's current version, those of its log before, its routes.

    Raises ServiceError if there is no current version.
    """
    version = current_version(root)
    manifest = None
    with suppress(BundleError):  # loading it reports the reason
        manifest = take_snapshot(root / version).manifest
    logged = log.activations(root)
    last = logged[0] if logged else None
    if last is None or last.version != version or (manifest and last.manifest not in (None, manifest)):
        last = Activation(
            time=now(),
            version=version,
            who="pointer" if logged else "start",
            outcome="activated",
            number=number_after(logged[0].number or 0) if logged else 1,
            previous=logged[0].version if logged else None,
        )
    try:
        routes = read_routes(root)
    except ServiceError as error:
        _log.warning("%s", error)
        routes = Routes()
    live = last.model_copy(update={"manifest": manifest})
    before = tuple(one for one in logged if one.version != version)
    is_routed = routes != Routes()
    return Record(live=live, before=before[:100], routes=routes, routes_number=int(is_routed))


def pointed(root: Path) -> str | None:
    """The folder's current version; None for none, and for a damaged pointer, which a change repairs."""
    with suppress(BundleError):
        return current(root)
    return None


def last_number(root: Path) -> int:
    """The number of the last activation that the folder's log has, 0 for none."""
    return max((line.number or 0 for line in log.activations(root)), default=0)


def keep(root: Path, record: Record) -> bool:
    """Let the folder follow a record: log its activation, point to it, and store its routes.

    Only what the folder lacks is written: of several processes, the first that has the folder's lock does it,
    and a pointer that somebody moves afterwards, for the next start, stays. A folder that can't be written
    keeps its state, which is logged. False while an activation has the lock.
    """
    try:
        with activation_lock(root, patience=0):
            keep_locked(root, record)
    except BusyError:
        return False
    except (BundleError, ServiceError) as error:
        _log.warning("%s", error)
    return True


def keep_locked(root: Path, record: Record) -> None:
    """Like `keep`, for a caller that has the folder's lock. Raises BundleError or ServiceError."""
    if record.number > last_number(root):
        log.add(root, record.live)
        if pointed(root) != record.live.version:
            point(root, record.live.version)
    if stored_routes(root) != record.routes:
        write_routes(root, record.routes)


def read_routes(root: Path) -> Routes:
    """Read the routes of a bundles folder. Raises ServiceError if the file is not valid."""
    path = root / ROUTES
    try:
        with open(path, "rb", opener=no_link) as file:
            return Routes.model_validate_json(file.read(_ROUTES_BYTES))
    except FileNotFoundError:
        return Routes()
    except OSError as error:
        raise ServiceError(
            f"{path} can't be read ({error.strerror}); the live version answers all requests"
        ) from None
    except ValidationError as error:
        raise ServiceError(
            f"{path} is not a valid routes file ({error.errors()[0]['msg']}); "
            "the live version answers all requests; send the routes again to /admin/routes"
        ) from None


def stored_routes(root: Path) -> Routes:
    """Read the routes file; an invalid one holds none."""
    with suppress(ServiceError):
        return read_routes(root)
    return Routes()


def write_routes(root: Path, routes: Routes) -> None:
    """Replace the routes by rename. Raises ServiceError if the folder can't be written."""
    path = root / ROUTES
    try:
        with new_file(path) as fresh:
            fresh.write_text(routes.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise ServiceError(f"{path} can't be written ({error.strerror}); the routes are unchanged") from None
