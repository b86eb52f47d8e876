"""The file of the keys: JSON, replaced as a whole, for its owner only."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from service.errors import ServiceError
from service.keys import Key


class KeyFile(BaseModel):
    """What the file holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    keys: tuple[Key, ...] = ()


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read the keys of a file. Raises FileNotFoundError, or ServiceError with what is wrong and where."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ServiceError(
            f"the keys in {path} can't be read: {error.strerror}; give the service's user access to the file"
        ) from None
    try:
        keys = KeyFile.model_validate_json(text).keys
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ServiceError(f"the keys in {path} can't be read: {place}: {first['msg']}") from None
    names = [key.name for key in keys]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ServiceError(f"the keys in {path} can't be read: two are named {twice}; a name is one key's")
    return keys


def add_key(path: Path, key: Key) -> None:
    """Add a key to a file, which is made if need be. Raises ServiceError when its name is taken."""
    with _alone(path, make=True):
        keys = _read_or_none(path)
        if any(one.name == key.name for one in keys):
            raise ServiceError(
                f"there is a key {key.name} in {path} already; choose another name, or revoke it first"
            )
        _replace(path, (*keys, key))


def remove_key(path: Path, name: str) -> None:
    """Take a key out of a file, for good. Raises ServiceError when there is none of this name."""
    with _alone(path):
        keys = _read_or_none(path)
        kept = tuple(key for key in keys if key.name != name)
        if len(kept) == len(keys):
            known = ", ".join(key.name for key in keys) or "none"
            raise ServiceError(f"there is no key {name} in {path}; there are: {known}")
        _replace(path, kept)


def _read_or_none(path: Path) -> tuple[Key, ...]:
    try:
        return read_keys(path)
    except FileNotFoundError:
        return ()


@contextmanager
def _alone(path: Path, make: bool = False) -> Iterator[None]:
    """One writer at a time; readers need no lock, as the file is replaced by rename."""
    try:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ServiceError(f"the keys can't be kept in {path}: {error.strerror}") from None


def _replace(path: Path, keys: tuple[Key, ...]) -> None:
    text = KeyFile(keys=keys).model_dump_json(indent=2) + "\n"
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600 from its beginning
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
