"""Named trainings of the papers' figures, and their results."""

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
class PaperFigure:
    """A figure: its measurement, whose runs are each made and kept alone, and its plot.

    Several figures may read the runs of one measurement.
    """

    measurement: str
    runs: Callable[[Scale], Mapping[str, Callable[[], Result]]]
    plot: Callable[[Results, Path], None]
    ending: str = "svg"


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
