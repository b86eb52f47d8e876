"""The figures of the papers behind the estimators: docs/papers.md.

    python -m benchmarks.papers --json                      all figures, a day of two cores
    python -m benchmarks.papers --json --resume             the figures that an interrupted run has left
    python -m benchmarks.papers --json --figure botev_3     one figure again; the option may be repeated
    python -m benchmarks.papers --json --quick              all in minutes, at sizes that claim nothing

Every training is kept in `results/papers.json` as soon as it has ended. `figures` counts the figures whose
runs are all there, `statements` the papers' statements about them, and `agree` those that hold here.
"""

import argparse
import sys
import time
from collections.abc import Mapping
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
)
from benchmarks.research.estimators import PaperFigure, Result
from benchmarks.research.statements import STATEMENTS

FIGURES: dict[str, PaperFigure] = {
    "botev_1_captioned": probability.AS_CAPTIONED,
    "botev_1": probability.OVER_ALL,
    "botev_2a": softmax_regression.BY_ESTIMATOR,
    "botev_2b": softmax_regression.BY_DELTA,
    "botev_3": word_prediction.FIGURE,
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
    arguments = options.given
    is_kept = (arguments.resume or arguments.figure) and not options.quick
    runs: dict[str, dict[str, Result]] = result("papers")["runs"] if is_kept else {}
    figures = {name: FIGURES[name] for name in arguments.figure or FIGURES}
    for measurement, figure in {figure.measurement: figure for figure in figures.values()}.items():
        results = runs.setdefault(measurement, {})
        if not arguments.resume:
            results.clear()
        for name, train in figure.runs(options).items():
            if name not in results:
                start = time.process_time()  # one thread; a run that is paused does not count
                outcome = train()
                results[name] = outcome | {"seconds": round(time.process_time() - start, 1)}
                print(f"{measurement}: {name}: {results[name]['seconds']} s", file=sys.stderr, flush=True)
                finish("papers", replace(options, as_json=False), found_of(runs, options))
    for name, figure in figures.items():
        if not options.quick and not options.is_trial:
            figure.plot(runs[figure.measurement], RESULTS / "papers" / f"{name}.{figure.ending}")
    return found_of(runs, options)


def found_of(runs: Mapping[str, Mapping[str, Result]], options: Options) -> dict[str, Any]:
    """The figures whose runs are all there, with their statements; a quick run states nothing."""
    figures = {
        name: runs[figure.measurement]
        for name, figure in FIGURES.items()
        if figure.runs(options).keys() <= runs.get(figure.measurement, {}).keys()
    }
    stated = [
        {"figure": name, "paper": claim.paper, "agrees": claim.agrees, "shown": claim.shown(figure_runs)}
        for name, figure_runs in figures.items()
        if not options.quick
        for claim in STATEMENTS.get(name, ())
    ]
    return {
        "figures": len(figures),
        "statements": len(stated),
        "agree": sum(1 for claim in stated if claim["agrees"]),
        "stated": stated,
        "runs": runs,
    }


if __name__ == "__main__":
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--figure", action="append", choices=list(FIGURES), help="measure this figure again")
    more.add_argument("--resume", action="store_true", help="keep the runs that have ended")
    run(measure, more=more)
