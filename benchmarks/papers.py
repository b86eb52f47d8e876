"""The figures of the papers behind the estimators: docs/papers.md.

    python -m benchmarks.papers --json                      all figures, under an hour
    python -m benchmarks.papers --json --resume             those that an interrupted run has left
    python -m benchmarks.papers --json --figure botev_2b    one figure again; the option may be repeated
    python -m benchmarks.papers --json --quick              all in minutes, at sizes that claim nothing

Every training is kept in `results/papers.json` as soon as it has ended.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import RESULTS, Options, finish, read_options, result, show
from benchmarks.research import blanc_rendle, probability, recurrent, softmax_regression
from benchmarks.research.runs import PaperFigure, Result, Scale

FIGURES: dict[str, PaperFigure] = {
    "botev_1": probability.FIGURE,
    "botev_2a": softmax_regression.BY_ESTIMATOR,
    "botev_2b": softmax_regression.BY_DELTA,
    "botev_3": recurrent.FIGURE,
    **blanc_rendle.FIGURES,
}
PLOTS = RESULTS / "papers"
Runs = dict[str, dict[str, Result]]
"""The results of each measurement's runs."""


def more_options() -> argparse.ArgumentParser:
    """`--figure NAME` and `--resume`."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--figure", action="append", choices=list(FIGURES), help="measure this figure again")
    parser.add_argument("--resume", action="store_true", help="keep the runs that have ended")
    return parser


def measure(options: Options) -> dict[str, Any]:
    """Make the runs that are asked for; a full run's results are kept one by one."""
    scale, given = Scale(options.data, options.quick), options.given
    is_kept = (given.resume or given.figure) and not options.quick
    runs: Runs = result("papers")["runs"] if is_kept else {}
    figures = [FIGURES[name] for name in given.figure or FIGURES]
    for measurement, wanted in {one.measurement: one.runs for one in figures}.items():
        made = runs.setdefault(measurement, {})
        if given.figure and not given.resume:
            made.clear()
        for run, train in wanted(scale).items():
            if run in made:
                continue
            start = time.perf_counter()
            found = train()
            made[run] = {**found, "seconds": round(time.perf_counter() - start, 1)}
            print(f"{measurement}: {run}: {made[run]['seconds']} s", file=sys.stderr, flush=True)
            finish("papers", replace(options, as_json=False), {"runs": runs})
    return {"runs": runs}


def draw(runs: Runs, folder: Path = PLOTS) -> None:
    """The plot of each figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in FIGURES.items():
        if figure.measurement in runs:
            figure.plot(runs[figure.measurement], folder / f"{name}.{figure.ending}")


def main() -> None:
    """Measure, print and keep."""
    options = read_options(__doc__, needs_data=False, more=more_options())
    # The batches are too small to share between threads.
    torch.set_num_threads(1)
    figures = measure(options)
    show(figures)
    if not options.quick:
        draw(figures["runs"])
    finish("papers", options, figures)


if __name__ == "__main__":
    main()
