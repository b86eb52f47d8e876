"""API keys, and their file: JSON with mode 0600, replaced atomically.

A key is its name and 32 random bytes: `turret_shop_Zk3...`. Only its SHA-256 is stored. A slow hash (bcrypt,
scrypt) protects passwords, as it makes guesses expensive; 2^256 keys can't be guessed at any speed, and a
slow hash would let senders of wrong keys keep the processor busy. So no key may be short enough to be
guessed, not even one that an operator chooses, such as TURRET_ADMIN_KEY.
"""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from turret.data.files import locked, new_file
from turret.service.calls import Scope
from turret.service.errors import ServiceError

MIN_LENGTH = 32  # characters of a key without its name


class Key(BaseModel):
    """The stored record of a key, without the key itself.

    `rate` is in requests a second (None: no limit); those of a second may come at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,39}$")
    scopes: tuple[Scope, ...] = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    created: AwareDatetime
    expires: AwareDatetime | None = None
    rate: float | None = Field(default=None, gt=0, le=1e6)


class KeyFile(BaseModel):
    """The schema of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    keys: tuple[Key, ...] = ()


def new_key(name: str) -> str:
    """Create a random key; only the client stores it."""
    return f"turret_{name}_{secrets.token_urlsafe(32)}"


def fault_of(key: str) -> str:
    """Return the fault of a key that an operator chooses, empty if it has none."""
    if len(key) < MIN_LENGTH:
        return f"it has fewer than {MIN_LENGTH} characters, and such keys can be guessed"
    if not re.fullmatch("[!-~]+", key):
        return "it has a blank or a character outside ASCII, which a header can't carry"
    return ""


def digest_of(key: bytes) -> str:
    """Hash a key: the SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(key).hexdigest()


def record(name: str, key: str, scopes: Sequence[str], **rest: object) -> Key:
    """Make the record of a key; `rest` are fields of Key. Raises ValueError for invalid ones."""
    fields = {"scopes": list(dict.fromkeys(scopes)), "created": datetime.now(UTC), **rest}
    return Key.model_validate({"name": name, "sha256": digest_of(key.encode()), **fields})


def admin_record(key: str) -> Key:
    """Make the record of the admin key, which has the scopes admin and rules, no name and no limit."""
    sha256 = digest_of(key.encode())
    return Key.model_construct(name="", scopes=("admin", "rules"), sha256=sha256, created=datetime.now(UTC))


def find_key(keys: Mapping[str, Key], authorization: bytes | None, now: float) -> Key | None:
    """Return the key of `Bearer KEY` that is valid at `now` (seconds since 1970), or None.

    `keys` are by digest. The time of a look-up tells a sender at most something about a digest, which is no
    step towards a key. A secret of fewer than MIN_LENGTH characters is refused even if the file has it.
    """
    # The scheme is case-insensitive (RFC 9110, section 11.1), the key is not.
    if authorization is None or authorization[:7].lower() != b"bearer ":
        return None
    key = authorization[7:]
    found = keys.get(digest_of(key))
    if found is None or len(key.removeprefix(f"turret_{found.name}_".encode())) < MIN_LENGTH:
        return None
    return None if found.expires is not None and found.expires.timestamp() <= now else found


def stat_of(path: Path) -> os.stat_result:
    """Look for the file; no descriptor is needed for that.

    Raises FileNotFoundError only if it certainly does not exist; ServiceError where that is unknown: a
    dangling link, a missing or inaccessible folder.
    """
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


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read the keys of the file. Raises the errors of `stat_of`, and ServiceError for an invalid file."""
    if not stat.S_ISREG(stat_of(path).st_mode):
        raise _unreadable(path, "it is no regular file; put one there")
    try:
        return KeyFile.model_validate_json(path.read_bytes()).keys
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "the file"
        remedy = "restore it, or delete it and make new keys with `turret keys new`"
        raise _unreadable(path, f"{location}: {first['msg']}; {remedy}") from None


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
            text = KeyFile(keys=tuple(keys.values())).model_dump_json(indent=2) + "\n"
            with new_file(path, mode=0o600) as fresh:
                fresh.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ServiceError(
            f"can't write the keys to {path}: {error.strerror}; name another file with --file"
        ) from None
