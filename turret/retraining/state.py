"""The rule of a retraining, its lock, the records of all retrainings, and the state of a killed one."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from turret.activation.non_inferiority import Comparison
from turret.data.errors import TurretError
from turret.data.files import new_file, sweep, sync, tried_lock
from turret.data.progress import LOGGER, counted
from turret.retraining.settings import RetrainSettings

RECORDS, STATE = "retrains.jsonl", "state.json"
Mode = Literal["warm", "anew"]
Decision = Literal["activated", "canary", "refused", "unclear", "nothing_new", "waiting", "failed"]


@pydantic_dataclass(frozen=True)
class DataSize:
    """The size of the prepared data at a moment."""

    fingerprint: str
    events: int
    items: int


@pydantic_dataclass(frozen=True)
class EndedCanary:
    """The canary of an earlier run: `promoted` to the live version, or `ended`."""

    version: str
    decision: Literal["promoted", "ended"]
    message: str
    figures: Comparison | None = None


class Retraining(BaseModel):
    """A run of `turret retrain`: its state between two steps, and at its end its record.

    `run` names the run, its folder and its bundle, by its start, which is also the end of the dumped time
    range. `step` is the next step, in a record the one that failed. `version` is the new version, `live` the
    one that it was compared with, and `origin` the one that a warm start began from. `before` and `after`
    describe the prepared data at the start and with the new events; `data_changed`: another command has
    written it since the last run. `new_events` counts the events that no earlier training has used. `deleted`
    lists the bundles that retention has deleted. `status` is the exit status. `failures` counts errors that
    ended the process.
    """

    run: str
    started: str
    ended: str | None = None
    seconds: float = 0.0
    decision: Decision | None = None
    status: int = 0
    message: str = ""
    step: str | None = None
    new_events: int | None = None
    mode: Mode | None = None
    reason: str | None = None
    version: str | None = None
    live: str | None = None
    origin: str | None = None
    data_changed: bool = False
    before: DataSize | None = None
    after: DataSize | None = None
    figures: Comparison | None = None
    canary: EndedCanary | None = None
    deleted: tuple[str, ...] = ()
    failures: int = 0

    def decide(self, decision: Decision, message: str, status: int = 0) -> None:
        """Set the decision, its sentence and the exit status."""
        self.decision, self.message, self.status = decision, message, status

    def dump(self, work: Path) -> Path:
        """The file of the dumped events."""
        return work / f"events-{self.run}.parquet"

    def save(self, work: Path) -> None:
        """Replace the state in the folder by rename."""
        with new_file(work / STATE, 0o600) as fresh:
            fresh.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")


def choose_mode(
    settings: RetrainSettings, state: Retraining, warm_starts: int, new_events: float, new_items: float
) -> tuple[Mode, str]:
    """Choose the mode of a training, with the reason as a clause; without a live version, it is anew.

    `warm_starts` is their number between the last full training and the live version; `new_events` and
    `new_items` are the shares of the data that are newer than that full training.
    """
    if state.live is None:
        return "anew", "no version is live"
    if settings.mode != "rule":
        return settings.mode, f"--mode {settings.mode}"
    if state.data_changed:
        return "anew", "another command has changed the prepared data since the last training"
    if warm_starts >= settings.warm_starts:
        return "anew", f"{counted(warm_starts, 'warm start')} since the last full training"
    for name, share in (("events", new_events), ("items", new_items)):
        if share > settings.anew_share:
            return (
                "anew",
                f"{share:.1%} of the {name} are newer than the last full training, and the limit is "
                f"{settings.anew_share:.1%}",
            )
    return (
        "warm",
        f"{counted(warm_starts, 'warm start')} and {new_events:.1%} new events since the last full training "
        "are within the limits",
    )


def report(line: str) -> None:
    """Write a line to the logger of progress, which the command line prints on standard error."""
    logging.getLogger(LOGGER).info("%s", line)


class LockedError(TurretError):
    """Another process retrains in the same folder."""


@contextmanager
def retrain_lock(work: Path) -> Iterator[None]:
    """Make the work folder, and lock it during the block; the system releases the lock of a killed process.

    Raises LockedError if another process holds the lock, or if the file system has no locks; OSError.
    """
    work.mkdir(parents=True, exist_ok=True)
    with tried_lock(work) as is_locked:
        if is_locked is None:
            raise LockedError(f"--work {work}: its file system has no locks; name a folder on a local disk")
        if not is_locked:
            raise LockedError(f"another `turret retrain` is running in {work}; wait until it has ended")
        yield


def append_record(work: Path, record: Retraining) -> None:
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


def read_records(work: Path) -> list[Retraining]:
    """Read all records, oldest first. The torn line of a crash is skipped. Raises OSError."""
    records: list[Retraining] = []
    if not (work / RECORDS).exists():
        return records
    for line in (work / RECORDS).read_bytes().splitlines():
        with suppress(ValidationError):
            records.append(Retraining.model_validate_json(line))
    return records


def read_state(work: Path) -> Retraining | None:
    """Read the state of an interrupted run, None without one. Raises TurretError for an unreadable file."""
    path = work / STATE
    try:
        return Retraining.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise TurretError(
            f"{path} can't be read ({type(error).__name__}); delete it, and the next run begins anew"
        ) from None


def remove_state(work: Path, state: Retraining) -> None:
    """Delete the state of a run and its dumped events."""
    state.dump(work).unlink(missing_ok=True)
    sweep(work, ".events-*.new", 0.0)  # parts of a dump that was killed
    (work / STATE).unlink(missing_ok=True)


def lineage(records: Sequence[Retraining], live: str | None) -> tuple[int, DataSize | None]:
    """Follow the live version back through its warm starts to the full training.

    Returns the number of warm starts, and the data of the full training, None where no record has it. For a
    version of another command, it is the data before the first run that found that version live.
    """
    by_version = {record.version: record for record in records if record.version and record.mode}
    warm_starts, version = 0, live
    while version is not None and (record := by_version.pop(version, None)) is not None:
        if record.mode == "anew":
            return warm_starts, record.after
        warm_starts += 1
        version = record.origin
    sizes = (record.before for record in records if version is not None and version == record.live)
    return warm_starts, next(sizes, None)
