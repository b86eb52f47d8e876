"""Writes the measurements of a training to its history and its loggers."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from turret.training.checkpoint import Progress
from turret.training.records.environment import record_environment
from turret.training.records.history import History
from turret.training.records.loggers import LoggedRun, LoggerKind, OpenLoggers


class Records(Protocol):
    """Where the measurements of a training go."""

    def seconds(self) -> float:
        """The seconds of training so far, those before an interruption too."""
        ...

    def record(self, figures: Mapping[str, float]) -> None:
        """Record figures that were measured at the present step."""
        ...

    def close(self) -> None:
        """Close them."""
        ...


class Unrecorded:
    """The clock alone, in processes that write nothing."""

    def __init__(self, progress: Progress) -> None:
        self._clock = time.monotonic() - progress.seconds

    def seconds(self) -> float:
        """The seconds of training so far."""
        return time.monotonic() - self._clock

    def record(self, figures: Mapping[str, float]) -> None:
        """Nothing is recorded."""

    def close(self) -> None:
        """Nothing is open."""


class Recorder:
    """The records of one training, from its first step or its checkpoint."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        progress: Progress,
        loggers: Sequence[LoggerKind],
        warn: Callable[[str], None],
    ) -> None:
        """Open the records in a run's folder, for settings by dotted names; `warn` takes warnings."""
        self._progress = progress
        self._clock = time.monotonic() - progress.seconds
        record_environment(folder, progress.step)
        self._history = History(folder, progress.step, progress.epoch)
        self._loggers = OpenLoggers(loggers, LoggedRun(folder, settings, progress.step), warn)

    def seconds(self) -> float:
        """The seconds of training so far, those before an interruption too."""
        return time.monotonic() - self._clock

    def record(self, figures: Mapping[str, float]) -> None:
        """Record figures that were measured at the present step."""
        self._history.append(self._progress.step, self._progress.epoch, self.seconds(), figures)
        self._loggers.log(self._progress.step, figures)

    def close(self) -> None:
        """Close the loggers."""
        self._loggers.close(self._progress.finished)
