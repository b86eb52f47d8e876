"""Files and folders that appear whole or not at all."""

import glob
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from turret.data.errors import DataError
from turret.data.files.exchange import exchange
from turret.data.files.locks import tried_lock

# The time between creating and locking, as two processes may replace a file at once; the age at which
# something is abandoned where the file system has no locks.
GRACE_SECONDS, _WITHOUT_LOCKS_SECONDS = 60.0, 86_400.0


@contextmanager
def new_file(target: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield an empty file beside `target` that replaces it by rename, synced to disk, when the block ends.

    `mode` are its permissions, less the umask. When the block raises, the file is removed and `target` is
    unchanged; after a crash, the next replacement of `target` removes the file. Raises OSError.
    """
    remove_abandoned(target, GRACE_SECONDS)
    fresh = target.parent / f".{target.name}.{uuid.uuid4().hex}.new"
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    try:
        with tried_lock(fresh):
            yield fresh
            sync(fresh)
            fresh.replace(target)
            sync(target.parent)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `target` that becomes `target` by rename when the block ends.

    When the block raises, the folder is removed and `target` is unchanged; after a crash, the next call for
    `target` removes the folder. An existing `target` is refused with a `DataError`, or replaced if
    `overwrite` is given: at once where the file system can exchange two folders, else by two renames.
    """
    if target.exists() and not overwrite:
        raise _existing(target)
    remove_abandoned(target)
    # Not mkdtemp, whose folder no other user can read.
    with temporary_folder(target.parent / f".{target.name}.{uuid.uuid4().hex}.new") as fresh:
        yield fresh
        if not (overwrite and target.exists()):
            _rename(fresh, target)
        elif not exchange(fresh, target):  # else `fresh` is the old folder now
            old = fresh.with_suffix(".old")
            target.rename(old)
            fresh.rename(target)
            shutil.rmtree(old)


def _rename(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:
        if target.exists():  # another process has made it meanwhile
            raise _existing(target) from None
        raise


def _existing(target: Path) -> DataError:
    return DataError(f"{target} exists already; choose another folder, or replace it with --overwrite")


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Make a folder, and its parents; lock it during the block, and remove it after it. Raises OSError."""
    try:
        path.mkdir(parents=True)
        with tried_lock(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_abandoned(target: Path, grace: float = 0.0) -> None:
    """Remove unlocked files and folders of earlier calls beside `target` that are older than `grace`."""
    sweep(target.parent, f".{glob.escape(target.name)}.*.new", grace)


def sweep(folder: Path, pattern: str, grace: float, now: float | None = None) -> list[Path]:
    """Remove the files and folders of a pattern that dead processes left in `folder`, and return them.

    They stay while a process holds their lock, while they are younger than `grace` seconds, and if they can't
    be removed. `now` is in seconds since 1970.
    """
    now = time.time() if now is None else now
    removed = []
    for path in sorted(folder.glob(pattern)):
        with suppress(OSError):
            age = now - path.lstat().st_mtime
            if age < grace:
                continue
            with tried_lock(path) as is_locked:
                if is_locked or (is_locked is None and age >= _WITHOUT_LOCKS_SECONDS):
                    _remove(path)
                    removed.append(path)
    return removed


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
