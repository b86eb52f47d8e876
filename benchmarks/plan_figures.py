"""Write the figures of `turret plan` from `results/*.json`: `turret/planning/figures.json`.

A quantity is a base and a rate for each size that it grows with, fitted to measured points by non-negative
least squares of relative errors; of a single point, it is proportional. `engines` has the numbers of each
distributed engine whose results are there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS
from benchmarks.linear_fit import fit, worst_error
from benchmarks.plan_points import QUANTITIES, Measured, Point
from turret.planning.request import FACTORS, derived_sizes

TARGET = Path(__file__).parent.parent / "turret" / "planning" / "figures.json"
# The results of engines, and the name that a plan knows each by.
ENGINES = {"retrieval": "engines", "torchrun": "distributed", "spark": "spark_preparation"}


def main() -> None:
    """Write the figures."""
    TARGET.write_text(plan_figures(), encoding="utf-8")


def plan_figures(results: Path = RESULTS) -> str:
    """The file's content."""
    sources = {name: _read(results, name) for name in sorted({one.file for one in QUANTITIES.values()})}
    content = {
        "sources": {name: _machine(result) for name, result in sources.items()},
        "experiments": list(sources["scale_training"]["points"]),
        "engines": {
            name: _numbers(_read(results, file))
            for name, file in ENGINES.items()
            if (results / f"{file}.json").exists()
        },
        "quantities": {
            name: _quantity(one, one.points(sources[one.file])) for name, one in QUANTITIES.items()
        },
    }
    return json.dumps(content, indent=2) + "\n"


def _read(results: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _machine(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result["machine"][name] for name in ("date", "cores", "processor")}


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers on the first level, and the tables of numbers."""
    return {
        name: value
        for name, value in result.items()
        if _is_number(value) or (isinstance(value, dict) and value and all(map(_is_number, value.values())))
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _quantity(measured: Measured, points: Sequence[Point]) -> dict[str, Any]:
    rows = [{"base": 1.0, **derived_sizes(**point.sizes)} for point in points]
    values = [point.value for point in points]
    is_proportional = len(points) == 1 and measured.grows_with
    rates = fit(rows, values, (*(() if is_proportional else ("base",)), *measured.grows_with))
    error = worst_error(rows, values, rates)
    factors = _unique(factor for name in measured.grows_with for factor in FACTORS.get(name, (name,)))
    return {
        "base": _rounded(rates.pop("base", 0.0)),
        "rates": {name: _rounded(rate) for name, rate in rates.items() if rate},
        "largest": {name: max(row[name] for row in rows) for name in factors},
        "source": measured.file,
        "points": len(points),
        "worst_error": round(error, 3),
    }


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _rounded(value: float) -> float:
    """Four digits; more are noise."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
