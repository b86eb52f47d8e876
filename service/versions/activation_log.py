"""The log of activations and refusals, a line each: `<bundles>/activations.jsonl`."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from turret.data.files.staging import sync
from turret.tower.errors import BundleError
from turret.tower.format.pointer import is_version
from turret.tower.format.safe_open import no_link

FILE_NAME = "activations.jsonl"
_LONGEST_LINE = 64_000  # bytes; a record has some hundreds
_MOST = 50_000_000  # bytes of one refresh, some 200,000 activations
_TAIL = 1_000_000  # bytes that are read of anything beyond
# Numbers of activations are below it, so that a number of a damaged line or record leaves none to follow it.
MOST_NUMBERS = 2**53
_log = logging.getLogger("turret.activation")


def _checked(version: str) -> str:
    if not is_version(version):
        raise ValueError("this is no version name")
    return version


VersionName = Annotated[str, AfterValidator(_checked)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def number_after(number: int) -> int:
    """The number of the next activation. Raises BundleError where only damage explains the last one."""
    if number + 1 < MOST_NUMBERS:
        return number + 1
    raise BundleError(
        f"the last activation has the number {number}, which only damage explains; stop the service, move "
        f"{FILE_NAME} away, delete the replicas' record if there is one, and start it again"
    )


class ActivationRecord(BaseModel):
    """One line of the log. `sequence` numbers the activations; a refusal has none.

    `who`: the name of the key, or `start`, `pointer` (moved while no service ran), `fallback` (a version is
    not loadable any more). `failed`: the failed checks of a forced activation or a refusal. `manifest`: the
    SHA-256 of the version's manifest, which distinguishes versions of one name. `words`: the reason.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    time: str
    version: VersionName
    who: str
    outcome: Literal["activated", "refused"]
    sequence: int | None = Field(default=None, ge=1, lt=MOST_NUMBERS)
    previous: str | None = None
    manifest: Digest | None = None
    forced: bool = False
    failed: tuple[str, ...] = ()
    words: str = ""


class ActivationLog:
    """Reads and appends to the log that all processes of all services on the folder share.

    With a read-only folder, activations are kept in this process's memory, with a warning. Thread-safe. Any
    author of models can write the file, so lines above 64 KB are skipped, and of additions beyond 50 MB since
    the last read only the last megabyte is read.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / FILE_NAME
        self._offset = 0
        self._in_long_line = False  # whether the offset lies within a skipped line
        self._lock = threading.RLock()
        self._activated: list[ActivationRecord] = []
        self._sequences: dict[str, int] = {}
        self.refresh()

    @property
    def sequence(self) -> int:
        """The number of the last known activation, 0 before the first."""
        return self._activated[-1].sequence or 0 if self._activated else 0

    @property
    def last(self) -> ActivationRecord | None:
        """The last known activation."""
        return self._activated[-1] if self._activated else None

    def at(self, sequence: int) -> ActivationRecord | None:
        """Return the activation of a number, if known."""
        return next((record for record in reversed(self._activated) if record.sequence == sequence), None)

    def sequence_of(self, version: str) -> int | None:
        """Return the number of the last known activation of a version."""
        return self._sequences.get(version)

    def manifest_of(self, version: str) -> str | None:
        """Return the SHA-256 of a version's manifest at its last activation, if known."""
        sequence = self.sequence_of(version)
        record = self.at(sequence) if sequence else None
        return record.manifest if record else None

    def before(self, version: str | None) -> Iterator[str]:
        """The versions that were live before `version`, latest first, each once."""
        versions = dict.fromkeys(record.version for record in reversed(self._activated))
        return (name for name in versions if name != version)

    def latest(self, most: int) -> list[ActivationRecord]:
        """Return the latest activations and refusals, newest first, from the last megabyte of the file.

        Activations that are kept in memory only, as the folder is read-only, stand for an unreadable file.
        """
        with suppress(OSError), open(self.path, "rb", opener=no_link) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
            records = (_record(line) for line in reversed(lines) if len(line) < _LONGEST_LINE)
            return list(islice((record for record in records if record is not None), most))
        with self._lock:
            return self._activated[: -most - 1 : -1]

    def refresh(self) -> None:
        """Read the lines since the last refresh. An unreadable file adds nothing."""
        with self._lock, suppress(OSError), open(self.path, "rb", opener=no_link) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._offset:  # another file: the previous one was moved away
                self._offset, self._in_long_line = 0, False
            if refused := self._read_on(file, size):
                _log.warning("%s: invalid lines are skipped: %d", self.path, refused)

    def add(self, record: ActivationRecord) -> ActivationRecord:
        """Append a record, an activation with its number or else the next, and return it as written.

        The caller holds the activation lock. Raises OSError if the file can't be written, BundleError as
        `number_after`.
        """
        with open(self.path, "ab+", buffering=0, opener=no_link) as file:
            if not self._ends_whole(file.fileno()):
                file.write(b"\n")  # after the torn line of a crash
            self.refresh()
            if record.outcome == "activated":
                record = record.model_copy(
                    update={"sequence": record.sequence or number_after(self.sequence)}
                )
            file.write(record.model_dump_json(exclude_defaults=True).encode() + b"\n")
            os.fsync(file.fileno())
        sync(self.path.parent)
        self.refresh()
        return record

    def keep(self, record: ActivationRecord) -> ActivationRecord:
        """Append an activation; with a read-only folder, in memory only."""
        try:
            return self.add(record)
        except OSError as error:
            _log.warning(
                "%s can't be written (%s); the activation is kept in memory only", self.path, error.strerror
            )
            return self.remember(record)

    def remember(self, record: ActivationRecord) -> ActivationRecord:
        """Add an activation in this process only."""
        sequence = record.sequence or number_after(self.sequence)
        record = record.model_copy(update={"sequence": sequence})
        with self._lock:
            self._know(record)
        return record

    def _read_on(self, file: BinaryIO, size: int) -> int:
        """Read the lines from the offset on; return the number of invalid ones.

        A torn last line is left for the next refresh, and skipped once it is too long.
        """
        refused, end = 0, self._offset + _MOST
        file.seek(self._offset)
        while line := _read(file):
            is_whole = line.endswith(b"\n")
            if self._in_long_line or len(line) == _LONGEST_LINE:
                refused += not self._in_long_line
                self._in_long_line = not is_whole
            elif is_whole:
                refused += not self._take(line)
            else:
                break
            self._offset += len(line)
            if self._offset > end and size - self._offset > _TAIL:
                _log.warning(
                    "%s is larger than the 50 MB of one read; the rest is skipped but for its last megabyte; "
                    "move the file away",
                    self.path,
                )
                self._offset, self._in_long_line = file.seek(size - _TAIL), True
        return refused

    def _ends_whole(self, descriptor: int) -> bool:
        size = os.fstat(descriptor).st_size
        return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"

    def _take(self, line: bytes) -> bool:
        """Parse a line; return whether it is empty or valid."""
        try:
            self._know(ActivationRecord.model_validate_json(line))
        except ValidationError:
            return not line.strip()
        return True

    def _know(self, record: ActivationRecord) -> None:
        if record.sequence is not None and record.sequence > self.sequence:
            self._sequences[record.version] = record.sequence  # first: readers check `sequence` first
            self._activated.append(record)


def _record(line: bytes) -> ActivationRecord | None:
    try:
        return ActivationRecord.model_validate_json(line)
    except ValidationError:
        return None


def _read(file: BinaryIO) -> bytes:
    return file.readline(_LONGEST_LINE)


def now() -> str:
    """The current time in the format of the records."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
