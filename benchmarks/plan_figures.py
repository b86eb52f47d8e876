"""Write the figures of `turret plan` from `results/*.json`: `turret/figures.json`.

A quantity is a base and a rate for each size that it grows with, fitted to measured points by non-negative
least squares of relative errors; a quantity with a single point is proportional to its size.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import result
from benchmarks.scale_training import EXPERIMENTS
from turret.plan import derived_sizes
from turret.training.config.experiment import load_experiment


def fit(
    points: Sequence[Mapping[str, float]], values: Sequence[float], names: Sequence[str]
) -> dict[str, float]:
    """Non-negative rates of `names` whose sums come closest to the values in relative terms.

    Each subset of the names is solved alone, and the best one without a negative rate is taken: at most
    five names have few subsets. A point holds 1 under "base".
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
    return max(abs(predicted / value - 1) for predicted, value in zip(fitted, values, strict=True))


MB, MILLISECOND = 1e6, 1e-3
# Smaller logs take less memory than chunks of a large one.
_LARGE_LOG = 10**7
SIZES = ("users", "items", "events", "dimension", "history")


class Measured(NamedTuple):
    """A quantity: its result file, the path of its rows in that file, and the sizes that it grows with.

    `value` gives the bytes or seconds of a row, which has its sizes; None leaves a row out.
    """

    file: str
    rows: tuple[str, ...]
    value: Callable[[Any], float | None]
    grows_with: Sequence[str] = ()

    def points(self, source: Any) -> tuple[list[dict[str, float]], list[float]]:
        """The sizes of each point, with their products and 1 as the base, and the values."""
        for key in self.rows:
            source = source[key]
        rows, values = [], []
        for row in source if isinstance(source, list) else [source]:
            if (value := self.value(row)) is not None:
                rows.append({"base": 1.0, **derived_sizes(**{name: row.get(name, 0) for name in SIZES})})
                values.append(value)
        return rows, values


def _training(experiment: str) -> dict[str, Measured]:
    file, name, places = "scale_training", f"training.{experiment}", ("points", experiment)
    steps, runs = (*places, "steps"), (*places, "runs")
    lengths, catalog = ("dimension", "history", "dimension_history"), ("items", "numbers")
    return {
        f"{name}.example_seconds": Measured(
            file, steps, lambda row: 1e-6 * row["processor_us_per_example"], lengths
        ),
        f"{name}.memory": Measured(
            file, runs, lambda row: MB * row["peak_mb"], (*catalog, "dimension_history")
        ),
        f"{name}.disk": Measured(file, runs, lambda row: MB * row["run_mb"], catalog),
    }


def _command(name: str) -> dict[str, Measured]:
    catalog = ("items", "numbers")
    return {
        f"{name}.memory": _of("service", lambda row: MB * row[name]["peak_mb"], *catalog),
        f"{name}.seconds": _of("service", lambda row: row[name]["processor_seconds"], *catalog),
    }


def _of(part: str, value: Callable[[Any], float | None], *grows_with: str) -> Measured:
    """A quantity of the points of a part of `benchmarks.scale`."""
    return Measured(f"scale_{part}", ("points",), value, grows_with)


def _worker(row: Any) -> float:
    one_mb, two_mb = (float(row["service"][name]["resident_mb"]) for name in ("sqlite", "two_workers"))
    return MB * max(1.0, two_mb - one_mb)


QUANTITIES: dict[str, Measured] = {
    "preparation.seconds": Measured(
        "preparation", ("rows",), lambda row: row["prepare"]["seconds"], ("events",)
    ),
    "preparation.memory": _of(
        "preparation",
        lambda row: MB * row["peak_mb"] if row["events"] >= _LARGE_LOG else None,
        *("users", "items"),
    ),
    "preparation.disk": _of(
        "preparation", lambda row: MB * max(row["prepared_mb"], row["work_mb"]), *("events", "users", "items")
    ),
    **{name: measured for experiment in EXPERIMENTS for name, measured in _training(experiment).items()},
    "training.validation_seconds": _of(
        "validation", lambda row: row["seconds_per_user"], "numbers", "items_numbers"
    ),
    **_command("export"),
    **_command("index"),
    "bundle.disk": _of("service", lambda row: MB * row["bundle_mb"], "items", "numbers"),
    "service.memory": _of(
        "service", lambda row: MB * row["service"]["sqlite"]["resident_mb"], "items", "numbers"
    ),
    "service.worker_memory": _of("service", _worker, "numbers"),
    "service.sqlite.request_seconds": _of(
        "requests", lambda row: MILLISECOND * row["sqlite"]["request_ms"], "root_numbers"
    ),
    "service.redis.request_seconds": _of(
        "requests", lambda row: MILLISECOND * row["redis"]["request_ms"], "root_numbers"
    ),
    "histories.sqlite.disk": _of("histories", lambda row: MB * row["sqlite_mb"], "users", "events"),
    "histories.redis.memory": _of("histories", lambda row: MB * row["redis"]["memory_mb"], "users", "events"),
    "histories.redis.disk": _of("histories", lambda row: MB * row["redis"]["disk_mb"], "users", "events"),
}


TARGET = Path(__file__).parent.parent / "turret" / "figures.json"


def main() -> None:
    """Write the figures."""
    TARGET.write_text(plan_figures(), encoding="utf-8")


def plan_figures() -> str:
    """The file's content, a quantity a line."""
    sources = {name: result(name) for name in sorted({quantity.file for quantity in QUANTITIES.values()})}
    quantities = [
        f"    {json.dumps(name)}: {json.dumps(_quantity(quantity, sources[quantity.file]))}"
        for name, quantity in QUANTITIES.items()
    ]
    head = {
        "measured_on": _machines([source["machine"] for source in sources.values()]),
        "experiments": {name: _defaults(name) for name in sources["scale_training"]["points"]},
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, '  "quantities": {', ",\n".join(quantities), "  }", "}"]) + "\n"


def _defaults(experiment: str) -> dict[str, int]:
    """The settings of a shipped experiment that a plan begins with."""
    settings = load_experiment(experiment)
    return {
        "dimension": settings.tower.dimension,
        "history": settings.tower.user.history_length,
        "epochs": settings.training.epochs,
        "validation_users": settings.training.validation_users,
    }


def _machines(machines: Sequence[Mapping[str, Any]]) -> str:
    """The cores, processors and dates of the measurements."""
    dates = sorted(machine["date"][:10] for machine in machines)
    cores = sorted({machine["cores"] for machine in machines})
    processors = ", ".join(sorted({machine["processor"] for machine in machines}))
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"{' or '.join(map(str, cores))} core{'s' * (cores != [1])} ({processors}), {span}"


def _quantity(measured: Measured, source: Mapping[str, Any]) -> dict[str, Any]:
    rows, values = measured.points(source)
    is_proportional = len(rows) == 1 and measured.grows_with
    rates = fit(rows, values, (*(() if is_proportional else ("base",)), *measured.grows_with))
    error = worst_error(rows, values, rates)
    factors = dict.fromkeys(factor for name in measured.grows_with for factor in _factors(name))
    return {
        "base": _rounded(rates.pop("base", 0.0)),
        "rates": {name: _rounded(rate) for name, rate in rates.items() if rate},
        "largest": {name: max(row[name] for row in rows) for name in factors},
        "worst_error": round(error, 3),
    }


def _factors(name: str) -> list[str]:
    """The sizes in a product: without one of them it is 0."""
    return [size for size in SIZES if not derived_sizes(**{key: float(key != size) for key in SIZES})[name]]


def _rounded(value: float) -> float:
    """The value with four digits; more are noise."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
