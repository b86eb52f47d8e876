"""The measured figures that a plan is computed from, as `python -m benchmarks.plan_figures` writes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

# Sizes that are products of others: the numbers of all item vectors, the cost of a layer over a history, the
# length of the lists of an index (a root), and every item compared with all for a few users.
PRODUCTS = {
    "numbers": ("items", "dimension"),
    "dimension_history": ("dimension", "history"),
    "root_numbers": ("items", "dimension"),
    "items_numbers": ("items", "dimension"),
}


def derived_sizes(
    users: float = 0, items: float = 0, events: float = 0, dimension: float = 0, history: float = 0
) -> dict[str, float]:
    """The sizes with the products by which quantities grow."""
    return {
        "users": users,
        "items": items,
        "events": events,
        "dimension": dimension,
        "history": history,
        "numbers": items * dimension,
        "dimension_history": dimension * history,
        "root_numbers": items**0.5 * dimension,
        "items_numbers": items**2 * dimension,
    }


@dataclass(frozen=True)
class Amount:
    """A number of bytes, seconds or others; `beyond` has the largest measured value of each exceeded size."""

    value: float
    beyond: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.value + other.value, least_of(self.beyond, other.beyond))

    def __mul__(self, factor: float) -> "Amount":
        return Amount(self.value * factor, self.beyond)


def least_of(*several: Mapping[str, float]) -> dict[str, float]:
    """For each name the least of its values."""
    names = dict.fromkeys(name for one in several for name in one)
    return {name: min(one[name] for one in several if name in one) for name in names}


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


@dataclass(frozen=True)
class Figures:
    """All quantities by name, and for each source the date and the cores of its machine.

    `experiments` are those whose training was measured.
    """

    quantities: Mapping[str, Quantity]
    sources: Mapping[str, Mapping[str, Any]]
    experiments: tuple[str, ...]

    def at(self, name: str, sizes: Mapping[str, float]) -> Amount:
        """A quantity for such sizes, with the sizes that exceed what was measured."""
        quantity = self.quantities[name]
        value = quantity.base + sum(rate * sizes[size] for size, rate in quantity.rates.items())
        return Amount(value, {size: most for size, most in quantity.largest.items() if sizes[size] > most})

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
    return Figures(quantities, content["sources"], tuple(content["experiments"]))


@cache
def load_figures() -> Figures:
    """The figures that are installed with Turret."""
    text = files("turret.planning").joinpath("figures.json").read_text(encoding="utf-8")
    return parse_figures(json.loads(text))
