"""What should be live: the folder's pointer, the ledger and the board's target, changed together."""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.board import Board
from service.errors import ServiceError
from service.ledger import Entry, Ledger, now
from tower.errors import BundleError
from tower.listing import versions
from tower.pointer import current, point

_PATIENCE = 60.0
_log = logging.getLogger("turret.activation")


@contextmanager
def activation_lock(root: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Keep every other process, of any service on this folder, from activating.

    Waits its turn. Raises ServiceError when that doesn't come within `patience` seconds.
    """
    # The folder itself is locked: it is there where nothing can be written, and the system lets go of it when
    # the holder is killed.
    descriptor = os.open(root, os.O_RDONLY)
    try:
        _lock(descriptor, root, time.monotonic() + patience)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, root: Path, end: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise ServiceError(f"another activation in {root} is under way; try again") from None
            time.sleep(0.01)
        else:
            return


def make_folder(root: Path) -> None:
    """Make the folder of bundles if need be. Raises ServiceError when that can't be done."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(
            f"the folder of bundles {root} can't be made: {error.strerror}; name another with --bundles"
        ) from None


def current_version(root: Path) -> str:
    """Return the folder's current version. Raises ServiceError naming the versions when there is none."""
    known = [one.version for one in versions(root)]
    version = current(root)
    if version is None:
        there = f"there are {', '.join(known)}: activate one" if known else "export one into it"
        raise ServiceError(f"the folder {root} holds no current version; {there}")
    return version


def establish(root: Path, ledger: Ledger, board: Board) -> None:
    """Make the folder's current version the target of a service that has none.

    It goes down in the ledger, unless it is what was live last. Raises ServiceError when there is none.
    """
    version = current_version(root)
    ledger.refresh()
    last = ledger.last
    if last is None or last.version != version:
        who = "start" if last is None else "pointer"
        last = ledger.keep(entry_of(version, who, last.version if last else None))
    board.target.raise_to(last.sequence or 1)


def entry_of(version: str, who: str, previous: str | None, words: str = "") -> Entry:
    """Make the entry of an activation that happens now."""
    return Entry(
        time=now(), version=version, who=who, outcome="activated", previous=previous, words=words[:1000]
    )


def commit(root: Path, ledger: Ledger, board: Board, entry: Entry) -> int:
    """Move the pointer, write the activation down, and make it every worker's target; return its number.

    The caller holds the lock. Raises BundleError, and leaves everything as it was, when the folder can't be
    written.
    """
    before = None
    with suppress(BundleError):  # a damaged pointer is mended by this
        before = current(root)
    point(root, entry.version)
    try:
        written = ledger.add(entry)
    except OSError as error:
        if before:
            point(root, before)
        raise BundleError(f"{ledger.path} can't be written ({error.strerror}); make room for it") from None
    sequence = written.sequence or 1
    board.target.raise_to(sequence)
    return sequence


def fall_back(root: Path, ledger: Ledger, board: Board, entry: Entry) -> int:
    """Commit a fallback, which has to work where the folder can't be written too."""
    try:
        return commit(root, ledger, board, entry)
    except BundleError as error:
        _log.warning("%s", error)
        sequence = ledger.remember(entry).sequence or 1
        board.target.raise_to(sequence)
        return sequence
