"""Whether a change costs speed or quality: the benchmarks of two checkouts, in turns.

Each round runs each benchmark in both checkouts, one right after the other, in the environment of this
process; the order alternates between rounds. A figure is worse where its median is worse than before by more
than the spread (greatest less least) of its rounds, of the checkout that has the larger one. The other
checkout needs no environment of its own: `git worktree add ../before COMMIT` makes one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, finish, read_options, show

# Per benchmark: the paths of its figures in the JSON that it prints, and whether more is better.
FIGURES: Mapping[str, Mapping[str, bool]] = {
    "serving": {
        "rps_over_bare_27k": True,
        "rps_over_bare_100k": True,
        "p99_over_bare_27k": False,
        "activate_p99_over_steady": False,
        "cold_start_s": False,
        "resident_mb.1": False,
    },
    "training_speed": {
        "contests.pooled_over_best_peer.examples_per_second.Turret.median": True,
        "contests.transformer_sampled_over_rectools.over_bare.ratio": True,
        "contests.transformer_full_over_rectools.over_bare.ratio": True,
        "step_1e4_ms": False,
        "evaluation_over_bare": False,
    },
    "kernel_cost": {
        "rows.1.ratio_full": True,
        "rows.1.sampled.median_ms": False,
        "rows.1.sampled.draw_ms": False,
    },
    "movielens": {"ndcg@10": True, "hr@10": True, "seconds": False},
}
BEFORE, AFTER = "before", "after"
Rounds = dict[str, dict[str, list[float]]]


def run(benchmark: str, checkout: Path, options: Options) -> Any:
    """Run one benchmark of a checkout and return the JSON that it prints. Raises SystemExit when it fails."""
    command = [
        sys.executable,
        "-m",
        f"benchmarks.{benchmark}",
        "--json",
        "--data",
        str(options.data.resolve()),
    ]
    done = subprocess.run(
        [*command, *(["--quick"] if options.quick else [])],
        cwd=checkout,
        # The checkout goes before an editable install of another one.
        env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"benchmarks.{benchmark} of {checkout} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def figure(result: Any, path: str) -> float | None:
    """Follow a path of keys and indices, separated by dots; None where the benchmark did not measure it."""
    for key in path.split("."):
        try:
            result = result[int(key) if isinstance(result, list) else key]
        except (KeyError, IndexError, TypeError):
            return None
    return None if result is None else float(result)


def compare(before: Sequence[float], after: Sequence[float], more_is_better: bool) -> dict[str, Any]:
    """Compare the rounds of one figure."""
    change = statistics.median(after) - statistics.median(before)
    spread = max(max(side) - min(side) for side in (before, after))
    return {
        BEFORE: statistics.median(before),
        AFTER: statistics.median(after),
        "spread": spread,
        "is_worse": (-change if more_is_better else change) > spread,
        "rounds": {BEFORE: list(before), AFTER: list(after)},
    }


def measure(options: Options) -> dict[str, Any]:
    """All rounds, and the comparison of each figure."""
    checkouts = {BEFORE: options.given.before, AFTER: Path(__file__).parents[1]}
    results: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {BEFORE: [], AFTER: []} for name in options.given.only
    }
    for number in range(options.given.rounds):
        for name in options.given.only:
            for side in (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE):
                results[name][side].append(run(name, checkouts[side], options))
                print(f"round {number + 1} of {options.given.rounds}: {name}, {side}", flush=True)
    return {name: compare_benchmark(name, sides) for name, sides in results.items()}


def compare_benchmark(name: str, sides: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Compare the figures of one benchmark that both checkouts measured."""
    compared = {}
    for path, more_is_better in FIGURES[name].items():
        values = {side: [figure(result, path) for result in results] for side, results in sides.items()}
        if all(value is not None for side in values.values() for value in side):
            before, after = ([float(v) for v in values[side] if v is not None] for side in (BEFORE, AFTER))
            compared[path] = compare(before, after, more_is_better)
    return compared


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=[*FIGURES], help="benchmarks (all)")
    parser.add_argument("--before", type=Path, required=True, help="the folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of both checkouts (3)")
    return parser


def main() -> None:
    """Measure, print; exit with 1 when a figure is worse."""
    options = read_options(__doc__, more=_options())
    if options.given.rounds < 2:
        raise SystemExit(f"--rounds {options.given.rounds}: a spread needs two rounds at least")
    if not (options.given.before / "benchmarks").is_dir():
        raise SystemExit(
            f"--before {options.given.before}: no checkout is there; 'git worktree add' makes one"
        )
    figures = measure(options)
    show(figures)
    finish("checkouts", options, {"benchmarks": figures}, keep=False)
    raise SystemExit(any(one["is_worse"] for compared in figures.values() for one in compared.values()))


if __name__ == "__main__":
    main()
