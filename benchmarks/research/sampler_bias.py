"""What a sampler costs in quality: one small model, trained with each sampler at K candidates an example.

Protocol (Blanc & Rendle 2018, section 4): train to the end of one fixed schedule with every sampler, and
report the *full softmax* cross entropy and perplexity of held-out targets, with three seeds of model, order
and draws. The schedule is so long that the full softmax has converged: twice the examples change its cross
entropy by less than 0.5 %. Where it overfits before, the schedule ends at its least cross entropy among half,
once and twice the examples. The result shows the three. Candidates are drawn for each example, without its
positive where the sampler can leave it out; samplers that draw by the item vectors follow them in every step,
as the paper's tree does; and the loss is the sampled softmax throughout. The model is the absolute softmax,
as the paper's is where the quadratic kernel is used. The positive features approximate the softmax with its
sign, so they train a model that keeps the sign, and are held against the full softmax of that model; uniform
and quadratic are shown there too ("signed"), where the kernel is of less use: it draws the worst items as
eagerly as the best. Which sets, sizes and seeds there are, and why, is in
`benchmarks.research.sampler_trainings`.

A whole run takes hours of one core. Every training's row goes to standard error and to the file of `--rows`
as it ends, and a training that has a row there is not repeated: a run goes on where the last one stopped.
`--minutes N` ends a run early. `--set NAME`, repeatable, trains on single sets. The result has every row of
the file.
"""

import argparse
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, Options, finish, read_options
from benchmarks.plots import figure
from benchmarks.research.sampler_trainings import (
    CASES,
    SAMPLERS,
    SHOP,
    Case,
    Row,
    Training,
    by_seed,
    excess,
    measured,
    missing,
    of_sampler,
    prepare_events,
    samplers_of,
    summary,
)

ROWS = RESULTS / "sampler_bias.jsonl"


def read_rows(path: Path) -> list[Row]:
    """The rows of earlier runs."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def new_rows(wanted: Iterable[Training], folder: Path, ends: float) -> Iterator[Row]:
    """The row of every training, one a core at a time, as they end; none begins after the time `ends`."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), spawned) as pool:
        running = [pool.submit(measured_before, ends, training, folder) for training in wanted]
        for done in as_completed(running):
            if row := done.result():
                yield row


def measured_before(ends: float, training: Training, folder: Path) -> Row | None:
    """The row of a training, or None after the time `ends`."""
    return measured(training, folder) if time.time() < ends else None


def measure(options: Options, cases: Iterable[Case], path: Path, ends: float) -> dict[str, Any]:
    """Append the rows that `path` does not have yet, and sum all rows up."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            prepare_events(case, options.data, Path(folder))
            for row in new_rows(missing(case, read_rows(path)), Path(folder) / case.name, ends):
                line = json.dumps(row)
                print(line, file=sys.stderr, flush=True)
                with path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
    rows = read_rows(path)
    order = ["full", *SAMPLERS]
    rows.sort(key=lambda row: (row["set"], order.index(row["sampler"]), row["k"], row["seed"]))
    return {**summary(rows), "rows": rows}


def plot(rows: Sequence[Row], path: Path) -> None:
    """Perplexity over K: a panel a set, a curve a sampler; lines are the full softmax and 1 % above it."""
    names = list(dict.fromkeys(row["set"] for row in rows))
    with figure(path, (6 * len(names), 4.5), len(names)) as panels:
        for panel, name in zip(panels, names, strict=True):
            seeds = by_seed(rows, name)
            for sampler in samplers_of(seeds):
                _curve(panel, seeds, sampler)
            for level, style in ((1.0, "-"), (1.01, "--")):
                panel.axhline(level, color="black", linewidth=0.8, linestyle=style)
            sizes = sorted({row["k"] for row in rows if row["set"] == name and row["k"]})
            panel.set(xscale="log", xlabel="K, candidates an example", title=name, ylim=(0.97, 1.5))
            panel.set_xticks(sizes, labels=sizes)
            panel.minorticks_off()
        panels[0].set_ylabel("perplexity / that of the full softmax")
        panels[-1].legend()


def _curve(panel: Any, seeds: dict[int, list[Row]], sampler: str) -> None:
    """Mean and range over seeds."""
    by_size: dict[int, list[float]] = {}
    for rows in seeds.values():
        for row in of_sampler(rows, sampler):
            by_size.setdefault(row["k"], []).append(1.0 + excess(rows, row, "perplexity"))
    sizes = sorted(by_size)
    means = np.array([np.mean(by_size[size]) for size in sizes])
    lowest, highest = (np.array([bound(by_size[size]) for size in sizes]) for bound in (min, max))
    bars = np.stack([means - lowest, highest - means])
    panel.errorbar(sizes, means, bars, marker="o", capsize=3, label=sampler.replace("_", " "))


def main() -> None:
    """Measure, print and keep."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--set", action="append", choices=[case.name for case in CASES], metavar="NAME")
    more.add_argument("--rows", type=Path, default=ROWS, metavar="FILE", help=f"of the rows ({ROWS.name})")
    more.add_argument("--minutes", type=float, default=math.inf, help="begin no training after this time")
    options = read_options(__doc__, more=more)
    ends = time.time() + 60.0 * options.given.minutes
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            finish("sampler_bias", options, measure(options, (SHOP,), Path(folder) / "rows.jsonl", ends))
        return
    named = options.given.set or [case.name for case in CASES if case.by_default]
    figures = measure(options, [case for case in CASES if case.name in named], options.given.rows, ends)
    plot(figures["rows"], RESULTS / "sampler_bias.png")
    finish("sampler_bias", options, figures)


if __name__ == "__main__":
    main()
