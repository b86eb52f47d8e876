"""API keys, their file (JSON with mode 0600, replaced atomically), and the keys of a running service.

A key is its name and 32 random bytes: `turret_shop_Zk3...`. Only its SHA-256 is stored. A slow hash (bcrypt,
scrypt) protects passwords, as it makes guesses expensive; 2^256 keys can't be guessed at any speed, and a
slow hash would let senders of wrong keys keep the processor busy. So no key may be short enough to be
guessed, not even one that an operator chooses, such as TURRET_ADMIN_KEY.
"""

import asyncio
import hashlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from turret.data.answers.form import LONGEST_KEY
from turret.data.files import locked, new_file
from turret.service.calls import Scope
from turret.service.errors import ServiceError
from turret.service.settings import Settings

MIN_LENGTH = 32  # characters of a key without its name
CHECK_SECONDS = 0.5  # so that a revocation counts within a second
_REMEDY = "put a file there that the service's user can read"
_log = logging.getLogger("turret.keys")


class Key(BaseModel):
    """The stored record of a key, without the key itself.

    `rate` is in requests a second (None: no limit); the requests of a second may come at once.
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
    """Make the record of a key; `rest` are fields of Key. Raises ValueError for invalid fields."""
    fields = {"scopes": list(dict.fromkeys(scopes)), "created": datetime.now(UTC), **rest}
    return Key.model_validate({"name": name, "sha256": digest_of(key.encode()), **fields})


def find_key(keys: Mapping[str, Key], authorization: bytes | None, now: float) -> Key | None:
    """Return the key of `Bearer KEY` that is valid at `now` (seconds since 1970), or None.

    `keys` are by digest. The time of a look-up tells a sender at most something about a digest, which is no
    step towards a key. A secret of fewer than MIN_LENGTH characters is refused even if the file has it.
    """
    # The scheme is case-insensitive (RFC 9110, section 11.1), the key is not.
    if authorization is None or authorization[:7].lower() != b"bearer ":
        return None
    key = authorization[7:]
    match = keys.get(digest_of(key))
    if match is None or len(key.removeprefix(f"turret_{match.name}_".encode())) < MIN_LENGTH:
        return None
    return None if match.expires is not None and match.expires.timestamp() <= now else match


def stat_of(path: Path) -> os.stat_result:
    """Return the status of the file, which needs no descriptor.

    Raises FileNotFoundError only if the file certainly does not exist; ServiceError where that is unknown: a
    dangling link, a missing or inaccessible folder.
    """
    try:
        return path.stat()
    except FileNotFoundError:
        if not path.is_symlink() and path.parent.is_dir():
            raise
        reason = "its folder, or the file that it links to, is missing; make it, or set TURRET_KEYS"
    except OSError as error:
        reason = f"{error.strerror}; {_REMEDY}"
    raise ServiceError(f"the keys in {path} can't be read: {reason}")


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read the keys of the file. Raises the errors of `stat_of`, and ServiceError for an invalid file."""
    status = stat_of(path)
    try:
        if stat.S_ISREG(status.st_mode):
            return KeyFile.model_validate_json(path.read_bytes()).keys
        reason = "it is no regular file; put one there"
    except OSError as error:
        reason = f"{error.strerror}; {_REMEDY}"
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "the file"
        remedy = "restore it, or delete it and make new keys with `turret keys new`"
        reason = f"{location}: {first['msg']}; {remedy}"
    raise ServiceError(f"the keys in {path} can't be read: {reason}")


