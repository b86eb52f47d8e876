"""The key file: JSON with mode 0600, replaced atomically."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from turret.data.files.locks import locked
from turret.data.files.staging import new_file
from turret.service.errors import ServiceError
from turret.service.keys.keys import Key

# Bytes, some 3,400 keys. Parsing holds the interpreter, also in a thread: some 10 ms a megabyte.
_LIMIT = 1_000_000


class KeyFile(BaseModel):
    """The schema of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    keys: tuple[Key, ...] = ()

    @field_validator("keys")
    @classmethod
    def _have_names_of_their_own(cls, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        names = set[str]()
        for key in keys:
            if key.name in names:
                raise ValueError(f"two keys are named {key.name}")
            names.add(key.name)
        return keys


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return numbers that differ when the file has changed; no descriptor is needed to find them.

    Raises FileNotFoundError only if the file certainly does not exist; ServiceError where that is unknown: a
    dangling link, a missing or inaccessible folder.
    """
    found = _stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read the keys of the file. Raises the errors of `stamp_of`, and ServiceError for an invalid file."""
    found = _stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise _unreadable(path, "it is no regular file; put one there")
    if found.st_size > _LIMIT:
        raise _unreadable(path, f"it is larger than {_LIMIT:,} bytes; revoke keys that nobody uses")
    try:
        return KeyFile.model_validate_json(path.read_bytes()).keys
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "the file"
        remedy = "restore it, or delete it and make new keys with `turret keys new`"
        raise _unreadable(path, f"{location}: {first['msg']}; {remedy}") from None


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError:
        if path.is_symlink() or not path.parent.is_dir():
            raise _unreadable(
                path, "its folder, or the file that it links to, is missing; make it, or set TURRET_KEYS"
            ) from None
        raise
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, reason: str | OSError) -> ServiceError:
    if isinstance(reason, OSError):
        reason = f"{reason.strerror}; put a file there that the service's user can read"
    return ServiceError(f"the keys in {path} can't be read: {reason}")


def add_key(path: Path, key: Key) -> None:
    """Add a key to a file, which is created if missing. Raises ServiceError if the name is taken."""
    with _changing(path) as keys:
        if key.name in keys:
            raise ServiceError(
                f"{path} already has a key {key.name}; choose another name, or revoke it first"
            )
        keys[key.name] = key


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file. Raises ServiceError if there is none of this name."""
    with _changing(path) as keys:
        if keys.pop(name, None) is None:
            raise ServiceError(f"{path} has no key {name}; it has: {', '.join(keys) or 'none'}")


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, Key]]:
    """Yield the keys by name and write them, unless the block raises; other writers wait.

    Readers need no lock, as the file is replaced by rename.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            try:
                keys = {key.name: key for key in read_keys(path)}
            except FileNotFoundError:
                keys = {}
            yield keys
            _replace(path, tuple(keys.values()))
    except OSError as error:
        raise ServiceError(
            f"can't write the keys to {path}: {error.strerror}; name another file with --file"
        ) from None


def _replace(path: Path, keys: tuple[Key, ...]) -> None:
    text = KeyFile(keys=keys).model_dump_json(indent=2) + "\n"
    if len(text) > _LIMIT:
        raise ServiceError(f"{path} would be larger than {_LIMIT:,} bytes; revoke keys that nobody uses")
    with new_file(path, mode=0o600) as fresh:
        fresh.write_text(text, encoding="utf-8")
