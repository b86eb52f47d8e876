"""`turret tune`: a study in Optuna's journal, whose trials are trained one after the other.

Only the run of the best trial stays on disk.
"""

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from turret.data.configuration import parse_overrides
from turret.data.errors import ConfigurationError, TurretError
from turret.data.files import try_lock
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.data.text import text_table
from turret.tower.config import Settings
from turret.tower.slots import with_slots
from turret.training.batches.baskets import examples_of
from turret.training.config.experiment import (
    ExperimentConfig,
    differences,
    load_experiment,
    with_settings,
    write_experiment,
)
from turret.training.errors import DivergenceError, TrainingError
from turret.training.evaluation.evaluation import validated_items
from turret.training.loop.train import train
from turret.training.loop.trainer import pick_device
from turret.training.randomness import stream
from turret.training.run import DATA, EXPERIMENT, Run
from turret.training.tuning.space import default_space, load_space, own_parameter, setting_of

JOURNAL = "study.journal"
_NAME, _PLAN = "turret", "plan"
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
# Pruning starts after this many complete trials, and needs this many values at the epoch.
_COMPARED_WITH = 5
BEST, TRIALS = "best.toml", "trials"
# A trial is stored with its best epoch, its duration and, if it failed, the reason.
EPOCH, SECONDS, REASON = "epoch", "seconds", "reason"
# These errors have their cause in the settings of the trial alone.
_SETTINGS_ERRORS = (ConfigurationError, DivergenceError, torch.OutOfMemoryError)
COLUMNS = 5
REPORT = partial(print, flush=True)  # `| tee` shows each trial


class Plan(Settings):
    """The settings shared by all trials; `data` is the absolute path of the prepared data.

    The space has Optuna's JSON of each searched setting.
    """

    experiment: ExperimentConfig
    space: dict[str, str]
    data: Path
    fingerprint: str


@dataclass(frozen=True)
class StudyRequest:
    """The arguments of one `turret tune` call; None means the study's own value, or the default."""

    folder: Path
    data: Path | None = None
    experiment: str | None = None
    overrides: Sequence[str] = ()
    space: Path | None = None

    def plan(self, begun: Plan | None = None) -> Plan:
        """The plan of a new study, or of the one that was `begun`, with the current path of its data.

        Raises:
            TurretError: an argument is invalid, or other data, another experiment or another space than those
                of the study.
        """
        fixed = parse_overrides(self.overrides)
        if begun is not None and self.experiment is None:
            experiment = with_settings(begun.experiment, fixed)
        else:
            experiment = load_experiment(self.experiment or EXPERIMENT, self.overrides)
        if begun is not None and self.space is None:
            space = begun.space
        else:
            read = (
                load_space(self.space, experiment, fixed) if self.space else default_space(experiment, fixed)
            )
            space = {name: distribution_to_json(dimension) for name, dimension in read.items()}
        if not space:
            raise TrainingError("--set fixes every setting that would be searched; name others with --space.")
        data = PreparedData.open(self.data or (begun.data if begun else DATA))
        # This raises for data that can't be validated.
        validated_items(examples_of(experiment, data), experiment.training)
        plan = Plan(
            experiment=experiment, space=space, data=data.folder.resolve(), fingerprint=data.fingerprint
        )
        if begun is None:
            return plan
        changed = differences(begun.experiment, experiment)
        other = {
            f"other data than {data.folder} (by its fingerprint)": plan.fingerprint != begun.fingerprint,
            f"another experiment ({changed})": bool(changed),
            "another space": plan.space != begun.space,
        }
        for difference, is_there in other.items():
            if is_there:
                raise TrainingError(
                    f"{self.folder}: this study was begun with {difference}, and its trials keep that; leave "
                    "the option out, or begin another study with --study."
                )
        return plan


