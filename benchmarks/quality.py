"""The quality of the recommended experiment on well-known data sets: --set NAME.

The whole catalog is ranked, the user's own items masked, ties by ascending row. Sets that are split by time
have no published figures: baselines answer the same questions, and the differences have intervals. Every
seed's figures, with its configuration and its curve, are kept in
results/quality/SET, and the mean over seeds in results/quality_SET.json. It takes hours; `--resume` goes on.
"""

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import (
    Options,
    finish,
    flat_over_seeds,
    keep,
    kept,
    machine,
    peak_memory_mb,
    read_options,
    show,
)
from benchmarks.next_items import (
    METRICS,
    Questions,
    Retrainer,
    by_bundle,
    difference,
    gains,
    moment,
    questions,
)
from benchmarks.quality_sets import SETS, QualitySet
from benchmarks.timed_sets import TIMED, TimedSet
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.training.config.experiment import EvaluationConfig, ExperimentConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.loop.train import train
from turret.training.run import Run

Figures = dict[str, Any]
Gains = NDArray[np.float64]
"""The metrics of all questions [Q, 2], in the order of the periods."""


def answers_of(chosen: TimedSet, retrainer: Retrainer, settings: Sequence[str]) -> tuple[Gains, Figures]:
    """The gain of the model of one seed, and the cost of keeping it fresh."""
    recipe, begins = chosen.recipe, chosen.begins
    settings = [*recipe.base, *settings]
    model = first = retrainer.retrained(begins - recipe.base_window, begins, "first", settings)
    results, seconds = [], []
    for number, (start, period_questions) in enumerate(asked_in(chosen, retrainer.clicks)):
        if number and recipe.every and number % recipe.every == 0:
            window, since = start - recipe.window, start - recipe.since
            model = retrainer.updated(model.folder, window, since, start, f"after{number}", recipe.update)
            seconds.append(model.seconds)
        features = period_questions.features if chosen.features else None
        results.append(gains(by_bundle(model.folder, features), period_questions))
    return np.concatenate(results), {
        "first_seconds": first.seconds,
        "update_seconds": statistics.median(seconds) if seconds else None,
        "updates": len(seconds),
        "seconds": first.seconds + sum(seconds),
    }


def asked_in(chosen: TimedSet, log: pl.DataFrame) -> list[tuple[int, Questions]]:
    """The beginning of each period, and its questions."""
    starts = [chosen.begins + number * chosen.period for number in range(chosen.periods)]
    read = (chosen.repeats, chosen.features, chosen.by_click)
    return [(start, questions(log, start, start + chosen.period, *read)) for start in starts]


def baselines(chosen: TimedSet, log: pl.DataFrame) -> dict[str, Gains]:
    """The gain of every baseline."""
    results: dict[str, list[Gains]] = {name: [] for name in chosen.baselines}
    for start, period_questions in asked_in(chosen, log):
        before = log.filter(pl.col("timestamp_ms") < start)
        for name, baseline in chosen.baselines.items():
            results[name].append(gains(baseline(before), period_questions))
    return {name: np.concatenate(periods) for name, periods in results.items()}


def beside(ours: Gains, others: dict[str, Gains], sessions: Sequence[int]) -> Figures:
    """Each baseline's means, and how far ours is above, with intervals; `above`: all are above 0."""
    results = {
        name: {
            metric: {"mean": float(theirs.mean()), **difference(mine, theirs, sessions)}
            for metric, mine, theirs in zip(METRICS, ours.T, baseline_gains.T, strict=True)
        }
        for name, baseline_gains in others.items()
    }
    above = all(baseline[metric]["low"] > 0.0 for baseline in results.values() for metric in METRICS)
    return {"above": above, "baselines": results}


# Figures that are the same for every seed.
_SAME = ("experiment", "questions", "unknown_targets", "source_sha256", "configuration", "recipe")


