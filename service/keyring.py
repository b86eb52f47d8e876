"""The keys of a running service: those of the file, read again when it changes, and the admin key."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from service.errors import ServiceError
from service.key_file import read_keys
from service.keys import Keys, Known, digest_of, known_of, name_in

LOOK_SECONDS = 1.0


class _Stamp(NamedTuple):
    """What tells one content of a file from the next: a rename changes the inode, an edit the time."""

    inode: int
    changed: int
    size: int


class Keyring:
    """Finds whose key a request carries, and follows the file while the service runs.

    Without a file at the start, reading and writing need no key; from the moment that one appears they do. A
    file that is damaged or deleted later changes nothing: the keys that were read before go on counting, as
    opening the doors is the wrong answer to a broken lock. It is complained of once.

    `admin_key` is the key of `admin.key` or TURRET_ADMIN_KEY: it has the scope admin and no name. Raises
    ServiceError when there is a file that can't be read, or with `required` when there is none.
    """

    def __init__(
        self,
        path: Path,
        admin_key: str,
        required: bool = False,
        clock: Callable[[], float] = time.monotonic,
        complain: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        # Where a given key is looked for: an admin key of the operator's own making may begin like any other.
        self._admin_name = name_in(admin_key.encode())
        self._admin = Known("", frozenset({"admin"}), digest_of(admin_key.encode()), None, None, 1.0)
        self._clock = clock
        self._complain = complain or (lambda text: print(text, file=sys.stderr, flush=True))
        self._stamp = _stamp(path)
        self._looked = clock()
        if self._stamp is None and required:
            raise ServiceError(
                f"there are no keys in {path}, and TURRET_REQUIRE_KEYS asks for them; "
                "make one with `turret keys new NAME --scope read`"
            )
        self.is_open = self._stamp is None
        self._keys = self._read()

    def find(self, authorization: bytes | None) -> Known | None:
        """Find the key that an Authorization header carries; None if it carries nobody's."""
        self.look()
        return self._keys.find(authorization, time.time())

    def lets_all_in(self) -> bool:
        """Whether reading and writing need no key, as there is no file of keys."""
        if self.is_open:
            self.look()
        return self.is_open

    def look(self) -> None:
        """Read the file again if it has changed; look at most once a second."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = self._read()
            self.is_open = self.is_open and stamp is None
        except (ServiceError, FileNotFoundError) as error:
            why = error if isinstance(error, ServiceError) else f"{self.path} is gone"
            self._complain(f"turret: {why}; the keys that were read before go on counting")

    def _read(self) -> Keys:
        kept = () if self._stamp is None and self.is_open else read_keys(self.path)
        return Keys({key.name: known_of(key) for key in kept} | {self._admin_name: self._admin})


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:  # also a folder that can't be entered: as good as no file
        return None
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
