"""A study of `turret tune` in Optuna's journal: its plan, its trials and the next trial's settings."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from turret.data.configuration import parse_overrides
from turret.data.files import try_lock
from turret.data.prepared import PreparedData
from turret.tower.config import Settings
from turret.training.config.experiment import ExperimentConfig, differences, load_experiment, with_settings
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import validated_items
from turret.training.randomness import stream
from turret.training.run import DATA, EXPERIMENT
from turret.training.tuning.space import Dimension, default_space, load_space

JOURNAL = "study.journal"
_NAME, _PLAN = "turret", "plan"
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
# Pruning starts after this many complete trials, and needs this many values at the epoch.
_COMPARED_WITH = 5


class Plan(Settings):
    """The settings shared by all trials; `data` is the absolute path of the prepared data."""

    experiment: ExperimentConfig
    space: dict[str, Dimension]
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
        if self.space is not None:
            space = load_space(self.space, experiment, fixed)
        else:
            space = begun.space if begun else default_space(experiment, fixed)
        if not space:
            raise TrainingError("--set fixes every setting that would be searched; name others with --space.")
        data = PreparedData.open(self.data or (begun.data if begun else DATA))
        validated_items(data, experiment.training.metric)  # raises for data that can't be validated
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
    """Open or create the journal of a study and lock it for this process.

    Raises:
        TrainingError: another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / JOURNAL).open("ab") as journal:
        if not try_lock(journal.fileno()):
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
        # The median rule needs no fixed budget, as early stopping ends trials anywhere, and few trials. It
        # starts one epoch after the warm-up of the learning rate.
        self._study.pruner = optuna.pruners.MedianPruner(
            n_startup_trials=_COMPARED_WITH,
            n_warmup_steps=1 + math.ceil(training.warmup * training.epochs),
            n_min_trials=_COMPARED_WITH,
        )
        self._distributions = {name: item.distribution() for name, item in self.plan.space.items()}
        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):  # interrupted
            self._study.tell(trial.number, state=TrialState.FAIL)
        if not self._study.get_trials(deepcopy=False, states=(*_FINISHED, TrialState.WAITING)):
            # The first trial has the experiment's own settings.
            own = {name: item.encode(name, self.plan.experiment) for name, item in self.plan.space.items()}
            if None not in own.values():
                self._study.enqueue_trial(own)

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
        return self._study.ask(self._distributions)

    def finish(self, trial: Trial, value: float | None = None) -> None:
        """Store the value of a trial; without one, which was stopped or failed, it ranks below all others."""
        self._study.tell(trial.number, value, state=TrialState.PRUNED if value is None else None)


def _open(storage: JournalStorage) -> optuna.Study:
    return optuna.create_study(storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True)
