"""The measured figures that a plan is computed from, as `python -m benchmarks.plan_figures` writes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from turret.planning.amounts import Amount


@dataclass(frozen=True)
class Quantity:
    """A measured quantity: `base`, and for each size a rate by which it grows.

    `largest` has the largest measured value of each size. `source` names the file in benchmarks/results,
    `points` counts its measured points, and `worst_error` is the largest relative error of the fit at one.
    """

    base: float
    rates: Mapping[str, float]
    largest: Mapping[str, float]
    source: str
    points: int = 1
    worst_error: float = 0.0

    def at(self, sizes: Mapping[str, float]) -> Amount:
        """The quantity for such sizes, with the sizes that exceed what was measured."""
        value = self.base + sum(rate * sizes[name] for name, rate in self.rates.items())
        beyond = {name: most for name, most in self.largest.items() if sizes[name] > most}
        return Amount(value, beyond)


@dataclass(frozen=True)
class Figures:
    """All quantities by name, and for each source the date and the cores of its machine.

    `experiments` are those whose training was measured. `engines` has figures of each distributed engine that
    was measured.
    """

    quantities: Mapping[str, Quantity]
    sources: Mapping[str, Mapping[str, Any]]
    experiments: tuple[str, ...]
    engines: Mapping[str, Mapping[str, Any]]

    def at(self, name: str, sizes: Mapping[str, float]) -> Amount:
        """A quantity for such sizes."""
        return self.quantities[name].at(sizes)

    def source_line(self) -> str:
        """The machines and dates of the figures, for people."""
        dates = sorted(source["date"][:10] for source in self.sources.values())
        cores = sorted({source["cores"] for source in self.sources.values()})
        processors = sorted({source["processor"] for source in self.sources.values()})
        span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        counts = " or ".join(map(str, cores))
        return f"{counts} core{'s' * (cores != [1])} ({', '.join(processors)}), {span}"


def parse_figures(content: Mapping[str, Any]) -> Figures:
    """The figures from the parsed JSON."""
    quantities = {name: Quantity(**entry) for name, entry in content["quantities"].items()}
    return Figures(quantities, content["sources"], tuple(content["experiments"]), content["engines"])


@cache
def load_figures() -> Figures:
    """The figures that are installed with Turret."""
    text = files("turret.planning").joinpath("figures.json").read_text(encoding="utf-8")
    return parse_figures(json.loads(text))
