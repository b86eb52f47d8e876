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

A whole run takes hours of one core. Every training's row is kept as it ends, and `--resume` goes on where the
last run stopped. `--set NAME`, repeatable, trains on single sets.
"""

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, Options, run_rows
from benchmarks.plots import figure
from benchmarks.research.sampler_trainings import (
    CASES,
    SAMPLERS,
    SHOP,
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

ORDER = ["full", *SAMPLERS]


def new_rows(wanted: Iterable[Training], folder: Path) -> Iterator[Row]:
    """The row of every training, one a core at a time, as they end."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), spawned) as pool:
        running = [pool.submit(measured, training, folder) for training in wanted]
        for done in as_completed(running):
            yield done.result()


def measure(options: Options, kept: Sequence[Row]) -> Iterator[Row]:
    """The rows of the sets that are asked for; a small one where it has to be quick."""
    named = options.given.set or [case.name for case in CASES if case.by_default]
    for case in [SHOP] if options.quick else [case for case in CASES if case.name in named]:
        with tempfile.TemporaryDirectory() as folder:
            prepare_events(case, options.data, Path(folder))
            yield from new_rows(missing(case, kept), Path(folder) / case.name)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """The rows by set, sampler, size and seed."""
    return sorted(rows, key=lambda row: (row["set"], ORDER.index(row["sampler"]), row["k"], row["seed"]))


def plot(rows: Sequence[Row], path: Path) -> None:
    """Perplexity over K: a panel a set, a curve a sampler; lines are the full softmax and 1 % above it."""
    rows = ordered(rows)
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


if __name__ == "__main__":
    sets = argparse.ArgumentParser(add_help=False)
    sets.add_argument("--set", action="append", choices=[case.name for case in CASES], metavar="NAME")
    run_rows(
        measure,
        more=sets,
        summary=lambda rows: summary(ordered(rows)),
        draw=lambda rows: plot(rows, RESULTS / "sampler_bias.png"),
    )
