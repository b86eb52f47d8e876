"""`history.jsonl`: one line a measurement, in the order of training."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turret.data.files.staging import new_file
from turret.training.errors import TrainingError

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
    return list(_entries(folder / HISTORY))


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
            entry["step"], entry["epoch"], entry["seconds"]
        except (ValueError, KeyError, TypeError) as error:
            raise TrainingError(
                f"{path}, line {number}: it can't be read ({error!r}); delete the line, or train again."
            ) from None
        yield entry
