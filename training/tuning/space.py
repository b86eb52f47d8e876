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
from turret.training.config.experiment import ExperimentConfig, named_settings, overlap, with_settings
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

    def distribution(self) -> BaseDistribution:
        """The Optuna distribution."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def extremes(self) -> tuple[object, ...]:
        """Values that represent all when the space is validated."""
        return (self.low, self.high)

    def decode(self, parameter: Any) -> Any:
        """The setting that a trial's Optuna parameter stands for."""
        return parameter

    def encode(self, name: str, experiment: ExperimentConfig) -> Any:
        """The Optuna parameter of the experiment's own value; None if that is outside the range."""
        value = named_settings(experiment)[name]
        return value if self.low <= value <= self.high else None


class Choices(Settings):
    """A list of values of any type that a setting can have, including lists and whole sections."""

    choices: Annotated[tuple[Any, ...], Field(min_length=1)]

    def distribution(self) -> BaseDistribution:
        """The Optuna distribution over the choices as JSON: Optuna has no categories of lists or tables."""
        return CategoricalDistribution([json.dumps(choice) for choice in self.choices])

    def extremes(self) -> tuple[object, ...]:
        """All choices."""
        return self.choices

    def decode(self, parameter: Any) -> Any:
        """The setting that a trial's Optuna parameter stands for."""
        return json.loads(parameter)

    def encode(self, name: str, experiment: ExperimentConfig) -> Any:
        """The Optuna parameter of the experiment's own value; None if that is no choice."""
        same = (c for c in self.choices if with_settings(experiment, {name: c}) == experiment)
        return next(map(json.dumps, same), None)


Dimension = Range | Choices


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
    for name, table in _tables(path, load_configuration(_Tables, path).root):
        for other in space:
            if overlap(name, other):
                raise TrainingError(f"{path}: {name} and {other} set the same; leave one of them out.")
        space[name] = _dimension(path, name, table, experiment, fixed)
    if not space:
        raise TrainingError(f"{path}: it names no setting; write lines such as training.epochs = {_FORM}.")
    return space


def _tables(path: Path, table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in table.items():
        name = prefix + key
        if not isinstance(value, dict) or not value:
            raise TrainingError(
                f"{path}: {name} = {value!r} is no search range; write {name} = {_FORM}, or fix the setting "
                "with --set."
            )
        if value.keys() & {"low", "high", "log", "choices"}:
            yield name, value
        else:
            yield from _tables(path, value, f"{name}.")


def _dimension(
    path: Path, name: str, table: dict[str, Any], experiment: ExperimentConfig, fixed: Collection[str]
) -> Dimension:
    where = f"{path}: {name}"
    if any(overlap(name, metric) for metric in METRIC_SETTINGS):
        raise TrainingError(
            f"{where} decides how trials are measured, so their values could not be compared; leave it out, "
            "and choose it for the whole study with --set."
        )
    for other in fixed:
        if overlap(name, other):
            raise TrainingError(f"{where} is to be searched, and --set {other} fixes it; drop one.")
    try:
        if "choices" in table:
            dimension: Dimension = load_configuration(Choices, overrides=table)
        else:
            dimension = _typed(load_configuration(Range, overrides=table), name, experiment)
        for value in dimension.extremes():
            with_settings(experiment, {name: value})
    except ConfigurationError as error:
        raise TrainingError(f"{where}: {error}.") from None
    return dimension


def _typed(dimension: Range, name: str, experiment: ExperimentConfig) -> Range:
    """Convert the bounds to floats unless the setting is a whole number."""
    with_settings(experiment, {name: dimension.low})  # raises ConfigurationError for an unknown setting
    current = named_settings(experiment).get(name)
    if isinstance(current, bool) or not isinstance(current, int | float):
        raise ConfigurationError("it is no number, so it has no range; write { choices = [...] }")
    if isinstance(current, float):
        return dimension.model_copy(update={"low": float(dimension.low), "high": float(dimension.high)})
    return dimension


def default_space(experiment: ExperimentConfig, fixed: Collection[str] = ()) -> dict[str, Dimension]:
    """Ranges around the experiment's own values for the usual settings that it has and `fixed` does not name.

    The settings change how well towers are trained, not their size. Each range holds the experiment's own
    value, so a study begins with the experiment as it is.
    """
    return {
        name: dimension
        for name, dimension in _around(named_settings(experiment)).items()
        if not any(overlap(name, other) for other in fixed) and _fits(experiment, name, dimension)
    }


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
        for value in dimension.extremes():
            with_settings(experiment, {name: value})
    except ConfigurationError:
        return False
    return True
