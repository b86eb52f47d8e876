"""Benchmarks that have a bar: `python -m benchmarks.thresholds`, a part of `make nightly`.

No result is kept. Prints a line for each bar, with --json one JSON object at the end, and ends with status 1
if a figure misses a bar. Bars are far enough from the figures of a quiet machine that noise misses none.
"""

import json
import math
import subprocess
import sys
from typing import Any, NamedTuple


class Bar(NamedTuple):
    """A figure of a benchmark's JSON, the bar that it has to keep, and the reason for the bar."""

    figure: str
    comparison: str
    bar: float
    reason: str


BARS: dict[str, tuple[Bar, ...]] = {
    "serving --trial": (
        Bar("activate_failed", "<=", 0, "no request fails while versions change (docs/serving.md)"),
        Bar("activate_p99_over_steady", "<=", 20, "requests hardly wait for an activation; 1.6 was measured"),
        Bar("rps_over_bare_27k", ">=", 0.5, "a bare route of the framework is at most twice as fast"),
        Bar("rps_over_bare_100k", ">=", 0.3, "the same with 100,000 items, where the search takes longer"),
        Bar("rss_over_bundle", "<=", 1, "a worker maps the files of a version, and copies none"),
    ),
    "abuse --trial": (
        Bar("doors_opened", "<=", 0, "no request passes, ends a worker or loses data (docs/security.md)"),
        Bar("longest_stall_ms", "<=", 150, "no request keeps other clients waiting"),
        Bar("peak_mb_over_idle", "<=", 150, "no request takes the memory of a worker"),
    ),
    "outcomes --trial": (
        Bar("false_alarms", "<=", 0.05, "equal versions are hardly ever told apart (docs/outcomes.md)"),
        Bar("covered", ">=", 0.93, "the intervals of values hold the true value (docs/outcomes.md)"),
        Bar("power", ">=", 0.7, "a lift of 5 % is seen within two weeks; 0.86 was measured"),
    ),
    "kernel_cost --items 10000 --items 100000 --items 1000000": (
        Bar("ratio_full_1e5", ">=", 10, "times the full softmax; 12.8 was measured (docs/estimators.md)"),
        Bar("ratio_full_1e6", ">=", 60, "times the full softmax; 82.5 was measured (docs/estimators.md)"),
        Bar("growth_1e4_1e6", "<=", 3, "a step grows with the logarithm of the catalog; 1.9 was measured"),
        Bar("max_log_count_error", "<=", 1e-4, "log counts are those of the closed form"),
    ),
}


def run(command: str) -> dict[str, Any]:
    """Run a benchmark; return its figures, or none if it fails."""
    words = [sys.executable, "-m", *f"benchmarks.{command} --json".split()]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=3600, check=False)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    return figures


def main(words: list[str]) -> int:
    """Run the benchmarks; return 1 if a bar is missed."""
    figures: dict[str, dict[str, float | None]] = {}
    missed: list[str] = []
    for command, bars in BARS.items():
        name = command.split()[0]
        measured = run(command)
        figures[command] = {bar.figure: measured.get(bar.figure) for bar in bars}
        for bar in bars:
            value = measured.get(bar.figure, math.nan)
            is_kept = value <= bar.bar if bar.comparison == "<=" else value >= bar.bar
            missed += [] if is_kept else [f"{name} {bar.figure}"]
            shown = f"{name} {bar.figure}: {value:.4g} {bar.comparison} {bar.bar:g} ({bar.reason})"
            print(f"{'ok' if is_kept else 'MISSED':6} {shown}", flush=True)
    if "--json" in words:
        print(json.dumps({"figures": figures, "missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
