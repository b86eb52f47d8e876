"""The figures of the papers behind the estimators, each beside the paper's statements: docs/papers.md.

    python -m benchmarks.papers --json                      all figures, under an hour
    python -m benchmarks.papers --json --resume             those that an interrupted run has left
    python -m benchmarks.papers --json --figure botev_2b    one figure again; the option may be repeated
    python -m benchmarks.papers --json --quick              all in minutes, at sizes that claim nothing

Every training is kept in `results/papers.json` as soon as it has ended. `figures` has the measurements and
the statements of each figure, `agree` whether all statements of a figure hold, and `differences` a sentence
for each that does not.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import RESULTS, Options, finish, read_options, show
from benchmarks.research import blanc_rendle, probability, recurrent, regression
from benchmarks.research.paper_figure import Measurement, PaperFigure, Result, Results, Scale

NAME = "papers"
FIGURES = (
    probability.FIGURE,
    regression.BY_ESTIMATOR,
    regression.BY_DELTA,
    recurrent.FIGURE,
    *blanc_rendle.FIGURES,
)
PLOTS = RESULTS / "papers"
Runs = dict[str, dict[str, Result]]
"""The results of each measurement's runs."""


def more_options() -> argparse.ArgumentParser:
    """`--figure NAME` and `--resume`."""
    parser = argparse.ArgumentParser(add_help=False)
    names = [figure.name for figure in FIGURES]
    parser.add_argument("--figure", action="append", choices=names, help="measure this figure again")
    parser.add_argument("--resume", action="store_true", help="keep the runs that have ended")
    return parser


def kept_runs(path: Path) -> Runs:
    """The runs in a results file; none where there is no file."""
    if not path.exists():
        return {}
    runs: Runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return runs


def missing(measurements: Iterable[Measurement], scale: Scale, runs: Runs) -> list[tuple[Measurement, str]]:
    """The measurement and name of each run without a result."""
    return [
        (measurement, name)
        for measurement in measurements
        for name in measurement.runs(scale)
        if name not in runs.get(measurement.name, {})
    ]


def judged(figures: Iterable[PaperFigure], runs: Runs) -> dict[str, Any]:
    """The parts of the JSON, from the runs; a figure whose runs aren't there is left out."""
    measured = [figure for figure in figures if figure.measurement.name in runs]
    claims = {figure.name: figure.claims(runs[figure.measurement.name]) for figure in measured}
    return {
        "figures": {name: [vars(claim) for claim in made] for name, made in claims.items()},
        "agree": {name: all(claim.agrees for claim in made) for name, made in claims.items()},
        "differences": {
            name: " ".join(f"{claim.measured} {claim.reason}".strip() for claim in made if not claim.agrees)
            for name, made in claims.items()
            if not all(claim.agrees for claim in made)
        },
    }


def complete(measurements: Iterable[Measurement], scale: Scale, runs: Runs) -> Runs:
    """The measurements of which every run is there, in the order of the figures."""
    return {
        one.name: {name: runs[one.name][name] for name in one.runs(scale)}
        for one in measurements
        if set(one.runs(scale)) <= set(runs.get(one.name, {}))
    }


def distinct(figures: Iterable[PaperFigure]) -> list[Measurement]:
    """The measurements of the figures, each once."""
    return list({figure.measurement.name: figure.measurement for figure in figures}.values())


def measure(
    options: Options, path: Path = RESULTS / f"{NAME}.json", figures: tuple[PaperFigure, ...] = FIGURES
) -> Runs:
    """Make the runs that are asked for; a full run's results are kept one by one."""
    scale = Scale(options.data, options.quick)
    wanted = [figure for figure in figures if figure.name in (options.given.figure or [figure.name])]
    keeps = options.given.resume or options.given.figure is not None
    runs = kept_runs(path) if keeps and not options.quick else {}
    if not options.given.resume:
        runs = {name: kept for name, kept in runs.items() if name not in {m.name for m in distinct(wanted)}}
    for measurement, name in missing(distinct(wanted), scale, runs):
        start = time.perf_counter()
        result = measurement.runs(scale)[name]()
        seconds = time.perf_counter() - start
        runs.setdefault(measurement.name, {})[name] = {**result, "seconds": round(seconds, 1)}
        print(f"{measurement.name}: {name}: {seconds:.1f} s", file=sys.stderr, flush=True)
        if not options.quick:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({"runs": runs}) + "\n", encoding="utf-8")
    return complete(distinct(figures), scale, runs)


def draw(runs: Mapping[str, Results], folder: Path = PLOTS) -> None:
    """The plot of each figure that has runs."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        if figure.measurement.name in runs:
            figure.plot(runs[figure.measurement.name], folder / f"{figure.name}.{figure.ending}")


def main() -> None:
    """Measure, print and keep."""
    options = read_options(__doc__, needs_data=False, more=more_options())
    # The batches are too small to share between threads.
    torch.set_num_threads(1)
    runs = measure(options)
    figures = judged(FIGURES, runs)
    show(figures)
    if not options.quick:
        draw(runs)
    finish(NAME, options, {**figures, "runs": runs})


if __name__ == "__main__":
    main()
