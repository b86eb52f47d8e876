"""The keys of a running service: the admin key, read once, and the key file, read when it changes."""

import asyncio
import logging
import os
import secrets
import stat
import time
from pathlib import Path

from turret.data.files import locked, new_file
from turret.service.errors import ServiceError
from turret.service.keys.keys import Key, admin_record, fault_of, find_key, read_keys, stat_of
from turret.service.settings import Settings

CHECK_SECONDS = 0.5  # so that a revocation counts within a second
_log = logging.getLogger("turret.keys")


class Keyring:
    """Looks up the key of a request; `follow` reads the key file again when it changes.

    Create it before the fork, so that all workers start with the same keys, also those that replace others.
    `is_open`: reading and writing need no key, as there certainly was and is no file. A file that later is
    damaged, deleted or unreadable changes nothing: the last keys stay valid, as a broken lock must not open
    the door. That is logged once, and the file is read again at each check.

    `admin_key` has the scopes admin and rules, and no name. Raises ServiceError when the file is unreadable
    or its existence unknown, and when it is missing although `required`.
    """

    def __init__(self, path: Path, admin_key: str, required: bool = False) -> None:
        self.is_open = False
        self._path = path
        self._last_fault = ""
        admin = admin_record(admin_key)
        self._admin = {admin.sha256: admin}
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
        """Read the file if it has changed; what was read before stays valid if that fails."""
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
        found = stat_of(self._path)
        if self.is_open:
            _log.warning(
                f"reading and writing require a key from now on: {self._path} exists; with "
                "TURRET_REQUIRE_KEYS=true a restart without it is refused"
            )
        self.is_open = False
        self._stamp = self._stamp or ()
        stamp = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        if stamp != self._stamp:
            self._keys = {key.sha256: key for key in read_keys(self._path)} | self._admin
            self._stamp = stamp


def admin_key(settings: Settings) -> str:
    """Return the key from the settings or from their file, which is created if missing.

    Read it once, before the fork: later changes of the file don't count. Raises ServiceError when the file
    can't be created or read, when other users may read or write it, or when the key is too short.
    """
    if settings.admin_key is not None:
        key = settings.admin_key.get_secret_value()
        if fault := fault_of(key):
            raise ServiceError(f"TURRET_ADMIN_KEY: {fault}; take 32 random bytes: `openssl rand -hex 32`")
        return key
    path = settings.admin_key_file
    try:
        if not os.path.lexists(path):
            with locked(path.parent):  # several services may start together
                if not os.path.lexists(path):
                    with new_file(path, mode=0o600) as fresh:
                        fresh.write_text(secrets.token_urlsafe(32) + "\n", encoding="utf-8")
        return _read_private(path)
    except OSError as error:
        raise ServiceError(
            f"can't store the admin key in {path}: {error.strerror}; set TURRET_ADMIN_KEY instead"
        ) from None


def _read_private(path: Path) -> str:
    """Read a key that no other user can have read or written: a writer of models may write beside them."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), errors="replace") as file:
        status = os.fstat(file.fileno())
        remedy = "delete it for a new key, or set TURRET_ADMIN_KEY"
        if not stat.S_ISREG(status.st_mode):
            raise ServiceError(f"{path} is no regular file; {remedy}")
        if status.st_uid not in (0, os.geteuid()):
            raise ServiceError(
                f"{path} belongs to user {status.st_uid}, who may know the admin key; {remedy}"
            )
        if status.st_mode & 0o077:
            raise ServiceError(
                f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}), who may know the "
                f"admin key; {remedy}, or `chmod 600` it if nobody has read it"
            )
        key = file.read().strip()
    if fault := fault_of(key):
        raise ServiceError(f"the key in {path} is invalid: {fault}; {remedy}")
    return key
