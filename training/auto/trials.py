"""Short trainings of candidates, compared on the validation part. The test part is never read."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.tower.errors import TowerError
from turret.training.auto.facts import Facts
from turret.training.auto.reasons import Reason
from turret.training.config.experiment import ExperimentConfig
from turret.training.config.named_settings import with_settings
from turret.training.errors import DivergenceError, TrainingError
from turret.training.run import Run
from turret.training.trainer import train

# The most examples, and scores of an example and an item, that a trial computes.
EXAMPLES, SCORES = 2_000_000, 10**10
# A larger log has no trials: an epoch of it is longer than all of them should be.
MOST_EXAMPLES = 10_000_000
VALIDATION_USERS, PATIENCE = 5_000, 3

_FAILURES = (ConfigurationError, DivergenceError, TrainingError, TowerError, torch.OutOfMemoryError)


@dataclass(frozen=True)
class Trial:
    """A candidate, its best validation value (None if it failed), and its cost."""

    candidate: str
    value: float | None
    epoch: int
    epochs: int
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
    candidates: Mapping[str, ExperimentConfig], facts: Facts, data: PreparedData
) -> Iterator[Trial]:
    """Train each candidate for a bounded number of epochs, and yield its result."""
    for name, experiment in candidates.items():
        shortened = trial_settings(experiment, facts)
        began = time.monotonic()
        with TemporaryDirectory(prefix="turret-trial-") as folder:
            run = Run(Path(folder), shortened, data.folder, data.fingerprint)
            epochs = shortened.training.epochs
            try:
                progress = train(run, data, report=lambda _: None)
            except _FAILURES as error:
                reason = " ".join(str(error).split())
                yield Trial(name, None, 0, epochs, time.monotonic() - began, reason)
            else:
                yield Trial(name, progress.best, progress.best_epoch, epochs, time.monotonic() - began)


def trial_settings(experiment: ExperimentConfig, facts: Facts) -> ExperimentConfig:
    """The experiment with as many epochs as a trial may have."""
    training = experiment.training
    affordable = min(EXAMPLES, SCORES // facts.items) // max(facts.examples, 1)
    return with_settings(
        experiment,
        {
            "training.epochs": min(training.epochs, max(1, affordable)),
            "training.patience": min(training.patience, PATIENCE),
            "training.validation_users": min(training.validation_users, VALIDATION_USERS),
        },
    )


def trial_reason(trial: Trial, metric: str) -> Reason:
    """The sentence of one trial."""
    if trial.value is None:
        sentence = f"The trial of {trial.candidate} failed: {trial.failure}"
        return Reason("failed", sentence, trial.as_json())
    sentence = (
        f"In a trial of at most {counted(trial.epochs, 'epoch')}, {trial.candidate} reaches a validation "
        f"{metric} of {trial.value:.4f} at epoch {trial.epoch} ({trial.seconds:.0f} s)."
    )
    return Reason("trial", sentence, trial.as_json())
