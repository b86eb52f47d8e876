"""A figure of a paper: the runs behind it, and the statements that they are held against."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Results = Mapping[str, Result]
"""The result of each run of a measurement, by the name of the run."""


@dataclass(frozen=True)
class Scale:
    """The folder of the data sets, and whether minutes have to do (`quick`)."""

    data: Path
    quick: bool = False


@dataclass(frozen=True)
class Measurement:
    """Named runs, each of which is made and kept by itself; several figures may read the same runs."""

    name: str
    runs: Callable[[Scale], Mapping[str, Callable[[], Result]]]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper in our words, the measurement beside it, and the reason where they disagree."""

    printed: str
    measured: str
    agrees: bool
    reason: str = ""


@dataclass(frozen=True)
class PaperFigure:
    """A figure: the runs that it shows, the paper's statements beside them, and how they are drawn."""

    name: str
    measurement: Measurement
    claims: Callable[[Results], list[Claim]]
    plot: Callable[[Results, Path], None]
    ending: str = "svg"


IMPORTANCE = "complementary sum sampling, importance"
BERNOULLI = "complementary sum sampling, Bernoulli"
STANDARD = "standard importance sampling"

Curves = dict[str, dict[str, list[float]]]


def key_of(setting: str, estimator: str) -> str:
    """The name of a training under a setting."""
    return f"{setting}: {estimator}"


def by_setting(results: Results, measure: str) -> Curves:
    """The curve of `measure` of each estimator, by setting; trainings under no setting are left out."""
    curves: Curves = {}
    for key, result in results.items():
        setting, colon, name = key.partition(": ")
        if colon:
            curves.setdefault(setting, {})[name] = result[measure]
    return curves
