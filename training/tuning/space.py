"""The search space of a study: a range or a list of choices for each searched setting."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from pydantic import Field, RootModel, model_validator

from turret.data.configuration import load_configuration
from turret.data.errors import ConfigurationError
from turret.tower.config import Settings
from turret.training.config.experiment import ExperimentConfig, named_settings, with_settings
from turret.training.errors import TrainingError

Number = Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)]

# Settings that define the metric of a trial: values under different ones are not comparable.
METRIC_SETTINGS = ("training.seed", "training.metric", "training.validation_users", "evaluation")
_FORM = "{ low = ..., high = ... } (with log = true for a logarithmic scale) or { choices = [...] }"


class Range(Settings):
    """Numbers from `low` to `high`, both included, uniform or, with `log`, log-uniform."""

    low: Number
    high: Number
    log: bool = False

    @model_validator(mode="after")
    def _is_ordered(self) -> "Range":
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}; exchange them")
        if self.log and self.low <= 0:
            raise ValueError(f"log = true needs low above 0, not {self.low}; raise low")
        return self

    @property
    def extremes(self) -> tuple[object, ...]:
        """Values that represent all when the space is validated."""
        return (self.low, self.high)

    def distribution(self) -> BaseDistribution:
        """The Optuna distribution."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def encode(self, name: str, experiment: ExperimentConfig) -> Any:
        """The Optuna parameter of the experiment's own value; None if that is outside the range."""
        value = named_settings(experiment)[name]
        return value if self.low <= value <= self.high else None


class Choices(Settings):
    """A list of values of any type that a setting can have, including lists and whole sections."""

    choices: Annotated[tuple[Any, ...], Field(min_length=1)]

    @property
    def extremes(self) -> tuple[object, ...]:
        """All choices."""
        return self.choices

    def distribution(self) -> BaseDistribution:
        """The Optuna distribution over the choices as JSON: Optuna has no categories of lists or tables."""
        return CategoricalDistribution([json.dumps(choice) for choice in self.choices])

    def encode(self, name: str, experiment: ExperimentConfig) -> Any:
        """The Optuna parameter of the experiment's own value; None if that is no choice."""
        same = (c for c in self.choices if with_settings(experiment, {name: c}) == experiment)
        return next(map(json.dumps, same), None)


Dimension = Range | Choices


def setting_of(parameter: Any) -> Any:
    """The setting that a trial's Optuna parameter stands for: a number of a range, or a choice as JSON."""
    return json.loads(parameter) if isinstance(parameter, str) else parameter


class _Tables(RootModel[dict[str, Any]]):
    """A TOML file of any content."""


def load_space(path: Path, experiment: ExperimentConfig, fixed: Collection[str]) -> dict[str, Dimension]:
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
    space: dict[str, Dimension] = {}
    try:
        for name, table in _tables(load_configuration(_Tables, path).root):
            if any(_overlap(name, metric) for metric in METRIC_SETTINGS):
                raise TrainingError(
                    f"{name} decides how trials are measured, so their values could not be compared; leave "
                    "it out, and choose it for the whole study with --set"
                )
            if set_twice := [f"--set {one}" for one in fixed if _overlap(name, one)]:
                raise TrainingError(f"{name} is to be searched, and {set_twice[0]} fixes it; drop one")
            if set_twice := [one for one in space if _overlap(name, one)]:
                raise TrainingError(f"{name} and {set_twice[0]} set the same; leave one of them out")
            space[name] = _dimension(name, table, experiment)
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
    """One line of a space; the ends of a range are whole numbers where the setting is one."""
    try:
        if "choices" in table:
            dimension: Dimension = load_configuration(Choices, overrides=table)
        else:
            dimension = load_configuration(Range, overrides=table)
            with_settings(experiment, {name: dimension.low})  # raises for an unknown setting
            current = named_settings(experiment).get(name)
            if isinstance(current, bool) or not isinstance(current, int | float):
                raise ConfigurationError("it is no number, so it has no range; write { choices = [...] }")
            if isinstance(current, float):
                ends = {"low": float(dimension.low), "high": float(dimension.high)}
                dimension = dimension.model_copy(update=ends)
        for value in dimension.extremes:
            with_settings(experiment, {name: value})
    except ConfigurationError as error:
        raise TrainingError(f"{name}: {error}") from None
    return dimension


def default_space(experiment: ExperimentConfig, fixed: Collection[str] = ()) -> dict[str, Dimension]:
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


def _around(settings: dict[str, object]) -> dict[str, Dimension]:
    space: dict[str, Dimension] = {}
    for name, factor in (
        ("training.learning_rate", 8),
        ("tower.scoring.temperature", 4),
        ("objective.sampler.negatives", 4),
    ):
        if isinstance(value := settings.get(name), int | float):
            low = max(1, value // factor) if isinstance(value, int) else value / factor
            space[name] = Range(low=low, high=value * factor, log=True)
    for name in ("tower.user.dropout", "tower.item.dropout"):
        if isinstance(value := settings.get(name), float):
            space[name] = Range(low=0.0, high=max(0.5, value))
    if isinstance(decay := settings.get("training.weight_decay"), float):
        space["training.weight_decay"] = Choices(choices=tuple(sorted({0.0, 0.001, 0.01, 0.1, decay})))
    if isinstance(size := settings.get("training.batch_size"), int):
        sizes = {max(min(2, size), size // 4), max(min(2, size), size // 2), size, 2 * size}
        space["training.batch_size"] = Choices(choices=tuple(sorted(sizes)))
    return space


def _fits(experiment: ExperimentConfig, name: str, dimension: Dimension) -> bool:
    """Whether the experiment is valid over the whole range; a cosine margin, say, fixes the temperature."""
    try:
        for value in dimension.extremes:
            with_settings(experiment, {name: value})
    except ConfigurationError:
        return False
    return True
