"""The key file: JSON with mode 0600, replaced atomically."""

import errno
import os
import stat
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

_LIMIT = 10_000_000  # bytes, some 40,000 keys
# A shortage of the process or the machine, not a fault of the file.
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_REMEDY = "; put a file there that the service's user may read"


class KeyFile(BaseModel):
    """The schema of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    keys: tuple[Key, ...] = ()


def read_content(path: Path) -> bytes:
    """Read the content of the file, for `parse_keys`.

    Raises FileNotFoundError only if the file certainly does not exist; ServiceError for an unreadable file,
    and where its existence is unknown: a dangling link, a missing or inaccessible folder, no free descriptor.
    """
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _unreadable(path, f"it is no regular file{_REMEDY}")
            content = file.read(_LIMIT + 1)
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
    if len(content) > _LIMIT:
        raise _unreadable(path, f"it is larger than {_LIMIT:,} bytes")
    return content


def parse_keys(content: bytes, path: Path) -> tuple[Key, ...]:
    """Parse the content of the file at `path`. Raises ServiceError with the fault and its location."""
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


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read and parse the file. Raises FileNotFoundError and ServiceError, see `read_content`."""
    return parse_keys(read_content(path), path)


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file; a pipe in its place must not block the process."""
    return os.open(path, flags | os.O_NONBLOCK)


def _unreadable(path: Path, reason: str) -> ServiceError:
    return ServiceError(f"the keys in {path} can't be read: {reason}")


def required_mark(path: Path) -> Path:
    """Return the path of the mark beside a key file, `keys.json.required`, with which no service starts open.

    Otherwise a restart after a crash would open a service whose key file was deleted while it ran.
    """
    return path.with_name(f"{path.name}.required")


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
    with new_file(path, mode=0o600) as fresh:
        fresh.write_text(text, encoding="utf-8")
