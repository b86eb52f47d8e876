"""The records of decisions: one JSON line for each run, in `retrains.jsonl` of the work folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from turret.data.errors import TurretError
from turret.data.files import sync
from turret.retraining.rule import Mode

RECORDS = "retrains.jsonl"
Decision = Literal["activated", "canary", "refused", "unclear", "nothing_new", "failed"]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class DataSize(_Stored):
    """The prepared data at a moment."""

    fingerprint: str
    events: int
    items: int


class Figures(_Stored):
    """The metric of the new version and of the live one on the newest events, and their difference.

    `low` and `high` are the ends of the 95 % bootstrap interval of the difference over paired users; `margin`
    is the accepted loss, a share of the live version's metric. `rule` describes the events.
    """

    metric: str
    users: int
    new: float
    live: float
    low: float
    high: float
    margin: float
    rule: str


class EndedCanary(_Stored):
    """The canary of an earlier run: `promoted` to the live version, or `ended`."""

    version: str
    decision: Literal["promoted", "ended"]
    message: str
    figures: Figures | None = None


class RetrainRecord(_Stored):
    """One line of the file.

    `run` names the run by its start. `version` is the new version, `live` the one that it was compared with,
    and `origin` the one that a warm start began from. `status` is the exit status. `before` and `after`
    describe the prepared data; `until` is the end of the dumped time range. `new_events` counts those that no
    earlier training has used. `step` is the one that failed. `deleted` lists the bundles and runs that
    retention has deleted.
    """

    run: str
    started: str
    ended: str
    seconds: float
    decision: Decision
    status: int
    message: str
    until: str
    new_events: int | None = None
    mode: Mode | None = None
    reason: str | None = None
    version: str | None = None
    live: str | None = None
    origin: str | None = None
    before: DataSize | None = None
    after: DataSize | None = None
    figures: Figures | None = None
    canary: EndedCanary | None = None
    step: str | None = None
    deleted: tuple[str, ...] = ()

    @property
    def is_trained(self) -> bool:
        """Whether the run has trained and judged a version."""
        return self.decision in ("activated", "canary", "refused", "unclear")


def append_record(work: Path, record: RetrainRecord) -> None:
    """Append a line in one write, synced to disk. Raises OSError."""
    path = work / RECORDS
    line = record.model_dump_json(exclude_none=True).encode() + b"\n"
    with open(path, "ab+", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            line = b"\n" + line  # after the torn line of a crash
        file.write(line)
        os.fsync(file.fileno())
    sync(work)


def read_records(work: Path) -> list[RetrainRecord]:
    """Read all records, oldest first. The torn line of a crash is skipped.

    Raises TurretError for a file that can't be read.
    """
    path = work / RECORDS
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TurretError(f"{path} can't be read: {error.strerror}; check its permissions") from None
    return [record for line in lines if (record := _parsed(line)) is not None]


def _parsed(line: bytes) -> RetrainRecord | None:
    try:
        return RetrainRecord.model_validate_json(line)
    except ValidationError:
        return None


class Lineage(_Stored):
    """The trainings behind a live version: warm starts in a row, and the data of the full training.

    `full` is None where no record tells it.
    """

    warm_starts: int = 0
    full: DataSize | None = None


def lineage(records: Sequence[RetrainRecord], live: str | None) -> Lineage:
    """Follow the live version back through its warm starts to the full training.

    A version of another command was trained on the data before the first run that found it live.
    """
    by_version = {record.version: record for record in records if record.version and record.mode}
    warm_starts, version = 0, live
    while version is not None and (record := by_version.pop(version, None)) is not None:
        if record.mode == "anew":
            return Lineage(warm_starts=warm_starts, full=record.after)
        warm_starts += 1
        version = record.origin
    found = (record.before for record in records if version is not None and version == record.live)
    return Lineage(warm_starts=warm_starts, full=next(found, None))
