"""The figures of the papers behind the estimators: docs/papers.md.

    python -m benchmarks.papers --json                      all figures, a day of two cores
    python -m benchmarks.papers --json --resume             those that an interrupted run has left
    python -m benchmarks.papers --json --figure botev_3     one figure again; the option may be repeated
    python -m benchmarks.papers --json --quick              all in minutes, at sizes that claim nothing

Every training is kept in `results/papers.json` as soon as it has ended.
"""

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.harness import RESULTS, Options, finish, result, run
from benchmarks.research import (
    draw_cost,
    next_click,
    penn_treebank,
    probability,
    softmax_regression,
    word_prediction,
    word_samplers,
)
from benchmarks.research.estimators import PaperFigure, Result

FIGURES: dict[str, PaperFigure] = {
    "botev_1": probability.FIGURE,
    "botev_2a": softmax_regression.BY_ESTIMATOR,
    "botev_2b": softmax_regression.BY_DELTA,
    "botev_3": word_prediction.FIGURE,
    "blanc_rendle_2": word_samplers.BY_SAMPLER,
    "blanc_rendle_2_ptb": penn_treebank.FINAL,
    "blanc_rendle_2_clicks": next_click.FIGURE,
    "blanc_rendle_3": penn_treebank.BY_SIZE,
    "blanc_rendle_4": penn_treebank.BY_SAMPLER,
    "draw_cost": draw_cost.FIGURE,
}


def measure(options: Options) -> dict[str, Any]:
    """Make the runs that are asked for; a full run's results are kept one by one, and its plots drawn."""
    # The batches are too small to share between threads.
    torch.set_num_threads(1)
    given = options.given
    is_kept = (given.resume or given.figure) and not options.quick
    runs: dict[str, dict[str, Result]] = result("papers")["runs"] if is_kept else {}
    figures = {name: FIGURES[name] for name in given.figure or FIGURES}
    for measurement, figure in {one.measurement: one for one in figures.values()}.items():
        made = runs.setdefault(measurement, {})
        if not given.resume:
            made.clear()
        for name, train in figure.runs(options).items():
            if name not in made:
                start = time.perf_counter()
                found = train()
                made[name] = found | {"seconds": round(time.perf_counter() - start, 1)}
                print(f"{measurement}: {name}: {made[name]['seconds']} s", file=sys.stderr, flush=True)
                finish("papers", replace(options, as_json=False), {"runs": runs})
    for name, figure in figures.items():
        if not options.quick and not options.is_trial:
            figure.plot(runs[figure.measurement], RESULTS / "papers" / f"{name}.{figure.ending}")
    return {"runs": runs}


if __name__ == "__main__":
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--figure", action="append", choices=list(FIGURES), help="measure this figure again")
    more.add_argument("--resume", action="store_true", help="keep the runs that have ended")
    run(measure, more=more)
