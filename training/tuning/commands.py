"""`turret tune`: trials trained one after the other, of which only the best run stays on disk."""

import shutil
from functools import partial
from pathlib import Path

import torch
from optuna.trial import FrozenTrial, Trial, TrialState

from turret.data.errors import ConfigurationError, TurretError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.data.text import text_table
from turret.training.config.experiment import with_settings, write_experiment
from turret.training.errors import DivergenceError, TrainingError
from turret.training.process import pick_device
from turret.training.run import Run
from turret.training.trainer import train
from turret.training.tuning.space import setting_of
from turret.training.tuning.study import JOURNAL, StoredStudy, StudyRequest, open_storage

BEST, TRIALS = "best.toml", "trials"
# Attributes stored with a trial: its best epoch, its duration and, if it failed, the reason.
EPOCH, SECONDS, REASON = "epoch", "seconds", "reason"
# Errors caused by the settings of the trial alone.
_SETTINGS_ERRORS = (ConfigurationError, DivergenceError, torch.OutOfMemoryError)
COLUMNS = 5
REPORT = partial(print, flush=True)  # `| tee` shows each trial


def tune(request: StudyRequest, count: int) -> None:
    """Begin or continue a study until it has `count` trials, then print the best ones.

    Raises:
        TurretError: the request is invalid or contradicts the study, or every trial failed.
    """
    if not (request.folder / JOURNAL).is_file():
        request.plan()  # raises before a folder is made
    with open_storage(request.folder) as storage:
        study = StoredStudy(storage, request)
        data = PreparedData.open(study.plan.data)
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
    result = f"{experiment.training.metric} {value:.4f}"
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
