"""The version that all workers of a service compare with the live one, in their shared memory."""

import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from turret.service.shared_state import COMPARISON, SharedState

# Version, SHA-256 of its manifest, when it was chosen (ms since 1970), its end (seconds of the clock).
_RECORD = struct.Struct("=64s64sqd")


class Chosen(NamedTuple):
    """A version, the SHA-256 of its manifest, when it was chosen (ms since 1970), and the seconds left."""

    version: str
    manifest: str
    opened: int
    seconds: float


class ChosenVersion:
    """One version at a time, until it expires. Every call of any worker that uses it renews it.

    `clock` is monotonic, in seconds, and the same for all workers.
    """

    def __init__(
        self, shared_state: SharedState, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared_state = shared_state
        self._seconds = seconds
        self._clock = clock

    def read(self) -> Chosen | None:
        """The chosen version; None if there is none, or it has expired."""
        with self._shared_state.exclusive():
            return self._read()

    def choose(self, version: str, manifest: str) -> None:
        """Choose a version in place of any other."""
        with self._shared_state.exclusive():
            self._write(version, manifest, time.time_ns() // 1_000_000)

    def renew(self, version: str) -> None:
        """Let a version expire later, unless another one has been chosen."""
        with self._shared_state.exclusive():
            chosen = self._read()
            if chosen is not None and chosen.version == version:
                self._write(version, chosen.manifest, chosen.opened)

    def clear(self, version: str | None = None) -> None:
        """Choose none; with a `version`, only if that one is chosen."""
        with self._shared_state.exclusive():
            chosen = self._read()
            if chosen is not None and version in (None, chosen.version):
                _RECORD.pack_into(self._shared_state.memory, COMPARISON, b"", b"", 0, 0)

    def _read(self) -> Chosen | None:
        version, manifest, opened, ends = _RECORD.unpack_from(self._shared_state.memory, COMPARISON)
        left = ends - self._clock()
        if left <= 0:
            return None
        return Chosen(version.rstrip(b"\0").decode("ascii"), manifest.decode("ascii"), opened, left)

    def _write(self, version: str, manifest: str, opened: int) -> None:
        ends = self._clock() + self._seconds
        names = version.encode("ascii"), manifest.encode("ascii")
        _RECORD.pack_into(self._shared_state.memory, COMPARISON, *names, opened, ends)
