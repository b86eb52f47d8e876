"""The measurements of a training, which are lines of `history.jsonl` and go to its loggers."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from turret.data.errors import text_without_credentials
from turret.data.files import new_file
from turret.training.checkpoint import Progress
from turret.training.errors import naming_damage
from turret.training.records.environment import record_environment
from turret.training.records.loggers import LOGGERS, LOGGERS_FILE, Logger, stored_loggers

HISTORY = "history.jsonl"


def load_history(folder: Path) -> list[dict[str, Any]]:
    """The measurements of a run, oldest first, if it has any. Raises TrainingError for a damaged file."""
    path, entries = folder / HISTORY, []
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        with naming_damage(f"{path}, line {number}", "delete the line, or train again"):
            entry = json.loads(line)
            entry["step"], entry["epoch"], entry["seconds"]
        entries.append(entry)
    return entries


class Recorder:
    """The records of one training, from its first step or its checkpoint.

    A recorder writes the history, and hands figures to the loggers. Without a folder it is a clock alone.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: dict[str, Any],
        progress: Progress,
        loggers: Sequence[str],
        warn: Callable[[str], None],
    ) -> None:
        """Open the records in a run's folder, for settings by dotted names, and store the ids of its loggers.

        `warn` takes the warning about a logger that fails, which is left out from there on. Lines of the
        history that the checkpoint does not include, written before training was interrupted, are removed:
        their steps are made again.
        """
        self._folder, self._progress, self._warn = folder, progress, warn
        self._clock = time.monotonic() - progress.seconds
        self._loggers: dict[str, Logger] = {}
        if folder is None:
            return
        record_environment(folder, progress.step)
        if (path := folder / HISTORY).is_file():
            kept = []
            for line in path.read_bytes().splitlines():
                # After a crash the end of a line, or its bytes, may be missing.
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    if entry["step"] <= progress.step and entry["epoch"] <= progress.epoch:
                        kept.append(line)
            with new_file(path) as draft:
                draft.write_bytes(b"".join(line + b"\n" for line in kept))
        stored = stored_loggers(folder) if progress.step else {}
        for name in loggers:
            with self._leaving_out(name):
                self._loggers[name] = LOGGERS[name](folder, settings, progress.step, stored.get(name))
        ids = {name: self._loggers[name].id if name in self._loggers else None for name in loggers}
        with new_file(folder / LOGGERS_FILE) as draft:
            draft.write_text(json.dumps({**stored, **ids}) + "\n", encoding="utf-8")

    def seconds(self) -> float:
        """The seconds of training so far, with those before an interruption."""
        return time.monotonic() - self._clock

    def record(self, figures: Mapping[str, float]) -> None:
        """Record figures that were measured at the present step."""
        if self._folder is None:
            return
        state = self._progress
        entry = {"step": state.step, "epoch": state.epoch, "seconds": round(self.seconds(), 3), **figures}
        with (self._folder / HISTORY).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, allow_nan=False) + "\n")
        for name, logger in list(self._loggers.items()):
            with self._leaving_out(name):
                logger.log(state.step, figures)

    def close(self) -> None:
        """Close the loggers."""
        for name, logger in list(self._loggers.items()):
            with self._leaving_out(name):
                logger.close(self._progress.finished)

    @contextmanager
    def _leaving_out(self, name: str) -> Iterator[None]:
        """Leave a logger out once it fails, with a warning; its library may raise anything."""
        try:
            yield
        except Exception as error:
            self._loggers.pop(name, None)
            reason = text_without_credentials((str(error).strip() or repr(error)).splitlines()[0])
            self._warn(
                f"The logger {name} failed and gets no more figures ({type(error).__name__}: {reason}); "
                "training continues, and history.jsonl has every figure."
            )
