"""The curves of a training, from its history."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turret.training.records.history import load_history
from turret.training.run import Run

# A page needs no more points than its width has pixels.
MOST_POINTS = 400


@dataclass(frozen=True)
class Curve:
    """Values [P] of one figure by step [P]."""

    steps: list[int]
    values: list[float]


@dataclass(frozen=True)
class Curves:
    """The curves of a run; `best_step` and `best` are of the model that was kept, None if nothing validated.

    `loss` are batches, `epoch_loss` means over an epoch.
    """

    loss: Curve
    epoch_loss: Curve
    validation: Curve
    learning_rate: Curve
    throughput: Curve
    metric: str
    best_step: int | None
    best: float | None
    best_epoch: int


def curves_of(run: Run) -> Curves:
    """Read the curves of a run; they are empty for a run without a history.

    Raises:
        TrainingError: the history can't be read.
    """
    entries, metric = load_history(run.folder), run.experiment.training.metric
    progress = run.progress()
    best_epoch = progress.best_epoch if progress is not None else 0
    validated = f"validation/{metric}"
    best = [entry for entry in entries if validated in entry and entry["epoch"] == best_epoch]
    return Curves(
        loss=_curve(entries, "loss/train"),
        epoch_loss=_curve(entries, "loss/epoch"),
        validation=_curve(entries, validated),
        learning_rate=_curve(entries, "learning_rate"),
        throughput=_curve(entries, "examples_per_second"),
        metric=metric,
        best_step=int(best[-1]["step"]) if best else None,
        best=float(best[-1][validated]) if best else None,
        best_epoch=best_epoch,
    )


def _curve(entries: Sequence[dict[str, Any]], name: str) -> Curve:
    """The measurements of one figure, evenly thinned out to at most `MOST_POINTS` and the last one."""
    found = [(int(entry["step"]), float(entry[name])) for entry in entries if name in entry]
    every = -(-len(found) // MOST_POINTS) or 1
    kept = found[::every] + (found[-1:] if found and (len(found) - 1) % every else [])
    return Curve([step for step, _ in kept], [value for _, value in kept])
