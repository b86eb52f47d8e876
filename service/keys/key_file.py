"""The key file: JSON with mode 0600, replaced atomically."""

import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from turret.data.files.locks import locked
from turret.data.files.staging import new_file
from turret.service.errors import ServiceError
from turret.service.keys.keys import Key

# Bytes, some 3,400 keys. Parsing holds the interpreter, also in a thread: some 10 ms a megabyte.
_LIMIT = 1_000_000
# Longer than the resolution of the times of any file system: within it a change may leave them the same.
_SETTLED_SECONDS = 2.0
# A shortage of the process or the machine, not a fault of the file.
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_REMEDY = "; put a file there that the service's user may read"


class KeyFile(BaseModel):
    """The schema of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    keys: tuple[Key, ...] = ()


def stamp_of(path: Path) -> tuple[int, ...] | None:
    """Return numbers that differ whenever the content of the file does; None if it changed just now.

    Raises FileNotFoundError and ServiceError like `read_keys`.
    """
    now = time.time()
    with _explained(path):
        found = os.stat(path)
    if now - found.st_ctime < _SETTLED_SECONDS:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read the keys of the file.

    Raises FileNotFoundError only if the file certainly does not exist; ServiceError for an unreadable or
    invalid file, and where its existence is unknown: a dangling link, a missing or inaccessible folder, no
    free descriptor.
    """
    with _explained(path), open(path, "rb", opener=_open_nonblocking) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise _unreadable(path, f"it is no regular file{_REMEDY}")
        if found.st_size > _LIMIT:
            raise _unreadable(path, f"it is larger than {_LIMIT:,} bytes")
        content = file.read()
    try:
        keys = KeyFile.model_validate_json(content).keys
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "the file"
        remedy = "restore it, or delete it and make new keys with `turret keys new`"
        raise _unreadable(path, f"{location}: {first['msg']}; {remedy}") from None
    for name, count in Counter(key.name for key in keys).items():
        if count > 1:
            raise _unreadable(path, f"two keys are named {name}; names must be unique")
    return keys


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the system into ServiceErrors, except for a file that certainly does not exist."""
    try:
        yield
    except FileNotFoundError:
        if path.is_symlink():
            raise _unreadable(path, "it is a dangling link; restore the file that it names") from None
        if not path.parent.is_dir():
            raise _unreadable(
                path, f"there is no folder {path.parent}; make it, or name another file (TURRET_KEYS)"
            ) from None
        raise
    except OSError as error:
        remedy = "" if error.errno in _SHORTAGES else _REMEDY
        raise _unreadable(path, f"{error.strerror}{remedy}") from None


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file; a pipe in its place must not block the process."""
    return os.open(path, flags | os.O_NONBLOCK)


def _unreadable(path: Path, reason: str) -> ServiceError:
    return ServiceError(f"the keys in {path} can't be read: {reason}")


def add_key(path: Path, key: Key) -> None:
    """Add a key to a file, which is created if missing. Raises ServiceError if the name is taken."""
    with _locked(path, make=True):
        keys = _read_or_none(path)
        if any(other.name == key.name for other in keys):
            raise ServiceError(
                f"{path} already has a key {key.name}; choose another name, or revoke it first"
            )
        _replace(path, (*keys, key))


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file. Raises ServiceError if there is none of this name."""
    with _locked(path):
        keys = _read_or_none(path)
        remaining = tuple(key for key in keys if key.name != name)
        if len(remaining) == len(keys):
            names = ", ".join(key.name for key in keys) or "none"
            raise ServiceError(f"{path} has no key {name}; it has: {names}")
        _replace(path, remaining)


def _read_or_none(path: Path) -> tuple[Key, ...]:
    try:
        return read_keys(path)
    except FileNotFoundError:
        return ()


@contextmanager
def _locked(path: Path, make: bool = False) -> Iterator[None]:
    """Lock the folder against other writers; readers need no lock, as the file is replaced by rename."""
    try:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            yield
    except OSError as error:
        raise ServiceError(f"can't write the keys to {path}: {error.strerror}") from None


def _replace(path: Path, keys: tuple[Key, ...]) -> None:
    text = KeyFile(keys=keys).model_dump_json(indent=2) + "\n"
    if len(text) > _LIMIT:
        raise ServiceError(f"{path} would be larger than {_LIMIT:,} bytes; revoke keys that nobody uses")
    with new_file(path, mode=0o600) as fresh:
        fresh.write_text(text, encoding="utf-8")
