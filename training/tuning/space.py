"""The search space of a study: Optuna's distribution of each searched setting."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import RootModel

from turret.data.configuration import load_configuration
from turret.data.errors import ConfigurationError
from turret.training.config.experiment import ExperimentConfig, named_settings, with_settings
from turret.training.errors import TrainingError

# Settings that define the metric of a trial: values under different ones are not comparable.
METRIC_SETTINGS = ("training.seed", "training.metric", "training.validation_users", "evaluation")
_FORM = "{ low = ..., high = ... } (with log = true for a logarithmic scale) or { choices = [...] }"

Dimension = IntDistribution | FloatDistribution | CategoricalDistribution
"""Choices are JSON texts: Optuna has no categories of lists or tables."""
Space = dict[str, Dimension]


def setting_of(parameter: Any) -> Any:
    """The setting that a trial's Optuna parameter stands for: a number of a range, or a choice as JSON."""
    return json.loads(parameter) if isinstance(parameter, str) else parameter


def extremes(dimension: Dimension) -> tuple[Any, ...]:
    """Settings that represent all of a dimension: the ends of a range, or every choice."""
    if isinstance(dimension, CategoricalDistribution):
        return tuple(map(setting_of, dimension.choices))
    return dimension.low, dimension.high


def own_parameter(name: str, dimension: Dimension, experiment: ExperimentConfig) -> Any:
    """The Optuna parameter of the experiment's own value; None if the dimension does not have it."""
    if isinstance(dimension, CategoricalDistribution):
        return next(
            (
                choice
                for choice in dimension.choices
                if with_settings(experiment, {name: setting_of(choice)}) == experiment
            ),
            None,
        )
    value = named_settings(experiment)[name]
    return value if dimension.low <= value <= dimension.high else None


class _Tables(RootModel[dict[str, Any]]):
    """A TOML file of any content."""


def load_space(path: Path, experiment: ExperimentConfig, fixed: Collection[str]) -> Space:
    """Read a search space from TOML and validate it against the experiment.

    Args:
        path: the file; each setting has a line such as `training.epochs = { low = 5, high = 40 }` or
            `training.epochs = { choices = [5, 10] }`.
        experiment: defines the settings and whether they are whole numbers.
        fixed: names of settings with a fixed value, which can't be searched.

    Raises:
        ConfigurationError: the file is missing or is not TOML.
        TrainingError: a setting or a value in it is invalid; the sentence names it.
    """
    space: Space = {}
    try:
        for name, table in _tables(load_configuration(_Tables, path).root):
            if any(_overlap(name, metric) for metric in METRIC_SETTINGS):
                raise TrainingError(
                    f"{name} decides how trials are measured, so their values could not be compared; leave "
                    "it out, and choose it for the whole study with --set"
                )
            if set_twice := [f"--set {other}" for other in fixed if _overlap(name, other)]:
                raise TrainingError(f"{name} is to be searched, and {set_twice[0]} fixes it; drop one")
            if set_twice := [other for other in space if _overlap(name, other)]:
                raise TrainingError(f"{name} and {set_twice[0]} set the same; leave one of them out")
            try:
                space[name] = _dimension(name, table, experiment)
            except (ConfigurationError, TypeError, ValueError) as error:
                raise TrainingError(f"{name}: {error}; write {name} = {_FORM}") from None
        if not space:
            raise TrainingError(f"it names no setting; write lines such as training.epochs = {_FORM}")
    except TrainingError as error:
        raise TrainingError(f"{path}: {error}.") from None
    return space


def _tables(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in table.items():
        name = prefix + key
        if not isinstance(value, dict) or not value:
            raise TrainingError(
                f"{name} = {value!r} is no search range; write {name} = {_FORM}, or fix it with --set"
            )
        if value.keys() & {"low", "high", "log", "choices"}:
            yield name, value
        else:
            yield from _tables(value, f"{name}.")


def _dimension(name: str, table: dict[str, Any], experiment: ExperimentConfig) -> Dimension:
    """The dimension of a line of a space; a range has whole numbers where the setting is one."""
    if unknown := table.keys() - {"low", "high", "log", "choices"}:
        raise ValueError(f"a range has no {min(unknown)!r}")
    for value in table.get("choices", [table[end] for end in ("low", "high") if end in table]):
        with_settings(experiment, {name: value})  # raises for an unknown setting, too
    if "choices" in table:
        return CategoricalDistribution([json.dumps(choice) for choice in table.pop("choices")], **table)
    current = named_settings(experiment).get(name)
    if isinstance(current, bool) or not isinstance(current, int | float):
        raise ValueError("it is no number, so it has no range")
    return IntDistribution(**table) if isinstance(current, int) else FloatDistribution(**table)


def default_space(experiment: ExperimentConfig, fixed: Collection[str] = ()) -> Space:
    """Ranges around the experiment's own values for the usual settings that it has and `fixed` does not name.

    The settings change how well towers are trained, not their size. Each range holds the experiment's own
    value, so a study begins with the experiment as it is.
    """
    return {
        name: dimension
        for name, dimension in _around(named_settings(experiment)).items()
        if not any(_overlap(name, other) for other in fixed) and _fits(experiment, name, dimension)
    }


def _overlap(name: str, other: str) -> bool:
    """Whether two names are equal, or one is a section that contains the other."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")


def _around(settings: dict[str, Any]) -> Space:
    space: Space = {}
    for name, factor in (
        ("training.learning_rate", 8),
        ("tower.scoring.temperature", 4),
        ("objective.sampler.negatives", 4),
    ):
        if isinstance(value := settings.get(name), int):
            space[name] = IntDistribution(max(1, value // factor), value * factor, log=True)
        elif isinstance(value, float):
            space[name] = FloatDistribution(value / factor, value * factor, log=True)
    for name in ("tower.user.dropout", "tower.item.dropout"):
        if isinstance(value := settings.get(name), float):
            space[name] = FloatDistribution(0.0, max(0.5, value))
    decay, size = settings["training.weight_decay"], settings["training.batch_size"]
    sizes = {max(min(2, size), size // 4), max(min(2, size), size // 2), size, 2 * size}
    usual = {"training.weight_decay": {0.0, 0.001, 0.01, 0.1, decay}, "training.batch_size": sizes}
    return {
        **space,
        **{name: CategoricalDistribution(list(map(json.dumps, sorted(usual[name])))) for name in usual},
    }


def _fits(experiment: ExperimentConfig, name: str, dimension: Dimension) -> bool:
    """Whether the experiment is valid over the whole range; a cosine margin, say, fixes the temperature."""
    try:
        for value in extremes(dimension):
            with_settings(experiment, {name: value})
    except ConfigurationError:
        return False
    return True
