"""The trials of `--experiment auto`: trainings that go on while they are among the best half.

Successive halving (Jamieson & Talwalkar 2016) with shares of each candidate's own epochs, by the metric that
is expected after twice as many: at the same number of epochs or seconds, towers that learn slowly and end
higher would lose. No epoch is trained twice: each trial is the beginning of its candidate's own training, and
that of the picked one goes on.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from turret.data.errors import ConfigurationError
from turret.data.files import scratch_folder
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.tower.errors import TowerError
from turret.training.auto.picking import serves_new, tied
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import DivergenceError, TrainingError
from turret.training.evaluation.evaluation import means_of
from turret.training.evaluation.metrics import Values
from turret.training.loop.train import train_trial
from turret.training.loop.trainer import Trainer
from turret.training.run import Run

# A candidate that is compared last has at most this share of its epochs.
SHARE = 0.5
# So many candidates are compared last.
FINALISTS = 2
# A candidate is left out if its training takes more than TIMES times as long as that of the first, and more
# than SECONDS seconds: a busy machine can make any short step long.
TIMES, SECONDS = 3.0, 60.0
TIMED_STEPS = 10
_FAILURES = (ConfigurationError, DivergenceError, TrainingError, TowerError, torch.OutOfMemoryError)

Trial = dict[str, Any]
"""A record of the `candidate`, its best validation `values` by metric (empty if the `failure` prevented the
trial), the `epoch` of the best towers, the `epochs` of the trial and the number `planned` by the experiment,
the `seconds` of the trial, the seconds `estimated` for the planned epochs (0 without a trial), and whether it
was `stopped` as one of the worse half."""
Report = Callable[[str], None]


@dataclass(frozen=True)
class Rung:
    """A comparison of the trials that are left, after a share of their epochs; `kept` of them go on."""

    share: float
    kept: int


def rungs(seconds: Sequence[float]) -> list[Rung]:
    """The rungs for candidates whose trainings take so many seconds, the favourite first.

    Shares double and numbers halve. The trials of all but the picked one take at most as long as the training
    of the favourite, whichever go on.
    """
    counts = [len(seconds)]
    while counts[-1] > FINALISTS:
        counts.append(max(FINALISTS, -(-counts[-1] // 2)))
    dearest, last = sorted(seconds, reverse=True), 2 ** (len(counts) - 1)
    # In units of the first share, rungs add 1, 1, 2, 4 and so on to each trial that is left.
    spent = sum(max(1, 2**place // 2) * sum(dearest[:count]) for place, count in enumerate(counts))
    first = min(SHARE / last, seconds[0] / (spent - last * dearest[-1]))
    return [Rung(first * 2**place, kept) for place, kept in enumerate([*counts[1:], counts[-1]])]


@dataclass
class Begun:
    """A candidate's training so far, and what the later half of its epochs has added to its metric."""

    run: Run
    estimated: float
    seconds: float = 0.0
    gain: float = 0.0
    trial: Trial = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of the epochs that are done."""
        return self.trial["epochs"] / self.trial["planned"] if self.trial else 0.0

    def train(self, name: str, data: PreparedData, share: float) -> None:
        """Train until a share of all epochs."""
        began, planned = monotonic(), self.run.experiment.training.epochs
        progress, self.values = train_trial(self.run, data, _epochs(planned, share))
        self.seconds += monotonic() - began
        earlier = [value for epoch, value in progress.validated if 0 < 2 * epoch <= progress.epoch]
        self.gain = progress.best - max(earlier) if earlier and progress.best is not None else 0.0
        self.trial = {
            "candidate": name,
            "values": means_of(self.values),
            "epoch": progress.best_epoch,
            "epochs": progress.epoch,
            "planned": planned,
            "seconds": self.seconds,
            "estimated": self.estimated,
            "stopped": False,
            "failure": "",
        }


def run_trials(
    candidates: Mapping[str, ExperimentConfig], data: PreparedData, folder: Path, report: Report
) -> Iterator[tuple[Trial, dict[str, Values]]]:
    """Train the candidates in subfolders of `folder`; yield each trial as it ends, with the values by user.

    Some timed steps of each candidate estimate the time of its training, and so the `rungs`. If a single
    candidate is left, there is no trial.
    """
    seconds: dict[str, float] = {}
    for name, experiment in candidates.items():
        try:
            seconds[name] = _seconds(experiment, data)
        except _FAILURES as error:
            yield _left_out(name, experiment, error), {}
    first = next(iter(seconds), "")
    for name in [name for name in seconds if seconds[name] > max(SECONDS, TIMES * seconds[first])]:
        times = seconds.pop(name) / seconds[first]
        reason = f"its training would take {times:.0f} times as long as that of {first}"
        yield _left_out(name, candidates[name], reason), {}
    if len(seconds) < 2:
        return
    begun = {
        name: Begun(Run(folder / name, candidates[name], data.folder, data.fingerprint), estimated)
        for name, estimated in seconds.items()
    }
    plan, metric = rungs([*seconds.values()]), candidates[first].training.metric
    for place, rung in enumerate(plan):
        for name in [*begun]:
            report(_progress_line(name, begun, plan[place:]))
            try:
                begun[name].train(name, data, rung.share)
            except _FAILURES as error:
                del begun[name]
                yield _left_out(name, candidates[name], error), {}
        going_on = _going_on(begun, rung.kept, metric)
        for name in [name for name in begun if name not in going_on]:
            ended = begun.pop(name)
            shutil.rmtree(ended.run.folder, ignore_errors=True)  # tables and moments are large
            yield {**ended.trial, "stopped": True}, ended.values
    for last in begun.values():
        yield last.trial, last.values


def _going_on(begun: Mapping[str, Begun], count: int, metric: str) -> set[str]:
    """The best trial, those that are tied with it and serve new items, and the next best: `count` of them.

    A metric grows about as much in the next doubling of the epochs as in the last one.
    """
    ordered = sorted(
        begun, key=lambda name: begun[name].trial["values"][metric] + begun[name].gain, reverse=True
    )
    if len(ordered) <= count:
        return {*ordered}
    alike = tied({name: one.values for name, one in begun.items()}, ordered[0], metric)
    serving = [name for name in ordered if name in alike and serves_new(begun[name].run.experiment)]
    return {*[*dict.fromkeys([ordered[0], *serving, *ordered])][:count]}


def _epochs(planned: int, share: float) -> int:
    return max(1, round(share * planned))


def _progress_line(name: str, begun: Mapping[str, Begun], plan: Sequence[Rung]) -> str:
    """The line before a trial goes on, with the minutes that are left in all."""
    planned = begun[name].run.experiment.training.epochs
    until = _epochs(planned, plan[0].share)
    left = max(1, round(seconds_left([*begun.values()], plan) / 60))
    return f"auto: {name} until epoch {until} of {planned}; about {counted(left, 'minute')} left in all"


def seconds_left(begun: Sequence[Begun], plan: Sequence[Rung]) -> float:
    """Estimate the seconds of the rungs that are left, and of the trainings of the picked candidate.

    What the trials have taken beyond their estimates, such as for validations and the repeat term, is
    expected of the work that is left too.
    """
    mean = sum(one.estimated for one in begun) / len(begun)
    done = sum(one.estimated * one.share for one in begun)
    factor = max(1.0, sum(one.seconds for one in begun) / done) if done else 1.0
    now = sum(one.estimated * max(0.0, plan[0].share - one.share) for one in begun)
    later = sum((after.share - before.share) * before.kept for before, after in pairwise(plan))
    refit = begun[0].run.experiment.training.refit
    return factor * (now + mean * (later + 1.0 - plan[-1].share + refit))


def _seconds(experiment: ExperimentConfig, data: PreparedData) -> float:
    """Estimate the time of a whole training, without its evaluations."""
    with scratch_folder() as folder:
        run = Run(folder, experiment, data.folder, data.fingerprint)
        trainer = Trainer(run, data, report=lambda _: None)
        return trainer.seconds_an_epoch(TIMED_STEPS) * experiment.training.epochs


def _left_out(name: str, experiment: ExperimentConfig, reason: object) -> Trial:
    nothing = {"values": {}, "epoch": 0, "epochs": 0, "planned": experiment.training.epochs, "seconds": 0.0}
    failure = " ".join(str(reason).split())
    return {"candidate": name, **nothing, "estimated": 0.0, "stopped": False, "failure": failure}
