"""Experiments by the dotted names of their settings, such as `training.learning_rate`, and as TOML files."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turret.data.configuration import load_configuration
from turret.data.files import new_file
from turret.training.config.experiment import ExperimentConfig, named_settings

_LISTED = 4  # further differences are only counted


def with_settings(experiment: ExperimentConfig, settings: Mapping[str, object]) -> ExperimentConfig:
    """The experiment with some settings, or whole sections, replaced.

    Raises:
        ConfigurationError: a setting does not exist, has a wrong value or contradicts another.
    """
    return load_configuration(ExperimentConfig, overrides={**experiment.model_dump(mode="json"), **settings})


def overlap(name: str, other: str) -> bool:
    """Whether two names are equal, or one is a section that contains the other."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")


def differences(before: ExperimentConfig, after: ExperimentConfig) -> str:
    """List the changed settings, such as `training.epochs was 10 and is 20`; only the first few of many."""
    old, new = named_settings(before), named_settings(after)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    listed = [f"{name} was {_shown(old, name)} and is {_shown(new, name)}" for name in names[:_LISTED]]
    return ", ".join(listed + [f"{len(names) - _LISTED} more"] * (len(names) > _LISTED))


def _shown(settings: Mapping[str, object], name: str) -> str:
    return repr(settings[name]) if name in settings else "not set"


def write_experiment(path: Path, experiment: ExperimentConfig, comment: str) -> None:
    """Replace `path` by a TOML file for `turret train --experiment`: a comment line, then every setting."""
    with new_file(path) as draft:
        draft.write_text(experiment_toml(experiment, comment), encoding="utf-8")


def experiment_toml(experiment: ExperimentConfig, comment: str) -> str:
    """The content of a TOML file for `turret train --experiment`: a comment line, then every setting."""
    sections = experiment.model_dump(mode="json", exclude_none=True)
    lines = [f"# {comment}", *(line for name, table in sections.items() for line in _section(name, table))]
    return "\n".join(lines) + "\n"


def _section(name: str, table: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"[{name}]")
    yield from (f"{key} = {_toml(value)}" for key, value in table.items() if not isinstance(value, dict))
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _section(f"{name}.{key}", value)


def _toml(value: Any) -> str:
    """A value as TOML, which differs from JSON only in tables and in one control character."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
