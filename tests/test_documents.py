"""Documents say what the code does: figures come from results, and every setting is explained."""

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from benchmarks.readme import README, filled
from training.config import ExperimentConfig
from training.samplers.config import InBatchConfig, UniformConfig, UnigramConfig

DOCS = Path(__file__).parent.parent / "docs"


def settings(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The dotted names of all settings below a model."""
    names = []
    for name, field in model.model_fields.items():
        annotation: Any = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names += settings(annotation, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def test_the_figures_in_the_readme_are_those_of_the_last_results() -> None:
    """Running the script again changes nothing."""
    text = README.read_text(encoding="utf-8")
    assert filled(text) == text


@pytest.mark.parametrize("setting", [s for s in settings(ExperimentConfig) if not s.endswith(".kind")])
def test_every_setting_of_an_experiment_is_documented(setting: str) -> None:
    """docs/training.md names it in full."""
    assert f"`{setting}`" in (DOCS / "training.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("sampler", [UniformConfig, UnigramConfig, InBatchConfig])
def test_every_sampler_and_its_settings_are_documented(sampler: type[BaseModel]) -> None:
    """Its kind, and each of its settings."""
    text = (DOCS / "training.md").read_text(encoding="utf-8")
    (kind,) = get_args(sampler.model_fields["kind"].annotation)
    assert f'kind = "{kind}"' in text
    assert all(name in text for name in sampler.model_fields)
