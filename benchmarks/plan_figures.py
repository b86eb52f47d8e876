"""Write the figures of `turret plan` from `results/*.json`: `turret/figures.json`.

A quantity is a base and a rate for each size that it grows with, fitted to measured points by non-negative
least squares of relative errors; of a single point, it is proportional.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS
from benchmarks.scale_training import EXPERIMENTS
from turret.plan import PRODUCTS, derived_sizes


def fit(
    points: Sequence[Mapping[str, float]], values: Sequence[float], names: Sequence[str]
) -> dict[str, float]:
    """Rates of `names` none negative, whose sums come closest to the values in relative terms.

    Each subset of the names is solved alone, and the best one without a negative rate is taken: of the at
    most five names there are few. A point holds 1 under "base".
    """
    target = np.asarray(values, dtype=np.float64)
    columns = {name: np.array([point[name] for point in points], dtype=np.float64) for name in names}
    best: tuple[float, dict[str, float]] = (np.inf, dict.fromkeys(names, 0.0))
    for count in range(1, min(len(names), len(points)) + 1):
        for chosen in combinations(names, count):
            matrix = np.stack([columns[name] / target for name in chosen], axis=1)
            scale = np.linalg.norm(matrix, axis=0)
            rates = np.linalg.lstsq(matrix / scale, np.ones(len(target)))[0] / scale
            error = float(np.sum((matrix @ rates - 1) ** 2))
            if (rates >= 0).all() and error < best[0] - 1e-12:
                best = error, dict.fromkeys(names, 0.0) | dict(zip(chosen, rates.tolist(), strict=True))
    return best[1]


def worst_error(
    points: Sequence[Mapping[str, float]], values: Sequence[float], rates: Mapping[str, float]
) -> float:
    """The largest relative error of the fit at a point."""
    fitted = [sum(rate * point[name] for name, rate in rates.items()) for point in points]
    return max(abs(one / value - 1) for one, value in zip(fitted, values, strict=True))


MB = 1e6
# Smaller logs take less memory than chunks of a large one.
_LARGE_LOG = 10**7


@dataclass(frozen=True)
class Point:
    """A value in bytes or seconds at some sizes."""

    sizes: Mapping[str, float]
    value: float


@dataclass(frozen=True)
class Measured:
    """The result file of a quantity, its points in it, and the sizes that it grows with."""

    file: str
    points: Callable[[Mapping[str, Any]], list[Point]]
    grows_with: Sequence[str] = ()


def _rows(
    key: Callable[[Any], float], sizes: Sequence[str], least_events: int = 0
) -> Callable[[Mapping[str, Any]], list[Point]]:
    """A point of each row of `points`, of its own sizes."""
    return lambda result: [
        Point({name: row[name] for name in sizes}, key(row))
        for row in result["points"]
        if row.get("events", least_events) >= least_events
    ]


def _prepared(result: Mapping[str, Any]) -> list[Point]:
    return [Point({"events": row["events"]}, row["prepare"]["seconds"]) for row in result["rows"]]


def _shape(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: row[name] for name in ("items", "dimension", "history")}


def _trained(experiment: str) -> dict[str, Measured]:
    def steps(result: Mapping[str, Any]) -> list[Point]:
        rows = result["points"][experiment]["steps"]
        return [Point(_shape(row), 1e-6 * row["processor_us_per_example"]) for row in rows]

    def runs(key: str) -> Callable[[Mapping[str, Any]], list[Point]]:
        return lambda result: [
            Point(_shape(row), MB * row[key]) for row in result["points"][experiment]["runs"]
        ]

    file, name = "scale_training", f"training.{experiment}"
    return {
        f"{name}.example_seconds": Measured(file, steps, ("dimension", "history", "dimension_history")),
        f"{name}.memory": Measured(file, runs("peak_mb"), ("items", "numbers", "dimension_history")),
        f"{name}.disk": Measured(file, runs("run_mb"), ("items", "numbers")),
    }


_CATALOG = ("items", "dimension")


def _served(store: str, key: str) -> Callable[[Mapping[str, Any]], list[Point]]:
    return _rows(lambda row: 1e-3 * row[store][key], _CATALOG)


def _cost(command: str, key: str, unit: float) -> Callable[[Mapping[str, Any]], float]:
    def cost(row: Mapping[str, Any]) -> float:
        value: float = row[command][key]
        return unit * value

    return cost


def _loaded(store: str) -> Callable[[Mapping[str, Any]], list[Point]]:
    return lambda result: [Point({"events": result["events"]}, result["stores"][store]["load"]["seconds"])]


def _worker(row: Mapping[str, Any]) -> float:
    one, two = (float(row["service"][name]["resident_mb"]) for name in ("sqlite", "two_workers"))
    return MB * max(1.0, two - one)


QUANTITIES: dict[str, Measured] = {
    "preparation.seconds": Measured("preparation", _prepared, ("events",)),
    "preparation.memory": Measured(
        "scale_preparation",
        _rows(lambda row: MB * row["peak_mb"], ("events", "users", "items"), _LARGE_LOG),
        ("users", "items"),
    ),
    "preparation.disk": Measured(
        "scale_preparation",
        _rows(lambda row: MB * row["prepared_mb"], ("events", "users", "items")),
        ("events", "users", "items"),
    ),
    "preparation.passing_disk": Measured(
        "scale_preparation",
        _rows(lambda row: MB * row["work_mb"], ("events", "users", "items")),
        ("events", "users", "items"),
    ),
    **{name: one for experiment in EXPERIMENTS for name, one in _trained(experiment).items()},
    "training.validation_seconds": Measured(
        "scale_validation",
        _rows(lambda row: float(row["seconds_per_user"]), _CATALOG),
        ("numbers", "items_numbers"),
    ),
    **{
        f"{command}.{part}": Measured(
            "scale_service",
            _rows(_cost(command, key, unit), _CATALOG),
            ("items", "numbers"),
        )
        for command in ("export", "index")
        for part, key, unit in (("memory", "peak_mb", MB), ("seconds", "processor_seconds", 1.0))
    },
    "bundle.disk": Measured(
        "scale_service", _rows(lambda row: MB * row["bundle_mb"], _CATALOG), ("items", "numbers")
    ),
    "service.memory": Measured(
        "scale_service",
        _rows(lambda row: MB * row["service"]["sqlite"]["resident_mb"], _CATALOG),
        ("items", "numbers"),
    ),
    "service.worker_memory": Measured("scale_service", _rows(_worker, _CATALOG), ("numbers",)),
    "service.sqlite.request_seconds": Measured(
        "scale_requests", _served("sqlite", "request_ms"), ("root_numbers",)
    ),
    "service.redis.request_seconds": Measured(
        "scale_requests", _served("redis", "request_ms"), ("root_numbers",)
    ),
    "histories.sqlite.disk": Measured(
        "scale_histories", _rows(lambda row: MB * row["sqlite_mb"], ("users", "events")), ("users", "events")
    ),
    "histories.redis.memory": Measured(
        "scale_histories",
        _rows(lambda row: MB * row["redis"]["memory_mb"], ("users", "events")),
        ("users", "events"),
    ),
    "histories.redis.disk": Measured(
        "scale_histories",
        _rows(lambda row: MB * row["redis"]["disk_mb"], ("users", "events")),
        ("users", "events"),
    ),
    **{
        f"histories.{store}.seconds": Measured(
            "history_load",
            _loaded(store),
            ("events",),
        )
        for store in ("sqlite", "redis")
    },
}


TARGET = Path(__file__).parent.parent / "turret" / "figures.json"


def main() -> None:
    """Write the figures."""
    TARGET.write_text(plan_figures(), encoding="utf-8")


def plan_figures(results: Path = RESULTS) -> str:
    """The file's content, a quantity a line."""
    sources = {name: _read(results, name) for name in sorted({one.file for one in QUANTITIES.values()})}
    quantities = [
        f"    {json.dumps(name)}: {json.dumps(_quantity(one, one.points(sources[one.file])))}"
        for name, one in QUANTITIES.items()
    ]
    head = {
        "measured_on": _machines([result["machine"] for result in sources.values()]),
        "experiments": list(sources["scale_training"]["points"]),
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, '  "quantities": {', ",\n".join(quantities), "  }", "}"]) + "\n"


def _read(results: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _machines(machines: Sequence[Mapping[str, Any]]) -> str:
    """The cores, processors and dates of the measurements."""
    dates = sorted(one["date"][:10] for one in machines)
    cores = sorted({one["cores"] for one in machines})
    processors = ", ".join(sorted({one["processor"] for one in machines}))
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"{' or '.join(map(str, cores))} core{'s' * (cores != [1])} ({processors}), {span}"


def _quantity(measured: Measured, points: Sequence[Point]) -> dict[str, Any]:
    rows = [{"base": 1.0, **derived_sizes(**point.sizes)} for point in points]
    values = [point.value for point in points]
    is_proportional = len(points) == 1 and measured.grows_with
    rates = fit(rows, values, (*(() if is_proportional else ("base",)), *measured.grows_with))
    error = worst_error(rows, values, rates)
    factors = _unique(factor for name in measured.grows_with for factor in PRODUCTS.get(name, (name,)))
    return {
        "base": _rounded(rates.pop("base", 0.0)),
        "rates": {name: _rounded(rate) for name, rate in rates.items() if rate},
        "largest": {name: max(row[name] for row in rows) for name in factors},
        "worst_error": round(error, 3),
    }


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _rounded(value: float) -> float:
    """Four digits; more are noise."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
