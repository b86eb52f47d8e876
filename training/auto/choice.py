"""`--experiment auto`: look at the data, try the candidates, pick one, and say why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.data.configuration import parse_overrides
from turret.data.prepared import PreparedData
from turret.training.auto.candidates import candidates
from turret.training.auto.facts import Facts, facts_of
from turret.training.auto.reasons import Reason, data_reasons
from turret.training.auto.trials import Trial, obstacle, run_trials, trial_reason
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.run import Run, check_no_run

AUTO = "auto"

Report = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """An experiment, the name of its candidate, the reasons for it, and the trials that decided."""

    picked: str
    experiment: ExperimentConfig
    reasons: tuple[Reason, ...]
    trials: tuple[Trial, ...]

    def as_json(self) -> dict[str, Any]:
        """`{picked, reasons, trials}`; the experiment is stored beside it."""
        return {
            "picked": self.picked,
            "reasons": [reason.as_json() for reason in self.reasons],
            "trials": [trial.as_json() for trial in self.trials],
        }


def chosen_run(
    folder: Path,
    data: PreparedData,
    overrides: Sequence[str] | Mapping[str, object],
    overwrite: bool,
    report: Report,
) -> Run:
    """A run in `folder` of the experiment that `choose` picks, which stores the choice.

    Raises:
        TrainingError: the folder has a run and `overwrite` is not set, or every trial failed.
        ConfigurationError: a setting does not exist, does not fit, or contradicts all candidates.
    """
    if not overwrite:
        check_no_run(folder)
    choice = choose(data, overrides, report)
    return Run(folder, choice.experiment, data.folder, data.fingerprint, choice=choice.as_json())


def choose(data: PreparedData, overrides: Sequence[str] | Mapping[str, object], report: Report) -> Choice:
    """Pick an experiment for `data`; `overrides` win over its settings, `report` takes each reason."""
    values = overrides if isinstance(overrides, Mapping) else parse_overrides(overrides)
    facts = facts_of(data)
    experiments, refused = candidates(facts, values)
    reasons: list[Reason] = []

    def add(reason: Reason) -> None:
        reasons.append(reason)
        report(f"auto: {reason.sentence}")

    for reason in data_reasons(facts, next(iter(experiments.values())), refused):
        add(reason)
    trials: list[Trial] = []
    metric = next(iter(experiments.values())).training.metric
    if (hindrance := obstacle(facts, len(experiments))) is None:
        for trial in run_trials(experiments, data):
            trials.append(trial)
            add(trial_reason(trial, metric))
        left_out = {trial.candidate for trial in trials if trial.value is None}
        left = [name for name in experiments if name not in left_out]
        if len(left) == 1:
            hindrance = "it alone is left"
            experiments = {left[0]: experiments[left[0]]}
    if hindrance is None:
        picked = _best(trials, data)
        add(_picked(picked, trials, metric, facts))
    else:
        picked = next(iter(experiments))
        add(_without_trials(picked, hindrance, facts))
    return Choice(picked, experiments[picked], tuple(reasons), tuple(trials))


def _best(trials: Sequence[Trial], data: PreparedData) -> str:
    """The candidate with the best value; the earlier one of equals."""
    valued = [trial for trial in trials if trial.value is not None]
    if not valued:
        raise TrainingError(f"{data.folder}: --experiment auto: every trial failed: {trials[0].failure}")
    return max(valued, key=lambda trial: trial.value or 0.0).candidate


def _picked(picked: str, trials: Sequence[Trial], metric: str, facts: Facts) -> Reason:
    values = {trial.candidate: trial.value for trial in trials}
    own = values[picked] or 0.0
    others = [
        f"{name} has {value:.4f}" for name, value in values.items() if name != picked and value is not None
    ]
    beside = f"; {', '.join(others)}" if others else ""
    sentence = f"Picked: {picked}, whose validation {metric} is the best, {own:.4f}{beside}."
    if metric == "ndcg@10" and max(facts.own_use.values(), default=0.0) > own:
        sentence += " So far the user's own items are better: see the verdict of `turret evaluate`."
    return Reason("picked", sentence, {"picked": picked, "metric": metric, "values": values})


def _without_trials(picked: str, hindrance: str, facts: Facts) -> Reason:
    sentence = f"Picked: {picked}, without trials, as {hindrance}."
    return Reason("no_trials", sentence, {"picked": picked, "examples": facts.examples})