@contextmanager
def open_storage(folder: Path) -> Iterator[JournalStorage]:
    """Open the journal of a study, and lock it. Raises TrainingError where another process has locked it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / JOURNAL).open("ab") as journal:
        try:
            is_locked = try_lock(journal.fileno())
        except OSError as error:
            raise TrainingError(
                f"{folder} can't be locked: {error.strerror}; name a folder on a local disk, or on a network "
                "file system with locks, with --study."
            ) from None
        if not is_locked:
            raise TrainingError(
                f"{folder}: another `turret tune` is at work on this study; wait for it, or begin another "
                "study with --study."
            )
        yield JournalStorage(JournalFileBackend(str(folder / JOURNAL)))


class StoredStudy:
    """The trials of a plan in Optuna's storage.

    Trials are numbered from 1 in the order in which they finish; interrupted ones have no number. The
    settings of a trial depend only on the seed, its number and the finished trials before it, so a killed
    study continues with the same settings.
    """

    def __init__(self, storage: JournalStorage, request: StudyRequest) -> None:
        """Continue the study in `storage`, or begin it.

        Raises:
            TurretError: the request contradicts the plan of the study, or is invalid.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.folder, self._study = request.folder, _open(storage)
        stored = self._study.user_attrs.get(_PLAN)
        try:
            self.plan = request.plan(Plan.model_validate(stored) if stored else None)
        except TrainingError:
            # Before a trial has finished, a new plan may replace one with a mistake in it.
            if not stored or self.finished():
                raise
            self.plan = request.plan()
            optuna.delete_study(study_name=_NAME, storage=storage)
            self._study, stored = _open(storage), None
        if not stored:
            self._study.set_user_attr(_PLAN, self.plan.model_dump(mode="json"))
        training = self.plan.experiment.training
        # The median rule needs few trials and, as early stopping ends trials anywhere, no fixed budget. It
        # starts one epoch after the warm-up of the learning rate.
        self._study.pruner = optuna.pruners.MedianPruner(
            n_startup_trials=_COMPARED_WITH,
            n_warmup_steps=1 + math.ceil(training.warmup * training.epochs),
            n_min_trials=_COMPARED_WITH,
        )
        self._space: Any = {name: json_to_distribution(text) for name, text in self.plan.space.items()}
        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):  # these were interrupted
            self._study.tell(trial.number, state=TrialState.FAIL)
        if not self._study.get_trials(deepcopy=False, states=(*_FINISHED, TrialState.WAITING)):
            # The first trial has the experiment's own settings.
            first = {
                name: own_parameter(name, dimension, self.plan.experiment)
                for name, dimension in self._space.items()
            }
            if None not in first.values():
                self._study.enqueue_trial(first)

    def finished(self) -> list[FrozenTrial]:
        """The complete and the pruned trials, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False, states=_FINISHED)

    def best(self) -> list[int]:
        """The numbers of the complete trials, best first, the earlier first among equals."""
        values = {
            number: trial.values[0]
            for number, trial in enumerate(self.finished(), 1)
            if trial.state == TrialState.COMPLETE
        }
        return sorted(values, key=lambda number: (-values[number], number))

    def ask(self) -> Trial:
        """The next trial, with a value for each setting of the space."""
        number = len(self.finished()) + 1
        seed = stream(self.plan.experiment.training.seed, "trial", number).integers(2**32)
        self._study.sampler = optuna.samplers.TPESampler(seed=int(seed))
        return self._study.ask(self._space)

    def finish(self, trial: Trial, value: float | None = None) -> None:
        """Store a trial's value; a trial without one was stopped or failed, and ranks below all others."""
        self._study.tell(trial.number, value, state=TrialState.PRUNED if value is None else None)


def _open(storage: JournalStorage) -> optuna.Study:
    return optuna.create_study(storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True)


def tune(request: StudyRequest, count: int) -> None:
    """Begin or continue a study until it has `count` trials, then print the best ones.

    Raises:
        TurretError: the request is invalid or contradicts the study, or every trial failed.
    """
    if not (request.folder / JOURNAL).is_file():
        request.plan()  # raises before a folder is made
    with open_storage(request.folder) as storage:
        study = StoredStudy(storage, request)
        data = examples_of(study.plan.experiment, PreparedData.open(study.plan.data))
        pick_device(study.plan.experiment.training.device)
        if done := len(study.finished()):
            REPORT(f"Continuing {request.folder} after {done} trials.")
        _keep_best(study)
        while (number := len(study.finished()) + 1) <= count:
            trial = study.ask()
            shown = ", ".join(f"{name} {_shown(value)}" for name, value in _settings(trial).items())
            REPORT(f"trial {number} of {count}: {shown}")
            REPORT(f"  {_outcome(study, data, trial, number)}")
            _keep_best(study)
        if not study.best():
            reason = study.finished()[-1].user_attrs.get(REASON, "")
            raise TrainingError(f"{request.folder}: every trial failed; the last: {reason}")
        print(study_table(study))
        run = run_folder(study, study.best()[0])
        print(f"Best experiment: {request.folder / BEST}. Its run: {run}.")


