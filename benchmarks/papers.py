"""The figures of the papers behind the estimators: docs/papers.md.

    python -m benchmarks.papers --json                      all figures, half an hour
    python -m benchmarks.papers --json --resume             those that an interrupted run has left
    python -m benchmarks.papers --json --figure botev_3    one figure again; the option may be repeated

Every training is kept in `results/papers.json` as soon as it has ended.
"""

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.harness import RESULTS, Options, finish, result, run
from benchmarks.research import probability, softmax_regression, word_prediction, word_samplers
from benchmarks.research.estimators import PaperFigure, Result

FIGURES: dict[str, PaperFigure] = {
    "botev_1": probability.FIGURE,
    "botev_2a": softmax_regression.BY_ESTIMATOR,
    "botev_2b": softmax_regression.BY_DELTA,
    "botev_3": word_prediction.FIGURE,
    "blanc_rendle_2": word_samplers.BY_SAMPLER,
}


def measure(options: Options) -> dict[str, Any]:
    """Make the runs that are asked for; a full run's results are kept one by one, and its plots drawn."""
    # The batches are too small to share between threads.
    torch.set_num_threads(1)
    given = options.given
    is_kept = (given.resume or given.figure) and not options.quick
    runs: dict[str, dict[str, Result]] = result("papers")["runs"] if is_kept else {}
    for name in given.figure or FIGURES:
        figure, made = FIGURES[name], runs.setdefault(name, {})
        if not given.resume:
            made.clear()
        for one, train in figure.runs(options).items():
            if one not in made:
                start = time.perf_counter()
                made[one] = train() | {"seconds": round(time.perf_counter() - start, 1)}
                print(f"{name}: {one}: {made[one]['seconds']} s", file=sys.stderr, flush=True)
                finish("papers", replace(options, as_json=False), {"runs": runs})
        if not options.quick and not options.is_trial:
            figure.plot(made, RESULTS / "papers" / f"{name}.{figure.ending}")
    return {"runs": runs}


if __name__ == "__main__":
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--figure", action="append", choices=list(FIGURES), help="measure this figure again")
    more.add_argument("--resume", action="store_true", help="keep the runs that have ended")
    run(measure, more=more)
