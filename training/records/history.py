"""The measurements of a training: one line each in `history.jsonl`, and to its loggers."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turret.data.files import new_file
from turret.training.checkpoint import Progress
from turret.training.errors import TrainingError
from turret.training.records.environment import record_environment
from turret.training.records.loggers import LoggedRun, OpenLoggers

HISTORY = "history.jsonl"


class History:
    """Appends measurements to the history in a run's folder."""

    def __init__(self, folder: Path, step: int, epoch: int) -> None:
        """Continue the history after `step` steps and `epoch` finished epochs.

        Later lines, written before training was interrupted, are removed: their steps are made again.
        """
        self._path = folder / HISTORY
        if self._path.is_file():
            lines = self._path.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _is_before(line, step, epoch)]
            with new_file(self._path) as draft:
                draft.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def append(self, step: int, epoch: int, seconds: float, figures: Mapping[str, float]) -> None:
        """Write a line: the steps, epochs and seconds of training so far, and figures by name."""
        entry = {"step": step, "epoch": epoch, "seconds": round(seconds, 3), **figures}
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, allow_nan=False) + "\n")


def _is_before(line: str, step: int, epoch: int) -> bool:
    """Whether a checkpoint includes the line; the end of a line may be missing after a crash."""
    try:
        entry = json.loads(line)
        return bool(entry["step"] <= step and entry["epoch"] <= epoch)
    except (ValueError, KeyError, TypeError):
        return False


def load_history(folder: Path) -> list[dict[str, Any]]:
    """The measurements of the run in `folder`, oldest first; none for a run without a history.

    Raises:
        TrainingError: the file holds something else.
    """
    path, entries = folder / HISTORY, []
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            entry["step"], entry["epoch"], entry["seconds"]
        except (ValueError, KeyError, TypeError) as error:
            raise TrainingError(
                f"{path}, line {number}: it can't be read ({error!r}); delete the line, or train again."
            ) from None
        entries.append(entry)
    return entries


class Recorder:
    """The records of one training, from its first step or its checkpoint; without a folder a clock alone."""

    def __init__(
        self,
        folder: Path | None,
        settings: dict[str, Any],
        progress: Progress,
        loggers: Sequence[str],
        warn: Callable[[str], None],
    ) -> None:
        """Open the records in a run's folder, for settings by dotted names; `warn` takes warnings."""
        self._progress = progress
        self._clock = time.monotonic() - progress.seconds
        self._history: History | None = None
        if folder is not None:
            record_environment(folder, progress.step)
            self._history = History(folder, progress.step, progress.epoch)
            self._loggers = OpenLoggers(loggers, LoggedRun(folder, settings, progress.step), warn)

    def seconds(self) -> float:
        """The seconds of training so far, those before an interruption too."""
        return time.monotonic() - self._clock

    def record(self, figures: Mapping[str, float]) -> None:
        """Record figures that were measured at the present step."""
        if self._history is not None:
            self._history.append(self._progress.step, self._progress.epoch, self.seconds(), figures)
            self._loggers.log(self._progress.step, figures)

    def close(self) -> None:
        """Close the loggers."""
        if self._history is not None:
            self._loggers.close(self._progress.finished)