def measure_timed(options: Options, chosen: TimedSet) -> Figures:
    """Measure every seed on the periods of the test; a quick run: one seed, three periods and one epoch."""
    source = options.data / chosen.name / chosen.file
    name, seeds = options.given.experiment or chosen.recipe.experiment, options.given.seeds
    if options.quick:
        seeds = seeds[:1]
        base, every = (*chosen.recipe.base, "training.epochs=1"), min(chosen.recipe.every, 1)
        chosen = replace(chosen, periods=3, recipe=replace(chosen.recipe, base=base, every=every))
    log = chosen.read(source)
    periods = asked_in(chosen, log)
    sessions = [session for _, period_questions in periods for session in period_questions.sessions]
    clock = time.perf_counter()
    others = baselines(chosen, log)
    shared = {
        "experiment": Path(name).stem,
        "questions": len(sessions),
        "unknown_targets": sum(period_questions.known.count(False) for _, period_questions in periods),
        "baseline_seconds": time.perf_counter() - clock,
        "source_sha256": {chosen.file: hash_file(source).sha256},
    }
    results, rows = list[Gains](), list[Figures]()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            settings = [*options.given.override, f"training.seed={seed}"]
            read = (chosen.recipe.half_life, chosen.features, chosen.by_click)
            retrainer = Retrainer(log, Path(folder), name, *read)
            ours, spent = answers_of(chosen, retrainer, settings)
        row = {
            "seed": seed,
            **shared,
            **dict(zip(METRICS, ours.mean(axis=0).tolist(), strict=True)),
            **spent,
            **beside(ours, others, sessions),
            "periods": by_period(periods, {"Turret": ours, **others}),
            "configuration": load_experiment(name, [*chosen.recipe.base, *settings]).model_dump(mode="json"),
            "recipe": chosen.recipe.in_hours(),
            "machine": machine(),
        }
        results, rows = [*results, ours], [*rows, row]
        if not options.quick:
            keep(f"{chosen.name}{'_context' * chosen.by_click}", row)
    return {
        "set": chosen.name,
        "protocol": chosen.protocol,
        **flat_over_seeds(rows, METRICS),
        **beside(np.mean(results, axis=0), others, sessions),  # of the mean gain over seeds
        **{name: rows[0][name] for name in (*_SAME, "update_seconds")},
        "seconds": statistics.mean(row["seconds"] for row in rows),
        "seeds": [row["seed"] for row in rows],
        "peak_memory_mb": peak_memory_mb(),
    }


def by_period(periods: Sequence[tuple[int, Questions]], models: dict[str, Gains]) -> list[Figures]:
    """The mean of every model in each period that has questions."""
    metric, rows, first = METRICS[0], [], 0
    for start, period_questions in periods:
        last = first + len(period_questions.targets)
        if period_questions.targets:
            means = {name: float(model_gains[first:last, 0].mean()) for name, model_gains in models.items()}
            rows.append({"begins": moment(start), "questions": len(period_questions.targets), metric: means})
        first = last
    return rows


CONFIG = EvaluationConfig(k=(10, 20, 50))


def trained(work: Path, data: PreparedData, experiment: ExperimentConfig) -> tuple[Run, Figures]:
    """Train one run; return it, with the validation metric over the seconds spent."""
    run = Run(work, experiment, data.folder, data.fingerprint)
    curve: list[tuple[int, float, float]] = []
    start = time.perf_counter()

    def observe(epoch: int, value: float) -> bool:
        curve.append((epoch, round(time.perf_counter() - start, 1), round(value, 5)))
        return False

    progress = train(run, data, observe=observe)
    return run, {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "validation": progress.best,
        "curve": curve,
        "seconds": time.perf_counter() - start,
    }


def tested(run: Run, data: PreparedData, chosen: QualitySet) -> Figures:
    """The metrics on the test part, of the towers and of popularity."""
    report = evaluate(run.open_model(data), data, "test", CONFIG)
    return {
        **{name: report["towers"][name]["mean"] for name in chosen.metrics},
        **{f"popularity_{name}": report["popularity"][name]["mean"] for name in chosen.metrics},
    }


