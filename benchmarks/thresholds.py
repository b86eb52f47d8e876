"""Benchmarks that have a bar: `python -m benchmarks.thresholds [NAME ...]`, a part of `make nightly`.

Each is run as quickly as its figures still mean something, and no result is kept. Prints a line for each bar,
with --json one JSON object at the end, and ends with status 1 if a figure misses a bar. Bars are far enough
from the figures of a quiet machine that noise alone misses none.
"""

import json
import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.checkouts import figure

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}
_SECONDS = 3600


@dataclass(frozen=True)
class Bar:
    """A figure of a benchmark's JSON, the bar that it has to keep, and the reason for the bar."""

    figure: str
    comparison: str
    bar: float
    reason: str

    def is_kept(self, value: float | None) -> bool:
        """Whether a value was measured, and keeps the bar."""
        return value is not None and _COMPARISONS[self.comparison](value, self.bar)


BARS: dict[str, tuple[Bar, ...]] = {
    "small_costs --trial": (
        Bar("filter_ms", "<=", 10, "a loop over 200,000 rows takes a hundred times as long"),
        Bar("look_us", "<=", 0.3, "every request takes a look; a system call would take longer"),
        Bar("overlay_look_us", "<=", 20, "every request takes a look; a call of the store would take longer"),
        Bar("note_us", "<=", 100, "every answer is noted, in the event loop"),
        Bar("log_put_us", "<=", 100, "a log that nobody reads delays no request"),
        Bar("log_close_s", "<=", 1, "a log that nobody reads does not delay the end; it is given .2 s"),
    ),
    "abuse --attack wrong_keys": (
        Bar("doors_opened", "<=", 0, "no guess finds a key"),
        Bar("attacks.0.peak_mb_over_idle", "<=", 10, "guesses of keys are not kept"),
        Bar("attacks.0.own_stall_ms", "<=", 100, "guesses of keys do not hold up the event loop"),
    ),
    "abuse --quick": (
        Bar("doors_opened", "<=", 0, "no attack is let in"),
        Bar("peak_mb_over_idle", "<=", 150, "clients together take a bounded memory"),
    ),
    "overload --trial": (
        *(
            Bar(f"{case}.{name}", comparison, bar, reason)
            for case in ("waiting", "impatient")
            for name, comparison, bar, reason in (
                ("refused_after", "<=", 0, "a second after a flood all are served"),
                ("lost", "<=", 0, "no connection is ended"),
                ("grown_mb", "<=", 20, "refusing keeps nothing"),
            )
        ),
        Bar("waiting.served_share", ">=", 0.8, "a flood hardly costs those who are served"),
        Bar("impatient.served_share", ">=", 0.6, "clients that do not wait are left waiting"),
        Bar("waiting.refused_median_ms", "<=", 10, "a refusal waits for one turn of the loop"),
    ),
    "serving --trial": (
        Bar("activate_failed", "<=", 0, "no request fails while versions change (docs/serving.md)"),
        Bar("activate_p99_over_steady", "<=", 20, "requests hardly wait for an activation; 1.6 was measured"),
        Bar("rps_over_bare_27k", ">=", 0.5, "a bare route of the framework is at most twice as fast"),
        Bar("rps_over_bare_100k", ">=", 0.3, "the same with 100,000 items, where the search takes longer"),
        Bar("rss_over_bundle", "<=", 1, "a worker maps the files of a version, and copies none"),
    ),
    "kernel_cost --items 10000 --items 100000 --items 1000000": (
        Bar("ratio_full_1e5", ">=", 10, "times the full softmax; 12.8 was measured (docs/estimators.md)"),
        Bar("ratio_full_1e6", ">=", 60, "times the full softmax; 82.5 was measured (docs/estimators.md)"),
        Bar("growth_1e4_1e6", "<=", 3, "a step grows with the logarithm of the catalog; 1.9 was measured"),
        Bar("max_log_count_error", "<=", 1e-4, "log counts are those of the closed form"),
    ),
}


def run(command: str) -> dict[str, Any]:
    """Run a benchmark; its figures, or none if it fails."""
    words = [sys.executable, "-m", *f"benchmarks.{command} --json".split()]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=_SECONDS, check=False)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    return figures


def main(words: list[str]) -> int:
    """Run the benchmarks with these names, by default all; 1 if a bar is missed."""
    names = [word for word in words if word != "--json"]
    figures: dict[str, dict[str, float | None]] = {}
    missed: list[str] = []
    for command, bars in BARS.items():
        name = command.split()[0]
        if names and name not in names:
            continue
        measured = run(command)
        values = {bar.figure: figure(measured, bar.figure) for bar in bars}
        figures[command] = values
        for bar in bars:
            value = values[bar.figure]
            is_kept = bar.is_kept(value)
            if not is_kept:
                missed.append(f"{name} {bar.figure}")
            shown = "not measured" if value is None else f"{value:.4g}"
            print(
                f"{'ok' if is_kept else 'MISSED':6} {name} {bar.figure}: {shown} "
                f"{bar.comparison} {bar.bar:g} ({bar.reason})",
                flush=True,
            )
    if "--json" in words:
        print(json.dumps({"figures": figures, "missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