def run_folder(study: StoredStudy, number: int) -> Path:
    """The run folder of a trial, numbered from 1."""
    return study.folder / TRIALS / f"{number:04d}"


def study_table(study: StoredStudy) -> str:
    """A column for each of the best trials, a row for each setting, and the counts of all outcomes."""
    finished, best = study.finished(), study.best()[:COLUMNS]
    trials = [finished[number - 1] for number in best]
    rows: list[list[str] | None] = [
        [study.plan.experiment.training.metric, *(f"{trial.values[0]:.4f}" for trial in trials)],
        ["epoch", *(str(trial.user_attrs[EPOCH]) for trial in trials)],
        ["seconds", *(f"{trial.user_attrs[SECONDS]:.0f}" for trial in trials)],
        None,
        *([name, *(_shown(setting_of(trial.params[name])) for trial in trials)] for name in study.plan.space),
    ]
    table = text_table(("trial", *map(str, best)), rows)
    failed = sum(REASON in trial.user_attrs for trial in finished)
    stopped = sum(trial.state == TrialState.PRUNED for trial in finished) - failed
    counts = f"{counted(len(finished), 'trial')}, {stopped} stopped early"
    counts += f", {failed} failed." if failed else "."
    return f"{counts} The best by the validation metric:\n{table}"


def _settings(trial: Trial | FrozenTrial) -> dict[str, object]:
    return {name: setting_of(value) for name, value in trial.params.items()}


def _shown(value: object) -> str:
    """A setting as text, numbers with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _outcome(study: StoredStudy, data: PreparedData, trial: Trial, number: int) -> str:
    """Train and finish a trial, and describe its outcome."""

    def is_hopeless(epoch: int) -> bool:
        # After the last epoch there is nothing to save.
        return epoch < experiment.training.epochs and bool(trial.should_prune())

    def observe(epoch: int, value: float) -> bool:
        trial.report(value, epoch)
        return is_hopeless(epoch)

    try:
        experiment = with_settings(study.plan.experiment, _settings(trial))
        run = Run(run_folder(study, number), experiment, data.folder, data.fingerprint)
        progress = train(run, data, overwrite=True, report=lambda _: None, observe=observe)
    except (TurretError, torch.OutOfMemoryError) as error:
        if not isinstance(error, _SETTINGS_ERRORS) and not study.best():
            raise
        reason = " ".join(str(error).split())
        trial.set_user_attr(REASON, reason)
        study.finish(trial)
        return f"failed: {reason}"
    trial.set_user_attr(EPOCH, progress.best_epoch)
    trial.set_user_attr(SECONDS, progress.seconds)
    value = float(progress.best or 0.0)
    metric = experiment.training.metric
    result = f"{metric} {with_slots({**run.best(), metric: value}, metric)}"
    if is_hopeless(progress.epoch):
        study.finish(trial)
        return f"stopped after epoch {progress.epoch}: {result} is below the median of the others"
    study.finish(trial, value)
    leads = " (best)" if study.best()[0] == number else ""
    return f"{result} at epoch {progress.best_epoch}, {progress.seconds:.0f} s{leads}"


def _keep_best(study: StoredStudy) -> None:
    """Write the best experiment and remove all runs but that of the best trial."""
    best, finished = study.best(), study.finished()
    for run in (study.folder / TRIALS).glob("[0-9]*"):
        if not best or run != run_folder(study, best[0]):
            shutil.rmtree(run)
    if best:
        trial, base = finished[best[0] - 1], study.plan.experiment
        comment = (
            f"Trial {best[0]} of {len(finished)}: validation {base.training.metric} {trial.values[0]:.4f}"
        )
        write_experiment(study.folder / BEST, with_settings(base, _settings(trial)), comment)
