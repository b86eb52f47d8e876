"""The measured points of each quantity of a plan: which result has them, and what they grow with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scale_training import EXPERIMENTS

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


def _constant(key: Callable[[Any], float]) -> Callable[[Mapping[str, Any]], list[Point]]:
    return lambda result: [Point({}, key(result))]


def _proxied(result: Mapping[str, Any]) -> float:
    return 1e-3 * float(result["through"]["proxy_ms"])


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
    "service.redis.read_seconds": Measured("scale_requests", _served("redis", "redis_ms")),
    "proxy.request_seconds": Measured(
        "proxy", _constant(lambda result: 1e-3 * result["through"]["proxy_ms"])
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
        f"histories.{store}.load_seconds": Measured(
            "history_load",
            _loaded(store),
            ("events",),
        )
        for store in ("sqlite", "redis")
    },
}