def one_seed(
    chosen: QualitySet, work: Path, folders: Sequence[Path], experiment: ExperimentConfig, first: bool
) -> Figures:
    """Train and test; where the protocol refits, the first seed is also trained without the validation part.

    Nothing is chosen from that training: it shows what the settings reach on validation, over the time spent.
    """
    seed, shown = experiment.training.seed, {}
    if len(folders) > 1 and first:
        _, selected = trained(work / f"selected{seed}", PreparedData.open(folders[0]), experiment)
        shown = {name: selected[name] for name in ("curve", "validation")}
    data = PreparedData.open(folders[-1])
    run, figures = trained(work / f"trained{seed}", data, experiment)
    return {"seed": seed, **figures, **shown, **tested(run, data, chosen)}


def measure(options: Options, chosen: QualitySet) -> Figures:
    """Prepare the data, run every seed and keep its figures, and take the means."""
    source = options.data / (chosen.folder or chosen.name)
    name = options.given.experiment or chosen.experiment
    quick = ["training.epochs=1"] if options.quick else []
    seeds = options.given.seeds[:1] if options.quick else options.given.seeds
    hashes = {file: hashlib.sha256((source / file).read_bytes()).hexdigest() for file in chosen.files}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        folders: list[Path] = []
        for part in (chosen.prepared, chosen.refitted):
            if part is not None:
                folders.append(work / f"prepared{len(folders)}")
                prepare(part(source, work / "files"), folders[-1])
        for seed in seeds:
            experiment = load_experiment(name, [*options.given.override, *quick, f"training.seed={seed}"])
            about = {
                "experiment": Path(name).stem,
                "configuration": experiment.model_dump(mode="json"),
                "source_sha256": hashes,
            }
            wanted, before = (
                {"seed": seed, **about}.items(),
                kept(chosen.name) if options.given.resume else [],
            )
            row = next((kept_row for kept_row in before if wanted <= kept_row.items()), None)
            if row is None:
                figures = one_seed(chosen, work, folders, experiment, first=seed == seeds[0])
                row = {**figures, **about, "machine": machine()}
                if not options.quick:
                    keep(chosen.name, row)
            rows.append(row)
    return summary(chosen, rows)


def summary(chosen: QualitySet, rows: Sequence[Figures]) -> Figures:
    """Mean and standard deviation over the seeds."""
    return {
        "set": chosen.name,
        "protocol": chosen.protocol,
        "experiment": rows[0]["experiment"],
        **flat_over_seeds(rows, chosen.metrics),
        **{f"popularity_{name}": rows[0][f"popularity_{name}"] for name in chosen.metrics},
        "seconds": statistics.mean(row["seconds"] for row in rows),
        "seeds": [row["seed"] for row in rows],
        "configuration": rows[0]["configuration"],
        "source_sha256": rows[0]["source_sha256"],
        "peak_memory_mb": peak_memory_mb(),
    }


def main() -> None:
    """Run the benchmark."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--set", choices=sorted({**SETS, **TIMED}), required=True, help="which data set")
    more.add_argument("--experiment", help="a shipped experiment or a TOML file (the recommended one)")
    more.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(0 1 2)")
    more.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="repeatable")
    about = "seeds that are kept, of these settings and files, aren't run again"
    more.add_argument("--resume", action="store_true", help=about)
    about = "read the context of each click in place of that of its session's first one (globo)"
    more.add_argument("--context", action="store_true", help=about)
    options = read_options(__doc__, more=more)
    name = options.given.set
    if options.given.context and not (name in TIMED and TIMED[name].features):
        raise SystemExit(
            f"--context: the clicks of {name} have no features; leave it out, or give --set globo."
        )
    if name in TIMED and options.given.resume:
        raise SystemExit(
            f"--resume: {name} is compared with its baselines question by question, and no seed's answers "
            "are kept; run all seeds without it."
        )
    if name in TIMED:
        chosen = TIMED[name].with_context() if options.given.context else TIMED[name]
        recommended, figures = chosen.recipe.experiment, measure_timed(options, chosen)
    else:
        recommended, figures = SETS[name].experiment, measure(options, SETS[name])
    show(figures)
    as_recommended = options.given.experiment in (None, recommended) and not options.given.override
    name += "_context" * options.given.context
    finish(f"quality_{name}", options, figures, keep=as_recommended and len(figures["seeds"]) > 2)


if __name__ == "__main__":
    main()
