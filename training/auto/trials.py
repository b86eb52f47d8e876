"""Successive halving of candidates by their validation metric. The test part is never read.

Jamieson & Talwalkar 2016, with two rungs. A candidate is compared at the same share of its own training, not
at the same time: towers with much dropout learn slowly and end higher.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.tower.errors import TowerError
from turret.training.auto.facts import Facts
from turret.training.auto.reasons import Reason
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import DivergenceError, TrainingError
from turret.training.run import Run
from turret.training.trainer import train

# A larger log has no trials: an epoch of it is longer than all of them should be.
MOST_EXAMPLES = 10_000_000
# After these shares of their epochs, so many candidates are left.
RUNGS = ((0.25, 2), (0.5, 1))

_FAILURES = (ConfigurationError, DivergenceError, TrainingError, TowerError, torch.OutOfMemoryError)


@dataclass(frozen=True)
class Trial:
    """A candidate, its best validation value so far (None if it failed), and its cost."""

    candidate: str
    value: float | None
    epoch: int
    epochs: int
    planned: int
    seconds: float
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """All attributes by name."""
        return asdict(self)


def obstacle(facts: Facts, count: int) -> str | None:
    """The reason, as a clause, why there are no trials of `count` candidates; None if there are."""
    if count < 2:
        return "there is one candidate"
    if not facts.has_validation:
        return "the data has no validation part"
    if facts.examples > MOST_EXAMPLES:
        return f"an epoch has more than {MOST_EXAMPLES:,} examples"
    return None


def run_trials(
    candidates: Mapping[str, ExperimentConfig],
    data: PreparedData,
    folder: Path,
    report: Callable[[Trial], None],
) -> str:
    """The name of the candidate that is left; its run in `folder`, by its name, waits to be continued.

    The first candidate is trained to each rung. The others have as much time together as its whole training
    takes, in equal parts, half of it at each rung, and at least one evaluation.

    Raises:
        TrainingError: every candidate failed.
    """
    names = list(candidates)
    trials: dict[str, Trial] = {}
    for share, left in RUNGS:
        if len(names) <= left:
            continue
        seconds = math.inf
        for name in names:
            run = Run(folder / name, candidates[name], data.folder, data.fingerprint)
            trials[name] = trial = _train(run, data, trials.get(name), share, seconds)
            report(trial)
            if math.isinf(seconds) and trial.value is not None:
                whole = trial.seconds / trial.epochs * trial.planned
                seconds = whole / len(RUNGS) / (len(names) - 1)
        valued = [name for name in names if trials[name].value is not None]
        if not valued:
            reason = next(iter(trials.values())).failure
            raise TrainingError(f"{data.folder}: --experiment auto: every trial failed: {reason}")
        # Of equal ones the earlier is kept.
        best = sorted(valued, key=lambda name: -(trials[name].value or 0.0))[:left]
        names = [name for name in names if name in best]
    return names[0]


def _train(run: Run, data: PreparedData, before: Trial | None, share: float, seconds: float) -> Trial:
    """Train to a share of the epochs, within this further time, but at least to one evaluation."""
    name, planned = run.folder.name, run.experiment.training.epochs
    every = run.experiment.training.evaluate_every

    def train_until(epoch: int) -> Trial:
        found = train(run, data, resume=True, report=lambda _: None, until=epoch)
        return Trial(name, found.best, found.best_epoch, found.epoch, planned, found.seconds)

    try:
        trial = before or train_until(1)
        allowed = seconds + (before.seconds if before else 0.0)
        epochs = (
            max(1, math.ceil(min(share * planned, allowed / trial.seconds * trial.epochs) / every)) * every
        )
        return trial if epochs <= trial.epochs else train_until(epochs)
    except _FAILURES as error:
        return Trial(name, None, 0, 0, planned, 0.0, " ".join(str(error).split()))


def trial_reason(trial: Trial, metric: str) -> Reason:
    """The sentence of one trial."""
    if trial.value is None:
        sentence = f"The trial of {trial.candidate} failed: {trial.failure}"
        return Reason("failed", sentence, trial.as_json())
    sentence = (
        f"After {trial.epochs} of {counted(trial.planned, 'epoch')} ({trial.seconds:.0f} s), "
        f"{trial.candidate} has a validation {metric} of {trial.value:.4f}, at epoch {trial.epoch}."
    )
    return Reason("trial", sentence, trial.as_json())