def add_key(path: Path, key: Key) -> None:
    """Add a key to a file, which is created if missing. Raises ServiceError if the name is taken."""
    with _changing(path) as keys:
        if key.name in keys:
            raise ServiceError(
                f"{path} already has a key {key.name}; choose another name, or revoke it first"
            )
        keys[key.name] = key


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file. Raises ServiceError if there is no key of this name."""
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


class Keyring:
    """Looks up the key of a request; `follow` reads the key file again when it changes.

    Create it before the fork, so that all workers start with the same keys, also those that replace others.
    `is_open`: reading and writing need no key, as there certainly was and is no file. A file that later is
    damaged, deleted or unreadable changes nothing: the last keys stay valid, as a broken lock must not open
    the door. The fault is logged once, and the file is read again at each check.

    `admin_key` has the scopes admin and rules, and no name. Raises ServiceError when the file is unreadable
    or its existence unknown, and when it is missing although `required`.
    """

    def __init__(self, path: Path, admin_key: str, required: bool = False) -> None:
        self.is_open = False
        self._path = path
        self._last_fault = ""
        digest = digest_of(admin_key.encode())
        admin = Key.model_construct(
            scopes=("admin", "rules"), sha256=digest, created=datetime.now(UTC), name=""
        )
        self._admin = {digest: admin}
        self._keys = self._admin
        self._stamp: tuple[int, ...] | None = None  # None: there never was a file
        try:
            self._read()
        except FileNotFoundError:
            remedy = f"`turret keys new NAME --scope read --file {path}`"
            if required:
                raise ServiceError(
                    f"there are no keys in {path}, and TURRET_REQUIRE_KEYS requires them; make one with "
                    f"{remedy}"
                ) from None
            self.is_open = True
            _log.warning(
                f"there are no API keys in {path}: reading and writing are open to all; {remedy} makes the "
                "first key, and with TURRET_REQUIRE_KEYS=true no service starts without one"
            )

    def find(self, authorization: bytes | None) -> Key | None:
        """Return the key of an Authorization header, or None."""
        return find_key(self._keys, authorization, time.time())

    async def follow(self) -> None:
        """Load the file whenever it changes, in a thread: it may be long, or on a disk that hangs."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await asyncio.to_thread(self.load)

    def load(self) -> None:
        """Read the file if it has changed; the earlier keys stay valid if that fails."""
        fault = ""
        try:
            self._read()
        except FileNotFoundError:
            self.is_open = self._stamp is None
            fault = "" if self.is_open else f"{self._path} is missing"
        except ServiceError as error:
            self.is_open = False
            fault = str(error)
        if fault and fault != self._last_fault:
            _log.warning("%s; the keys read before stay valid", fault)
        self._last_fault = fault

    def _read(self) -> None:
        status = stat_of(self._path)
        if self.is_open:
            _log.warning(
                f"reading and writing require a key from now on: {self._path} exists; with "
                "TURRET_REQUIRE_KEYS=true a restart without it is refused"
            )
        self.is_open = False
        self._stamp = self._stamp or ()
        stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if stamp != self._stamp:
            self._keys = {key.sha256: key for key in read_keys(self._path)} | self._admin
            self._stamp = stamp


def admin_key(settings: Settings) -> str:
    """Return the key from the settings or from their file, which is created if missing.

    Read it once, before the fork: later changes of the file don't count. Raises ServiceError when the file
    can't be created or read, when other users may read or write it, or when the key is too short.
    """
    return _own_key(settings.admin_key, settings.admin_key_file, "admin key", "TURRET_ADMIN_KEY")


def answer_key(settings: Settings) -> bytes:
    """Return the key under which the log of answers names visitors, read and made like the admin key."""
    path = settings.answer_key_file
    key = _own_key(settings.answer_key, path, "key of visitors", "TURRET_ANSWER_KEY").encode()
    if len(key) > LONGEST_KEY:
        raise ServiceError(
            f"the key of visitors, TURRET_ANSWER_KEY or {path}, has {len(key)} characters; take at most "
            f"{LONGEST_KEY}, such as `openssl rand -hex 32`"
        )
    return key


def _own_key(value: SecretStr | None, path: Path, noun: str, variable: str) -> str:
    """Return a key of the service itself from its variable or from its file, which is created if missing."""
    if value is not None:
        key = value.get_secret_value()
        if fault := fault_of(key):
            raise ServiceError(f"{variable}: {fault}; take 32 random bytes: `openssl rand -hex 32`")
        return key
    try:
        if not os.path.lexists(path):
            with locked(path.parent):  # several services may start together
                if not os.path.lexists(path):
                    with new_file(path, mode=0o600) as fresh:
                        fresh.write_text(secrets.token_urlsafe(32) + "\n", encoding="utf-8")
        return _read_private(path, noun, variable)
    except OSError as error:
        raise ServiceError(
            f"can't store the {noun} in {path}: {error.strerror}; set {variable} instead"
        ) from None


def _read_private(path: Path, noun: str, variable: str) -> str:
    """Read a key that no other user can have read or written: writers of models may write next to it."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), errors="replace") as file:
        status = os.fstat(file.fileno())
        remedy = f"delete it for a new key, or set {variable}"
        if not stat.S_ISREG(status.st_mode):
            raise ServiceError(f"{path} is no regular file; {remedy}")
        if status.st_uid not in (0, os.geteuid()):
            raise ServiceError(f"{path} belongs to user {status.st_uid}, who may know the {noun}; {remedy}")
        if status.st_mode & 0o077:
            raise ServiceError(
                f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}), who may know the "
                f"{noun}; {remedy}, or `chmod 600` it if nobody has read it"
            )
        key = file.read().strip()
    if fault := fault_of(key):
        raise ServiceError(f"the key in {path} is invalid: {fault}; {remedy}")
    return key
