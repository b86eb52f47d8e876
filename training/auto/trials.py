"""Short trainings of candidates, compared on the validation part. The test part is never read.

Each trial is the same share of its candidate's own training, with the whole schedule of the learning rate: at
the same number of epochs or seconds, towers that learn slowly and end higher would lose, and so would those
that gain by the decay, where a longer training is interrupted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import torch

from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.tower.errors import TowerError
from turret.training.auto.facts import Facts
from turret.training.config.experiment import ExperimentConfig
from turret.training.config.named_settings import with_settings
from turret.training.errors import DivergenceError, TrainingError
from turret.training.run import Run
from turret.training.trainer import Trainer, train
from turret.training.verdict.findings import Finding

# A larger log has no trials: an epoch of it is longer than all of them should be.
MOST_EXAMPLES = 10_000_000
# The most of its epochs that a candidate has in a trial.
SHARE = 0.5
# A candidate is left out if its training takes so many times as long as that of the first, and so many
# seconds: a busy machine can make any short step long.
TIMES, SECONDS = 3.0, 60.0
TIMED_STEPS = 10

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

    All trials together take about as long as the training of the first candidate, which is the favourite:
    some steps of each tell how long the whole trainings take. The shortest trial is one epoch. A candidate
    that is left alone has none.
    """
    seconds: dict[str, float] = {}
    for name, experiment in candidates.items():
        try:
            seconds[name] = _seconds(experiment, data)
        except _FAILURES as error:
            yield _left_out(name, experiment, error)
    most = max(SECONDS, TIMES * next(iter(seconds.values())))
    slow = [name for name in seconds if seconds[name] > most]
    for name in slow:
        times = seconds.pop(name) / next(iter(seconds.values()))
        reason = f"its training would take {times:.0f} times as long as that of {next(iter(seconds))}"
        yield _left_out(name, candidates[name], reason)
    if len(seconds) < 2:
        return
    share = min(SHARE, next(iter(seconds.values())) / sum(seconds.values()))
    for name in seconds:
        yield _trial(name, candidates[name], data, share)


def _seconds(experiment: ExperimentConfig, data: PreparedData) -> float:
    """Estimate the time of a whole training, without its evaluations."""
    with TemporaryDirectory(prefix="turret-trial-") as folder:
        run = Run(Path(folder), experiment, data.folder, data.fingerprint)
        trainer = Trainer(run, data, report=lambda _: None)
        return trainer.seconds_an_epoch(TIMED_STEPS) * experiment.training.epochs


def _trial(name: str, experiment: ExperimentConfig, data: PreparedData, share: float) -> Trial:
    """Train for a share of the epochs."""
    planned, began = experiment.training.epochs, monotonic()
    epochs = max(1, round(share * planned))
    shortened = with_settings(experiment, {"training.epochs": epochs})
    with TemporaryDirectory(prefix="turret-trial-") as folder:
        run = Run(Path(folder), shortened, data.folder, data.fingerprint)
        try:
            progress = train(run, data, report=lambda _: None)
        except _FAILURES as error:
            return _left_out(name, experiment, error)
    return Trial(name, progress.best, progress.best_epoch, epochs, planned, monotonic() - began)


def _left_out(name: str, experiment: ExperimentConfig, reason: object) -> Trial:
    return Trial(name, None, 0, 0, experiment.training.epochs, 0.0, " ".join(str(reason).split()))


def trial_reason(trial: Trial, metric: str) -> Finding:
    """The sentence of one trial."""
    if trial.value is None:
        return Finding("left_out", f"{trial.candidate} is left out: {trial.failure}.", asdict(trial))
    sentence = (
        f"In a trial of {trial.epochs} of {counted(trial.planned, 'epoch')} ({trial.seconds:.0f} s), "
        f"{trial.candidate} reaches a validation {metric} of {trial.value:.4f}, at epoch {trial.epoch}."
    )
    return Finding("trial", sentence, asdict(trial))
