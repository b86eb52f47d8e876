"""Short trainings of candidates, compared on the validation part. The test part is never read.

Each trial is the same share of its candidate's own training, with the whole schedule of the learning rate: at
the same number of epochs or seconds, towers that learn slowly and end higher would lose, and so would those
that gain by the decay, where a longer training is interrupted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
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

# A larger log has no trials: an epoch of it is longer than all of them should be.
MOST_EXAMPLES = 10_000_000
# The most of its epochs that a candidate has in a trial.
SHARE = 0.5
# A candidate is left out if its training takes so many times as long as that of the first.
TIMES = 3.0

_FAILURES = (ConfigurationError, DivergenceError, TrainingError, TowerError, torch.OutOfMemoryError)


@dataclass(frozen=True)
class Trial:
    """A candidate, its best validation value (None without a trial, for the `failure`), and its cost.

    Attributes:
        epoch: that of the value.
        epochs: those of the trial.
        planned: those of the experiment.
    """

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


def run_trials(candidates: Mapping[str, ExperimentConfig], data: PreparedData) -> Iterator[Trial]:
    """Train each candidate for a share of its epochs, and yield its result.

    All trials together take about as long as the training of the first candidate, which is the favourite: a
    training of one epoch each tells how long the whole ones take. The shortest trial is one epoch.
    """
    first = {name: _trial(name, one, 1, data) for name, one in candidates.items()}
    yield from (trial for trial in first.values() if trial.value is None)
    tried = {name: trial for name, trial in first.items() if trial.value is not None}
    if not tried:
        return
    seconds = {name: trial.seconds * trial.planned for name, trial in tried.items()}
    favourite = next(iter(tried))
    for name in tried:
        if seconds[name] > TIMES * seconds[favourite]:
            times = f"{seconds.pop(name) / seconds[favourite]:.0f} times"
            failure = f"its training would take {times} as long as that of {favourite}"
            yield replace(tried[name], value=None, epoch=0, failure=failure)
    share = min(SHARE, seconds[favourite] / sum(seconds.values()))
    for name in seconds:
        epochs = round(share * tried[name].planned)
        yield _trial(name, candidates[name], epochs, data) if epochs > 1 else tried[name]


def _trial(name: str, experiment: ExperimentConfig, epochs: int, data: PreparedData) -> Trial:
    planned, began = experiment.training.epochs, monotonic()
    epochs = min(epochs, planned)
    shortened = with_settings(experiment, {"training.epochs": epochs})
    value, epoch, failure = None, 0, ""
    with TemporaryDirectory(prefix="turret-trial-") as folder:
        run = Run(Path(folder), shortened, data.folder, data.fingerprint)
        try:
            progress = train(run, data, report=lambda _: None)
        except _FAILURES as error:
            failure = " ".join(str(error).split())
        else:
            value, epoch = progress.best, progress.best_epoch
    return Trial(name, value, epoch, epochs, planned, monotonic() - began, failure)


def trial_reason(trial: Trial, metric: str) -> Reason:
    """The sentence of one trial."""
    if trial.value is None:
        return Reason("left_out", f"{trial.candidate} is left out: {trial.failure}.", trial.as_json())
    sentence = (
        f"In a trial of {trial.epochs} of {counted(trial.planned, 'epoch')} ({trial.seconds:.0f} s), "
        f"{trial.candidate} reaches a validation {metric} of {trial.value:.4f}, at epoch {trial.epoch}."
    )
    return Reason("trial", sentence, trial.as_json())
