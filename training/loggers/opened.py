"""The open loggers of a training, none of which can end it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from turret.data.errors import text_without_credentials
from turret.data.files.staging import new_file
from turret.training.loggers.contract import LoggedRun, Logger, LoggerKind

LOGGERS_FILE = "loggers.json"


def stored_loggers(folder: Path) -> dict[str, str | None]:
    """The names of the loggers that a run began with, and their ids; empty if it has none or can't tell."""
    try:
        stored = json.loads((folder / LOGGERS_FILE).read_text(encoding="utf-8"))
        return {str(name): None if given is None else str(given) for name, given in stored.items()}
    except (OSError, ValueError, AttributeError):
        return {}


class OpenLoggers:
    """Hands figures to several loggers; one that fails is left out from there on, with one warning."""

    def __init__(self, kinds: Sequence[LoggerKind], run: LoggedRun, warn: Callable[[str], None]) -> None:
        """Open the loggers, and store their ids in the folder of the run."""
        self._warn = warn
        self._open: dict[str, Logger] = {}
        stored = stored_loggers(run.folder) if run.step else {}
        for kind in kinds:
            try:
                self._open[kind.name] = kind.open(replace(run, earlier=stored.get(kind.name)))
            except Exception as error:  # a library may raise anything
                self._fail(kind.name, error)
        ids = {kind.name: self._open[kind.name].id if kind.name in self._open else None for kind in kinds}
        with new_file(run.folder / LOGGERS_FILE) as draft:
            draft.write_text(json.dumps({**stored, **ids}) + "\n", encoding="utf-8")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Hand figures to all loggers."""
        for name, logger in list(self._open.items()):
            try:
                logger.log(step, figures)
            except Exception as error:
                del self._open[name]
                self._fail(name, error)

    def close(self, finished: bool) -> None:
        """Close all loggers."""
        for name, logger in self._open.items():
            try:
                logger.close(finished)
            except Exception as error:
                self._fail(name, error)
        self._open.clear()

    def _fail(self, name: str, error: Exception) -> None:
        reason = text_without_credentials((str(error).strip() or repr(error)).splitlines()[0])
        self._warn(
            f"The logger {name} failed and gets no more figures ({type(error).__name__}: {reason}); training "
            "continues, and history.jsonl has every figure."
        )
