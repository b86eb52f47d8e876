"""The metrics of the last hour in steps of seconds, for plots without a Prometheus."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.service.telemetry.metrics import ROUTES, Metrics
from turret.service.telemetry.quantiles import quantile
from turret.service.telemetry.table import Table

STEP_SECONDS = 10.0
STEPS = 360
_QUANTILES = {"p50": 0.5, "p99": 0.99}
_SOURCES = ("towers", "popular", "fresh")
Sums = NDArray[np.float64]
_Cells = tuple[NDArray[np.int64], NDArray[np.int64]]
Gauges = Mapping[str, Mapping[str, float]]


class _Step(NamedTuple):
    """What was counted in one step: the counts in the order of the columns, in 4 bytes each."""

    time: float
    seconds: float
    counts: NDArray[np.float32]
    gauges: Gauges


class RecentMetrics:
    """Keeps the counts of all workers in each step of the last hour: about 3 KB a step.

    `sample` is called every `STEP_SECONDS`. `gauges` returns the values that are measured, not counted, as
    name -> label -> value. Every worker reads the counts of all, so each can answer for the service.
    """

    def __init__(self, metrics: Metrics, gauges: Callable[[], Gauges] = dict) -> None:
        self._table = metrics.table
        self._gauges = gauges
        self._cells = _cells(metrics.table)
        self._columns = _columns(self._cells)
        self._steps: deque[_Step] = deque(maxlen=STEPS)
        self._last: tuple[float, Sums] | None = None

    def sample(self, now: float | None = None) -> None:
        """End a step; the first call begins one."""
        now = time.time() if now is None else now
        sums = self._sums()
        if self._last is not None and now > self._last[0]:
            before, counted = self._last
            counts = np.maximum(sums - counted, 0.0).astype(np.float32)
            self._steps.append(_Step(now, now - before, counts, self._gauges()))
        self._last = (now, sums)

    def series(self) -> dict[str, Any]:
        """All series, each with a value a step, oldest first; None where nothing was measured."""
        steps = list(self._steps)
        seconds = np.array([step.seconds for step in steps])
        width = max(column.stop for column in self._columns.values())
        counts = np.array([step.counts for step in steps]).reshape(len(steps), width)
        taken = {name: counts[:, column] for name, column in self._columns.items()}
        answers = taken["answers"]
        total = answers.sum(axis=1)
        routes = [route for at, route in enumerate(ROUTES) if taken["requests"][:, at].any()]
        per_second = taken["requests"] / seconds[:, None]
        stages = [labels[0] for labels in self._table.offsets["turret_stage_seconds"]]
        return {
            "step": STEP_SECONDS,
            "times": [round(step.time, 3) for step in steps],
            "requests": {route: _listed(per_second[:, ROUTES.index(route)]) for route in routes},
            "errors": _listed(taken["errors"][:, 0] / seconds),
            "latency": self._quantiles("turret_request_seconds", taken["latency"], ROUTES, routes),
            "stages": self._quantiles("turret_stage_seconds", taken["stages"], stages, stages),
            "answers": {name: _shares(answers[:, at], total) for at, name in enumerate(_SOURCES)},
            "fallback": _shares(answers[:, _SOURCES.index("popular")], total),
            "empty": _shares(taken["empty"][:, 0], total),
            "degraded": _shares(taken["degraded"].sum(axis=1), total),
            "recall": _gauge_series(steps, "recall"),
            "drift": _gauge_series(steps, "drift"),
        }

    def _quantiles(
        self, family: str, counts: NDArray[np.float32], names: Sequence[str], shown: Sequence[str]
    ) -> dict[str, dict[str, list[float | None]]]:
        bounds = self._table.families[family].buckets
        by_name = counts.reshape(len(counts), len(names), len(bounds) + 1)
        return {
            name: {
                label: [quantile(bounds, row, share) for row in by_name[:, names.index(name)].tolist()]
                for label, share in _QUANTILES.items()
            }
            for name in shown
            if by_name[:, names.index(name)].any()
        }

    def _sums(self) -> Sums:
        parts = [np.asarray(self._table.part(worker)) for worker in range(self._table.workers)]
        total: Sums = np.sum(parts, axis=0)
        sums = [np.add.reduceat(total[index], starts) for index, starts in self._cells.values()]
        return np.concatenate(sums)


def _columns(cells: Mapping[str, _Cells]) -> dict[str, slice]:
    """The columns of each group of sums."""
    columns, start = {}, 0
    for name, (_, starts) in cells.items():
        columns[name] = slice(start, start + len(starts))
        start += len(starts)
    return columns


def _cells(table: Table) -> dict[str, _Cells]:
    """For each group the cells to add up, and where each of its sums begins among them."""
    requests, seconds = table.offsets["turret_requests"], table.offsets["turret_request_seconds"]
    width = len(table.families["turret_request_seconds"].buckets) + 1
    stages = table.offsets["turret_stage_seconds"]
    stage_width = len(table.families["turret_stage_seconds"].buckets) + 1
    answers, degraded = table.offsets["turret_answers"], table.offsets["turret_degraded"]
    return {
        "requests": _summed([[at for key, at in requests.items() if key[0] == route] for route in ROUTES]),
        "errors": _summed([[at for key, at in requests.items() if key[1].startswith("5")]]),
        "latency": _summed([[seconds[route, "2xx"] + bin_] for route in ROUTES for bin_ in range(width)]),
        "stages": _summed([[at + bin_] for at in stages.values() for bin_ in range(stage_width)]),
        "answers": _summed([[answers[(name,)]] for name in _SOURCES]),
        "empty": _summed([[table.offsets["turret_empty_answers"][()]]]),
        "degraded": _summed([[at] for at in degraded.values()]),
    }


def _summed(groups: Sequence[Sequence[int]]) -> _Cells:
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    return np.array([cell for group in groups for cell in group], dtype=np.int64), starts


def _listed(values: NDArray[np.floating]) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


def _shares(part: NDArray[np.floating], whole: NDArray[np.floating]) -> list[float | None]:
    return [
        round(some / total, 4) if total else None
        for some, total in zip(part.tolist(), whole.tolist(), strict=True)
    ]


def _gauge_series(steps: Sequence[_Step], name: str) -> dict[str, list[float | None]]:
    labels = dict.fromkeys(label for step in steps for label in step.gauges.get(name, {}))
    return {label: [step.gauges.get(name, {}).get(label) for step in steps] for label in labels}
