"""The newest hour of the counters that the page plots, in fixed memory: some kilobytes a series."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP_SECONDS, STEPS = 30, 120
# Series of all labels together. A service with every call in use has some 900; further series are left out.
MOST_SERIES = 2_000
_SECONDS, _ANSWERED = "turret_request_seconds_bucket", 'class="2xx"'  # other classes have no plot
_NAMES = frozenset(
    {
        "turret_requests_total",
        _SECONDS,
        "turret_stage_seconds_bucket",
        "turret_answers_total",
        "turret_empty_answers_total",
        "turret_degraded_total",
        "turret_recall_at_k_sum",
        "turret_recall_at_k_count",
        "turret_drift",
    }
)


class Recent:
    """The values of each series at the newest `STEPS` scrapes, as a ring."""

    def __init__(self) -> None:
        self._times = np.zeros(STEPS)
        self._series: dict[str, NDArray[np.float64]] = {}
        self._count = 0

    def add(self, text: str, now: float) -> None:
        """Add a scrape in the Prometheus text format; `now` is a monotonic time in seconds."""
        place = self._count % STEPS
        self._times[place] = now
        for values in self._series.values():
            values[place] = np.nan
        for line in text.splitlines():
            key, _, value = line.rpartition(" ")
            name = key.partition("{")[0]
            if name not in _NAMES or (name == _SECONDS and _ANSWERED not in key):
                continue
            if key not in self._series and len(self._series) < MOST_SERIES:
                self._series[key] = np.full(STEPS, np.nan)
            if key in self._series:
                self._series[key][place] = float(value)
        self._count += 1

    def listed(self, now: float) -> dict[str, Any]:
        """The scrapes, oldest first: their ages in seconds, and the values of each series that is not only 0.

        A series has NaN where a scrape lacks it.
        """
        order = np.arange(max(0, self._count - STEPS), self._count) % STEPS
        series = {key: values[order] for key, values in self._series.items()}
        return {
            "ages": np.round(now - self._times[order], 3).tolist(),
            "series": {key: values.tolist() for key, values in series.items() if np.nan_to_num(values).any()},
        }
