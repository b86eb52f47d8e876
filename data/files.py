"""Arrays in files, folders that appear whole or not at all, locks, and ordered work in threads."""

import fcntl
import glob
import json
import os
import shutil
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turret.data.errors import DataError


def open_array(path: Path, *dtypes: str) -> NDArray[Any]:
    """Map the `.npy` file `path` into memory, read-only.

    Raises DataError when the file is missing, is not an array, or does not hold one of `dtypes`.
    """
    try:
        values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; prepare the data again") from None
    except (ValueError, EOFError):  # perhaps an empty array, which can't be mapped
        try:
            values = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise DataError(f"{path} is not a .npy array ({error}); prepare the data again") from None
    if values.dtype not in map(np.dtype, dtypes):
        expected = " or ".join(dtypes)
        raise DataError(f"{path} holds {values.dtype} where {expected} is expected; prepare the data again")
    return values


class ArrayFile:
    """An array written in pieces to a `.npy` file, which is complete once closed.

    The array has numbers [N], or rows [N, width]. Pieces are read and written without a memory map, whose
    pages would count as memory of this process.
    """

    def __init__(self, path: Path, dtype: DTypeLike, *width: int) -> None:
        self.path = path
        self.dtype = np.dtype((dtype, width))
        self._file = path.open("wb")
        self._length = 0
        self._write_header()
        self._start = self._file.tell()

    def write(self, values: NDArray[Any], position: int | None = None) -> None:
        """Write `values` at `position`, or append them."""
        position = self._length if position is None else position
        self._file.seek(self._start + position * self.dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype.base).data)
        self._length = max(self._length, position + len(values))

    def close(self) -> None:
        """Write the length into the header, and close the file."""
        if not self._file.closed:
            self._write_header()
            self._file.close()

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Return values `first` to `last` (exclusive) of the closed file."""
        offset = self._start + first * self.dtype.itemsize
        return np.fromfile(self.path, self.dtype, count=last - first, offset=offset)

    def _write_header(self) -> None:
        # NumPy pads the header for any length, so it keeps its size when written again.
        self._file.seek(0)
        descr, shape = np.lib.format.dtype_to_descr(self.dtype.base), (self._length, *self.dtype.shape)
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def try_lock(descriptor: int) -> bool:
    """Lock the open file or folder of `descriptor` until it is closed; False if another process holds it.

    Raises OSError where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def tried_lock(path: Path) -> Iterator[bool | None]:
    """Try to lock a file or folder during the block, which receives the result; None without locks.

    Raises OSError when the path can't be opened, or is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe must not block
    try:
        try:
            is_locked: bool | None = try_lock(descriptor)
        except OSError:
            is_locked = None
        yield is_locked
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process locks a folder, and lock it during the block. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


Piece = TypeVar("Piece")
Result = TypeVar("Result")

_MAX_THREADS = 8  # each thread holds a piece in memory


def map_ordered(function: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """Yield `function(piece)` for all pieces, in order, computed in threads ahead of the reader.

    The function should release the interpreter lock, as those of NumPy and hashlib do. At most one piece per
    thread is ahead of the reader, which bounds memory.
    """
    threads = min(_MAX_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for piece in pieces:
                pending.append(pool.submit(function, piece))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


# The first is the time between creating and locking a file, as two processes may replace it at once; the
# second is the age at which a file or folder is abandoned where the file system has no locks.
GRACE_SECONDS, _WITHOUT_LOCKS_SECONDS = 60.0, 86_400.0
_SCRATCH = ".turret-"


@contextmanager
def new_file(target: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield an empty file beside `target` that replaces it by rename, synced to disk, when the block ends.

    `mode` are the permissions of the file, less the umask. When the block raises, the file is removed and
    `target` is unchanged; after a crash, the next replacement of `target` removes the file. Raises OSError.
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
    `overwrite` is given, by two renames; after a crash between them, the next call brings it back.
    """
    if any(target.parent.glob(f".{glob.escape(target.name)}.*")):
        _restore(target)
        remove_abandoned(target)
    existing = DataError(f"{target} exists already; choose another folder, or replace it with --overwrite")
    if target.exists() and not overwrite:
        raise existing
    # A folder of mkdtemp could be read by no other user.
    with temporary_folder(target.parent / f".{target.name}.{uuid.uuid4().hex}.new") as fresh:
        yield fresh
        old = fresh.with_suffix(".old")
        if overwrite and target.exists():
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            if target.exists():  # another process has made the folder meanwhile
                raise existing from None
            raise
        shutil.rmtree(old, ignore_errors=True)


def _restore(target: Path) -> None:
    """Bring back a folder that a dead process moved away, or remove it where another folder has its place."""
    for old in target.parent.glob(f".{glob.escape(target.name)}.*.old"):
        with suppress(OSError):
            if target.exists():
                shutil.rmtree(old)
                continue
            with tried_lock(old.with_suffix(".new")) as is_locked:
                if is_locked is not False:
                    old.rename(target)


@contextmanager
def temporary_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Make a folder and its parents; lock the folder during the block, then remove it. Raises OSError."""
    try:
        path.mkdir(mode, parents=True)
        with tried_lock(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def scratch_folder(place: Path | None = None) -> Iterator[Path]:
    """Make a private folder in `place`, or in the folder of temporary files, and remove it after the block.

    Folders that killed processes left there are removed; systemd-tmpfiles leaves locked folders alone. Raises
    OSError.
    """
    place = place or Path(tempfile.gettempdir())
    sweep(place, f"{_SCRATCH}*/", GRACE_SECONDS)
    with temporary_folder(place.absolute() / f"{_SCRATCH}{uuid.uuid4().hex}", 0o700) as folder:
        yield folder


def sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_json(path: Path, content: dict[str, Any]) -> str:
    """Replace the file at `path` by `content` as JSON, and return the text."""
    text = json.dumps(content, indent=2, allow_nan=False)
    with new_file(path) as draft:
        draft.write_text(text + "\n", encoding="utf-8")
    return text


def remove_abandoned(target: Path, grace: float = 0.0) -> None:
    """Remove unlocked files and folders of earlier calls beside `target` that are older than `grace`."""
    sweep(target.parent, f".{glob.escape(target.name)}.*.new", grace)


def sweep(folder: Path, pattern: str, grace: float, now: float | None = None) -> list[Path]:
    """Remove the files and folders of a pattern that dead processes left in `folder`, and return them.

    A file or folder stays while a process holds its lock, while it is younger than `grace` seconds, and if it
    can't be removed. `now` is in seconds since 1970.
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
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    removed.append(path)
    return removed
