"""`benchmarks.quality` on sets split by time: Turret and every baseline are asked the same questions."""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, keep, machine, peak_memory_mb
from benchmarks.next_items import (
    HOUR,
    Questions,
    Retrainer,
    by_bundle,
    difference,
    gains,
    mean,
    moment,
    questions,
)
from benchmarks.timed_sets import METRICS, TimedSet
from turret.data.manifest import hash_file
from turret.training.config.experiment import load_experiment

Figures = dict[str, Any]
Gains = dict[str, list[float]]
"""A metric of every question, by the metric's name."""


def answered(chosen: TimedSet, retrainer: Retrainer, settings: Sequence[str]) -> tuple[list[Gains], Figures]:
    """What the model of one seed gains in each period, and what keeping it fresh took."""
    recipe, begins = chosen.recipe, chosen.begins
    settings = [*recipe.base, *settings]
    model = first = retrainer.retrained(begins - recipe.base_window, begins, "first", settings)
    results, seconds = [], []
    for number, (start, asked) in enumerate(asked_in(chosen, retrainer.clicks)):
        if number and recipe.every and number % recipe.every == 0:
            window, since = start - recipe.window, start - recipe.since
            model = retrainer.updated(model.folder, window, since, start, f"after{number}", recipe.update)
            seconds.append(model.seconds)
        features = asked.features if chosen.features else None
        results.append(gains(by_bundle(model.folder, features), asked))
    return results, {
        "first_seconds": first.seconds,
        "update_seconds": statistics.median(seconds) if seconds else None,
        "updates": len(seconds),
        "seconds": first.seconds + sum(seconds),
    }


def asked_in(chosen: TimedSet, log: pl.DataFrame) -> list[tuple[int, Questions]]:
    """When each period begins, and its questions."""
    starts = [chosen.begins + number * chosen.period for number in range(chosen.periods)]
    return [
        (start, questions(log, start, start + chosen.period, chosen.repeats, chosen.features))
        for start in starts
    ]


def baselines(chosen: TimedSet, log: pl.DataFrame) -> dict[str, list[Gains]]:
    """What every baseline gains in each period."""
    results: dict[str, list[Gains]] = {name: [] for name in chosen.baselines}
    for start, asked in asked_in(chosen, log):
        before = log.filter(pl.col("timestamp_ms") < start)
        for name, made in chosen.baselines.items():
            results[name].append(gains(made(before), asked))
    return results


def whole(periods: Sequence[Gains], metric: str) -> list[float]:
    """One metric of all questions, in their order."""
    return [value for period in periods for value in period[metric]]


def compared(ours: Sequence[Gains], others: dict[str, list[Gains]], sessions: Sequence[int]) -> Figures:
    """Each baseline's means, and how far ours is above, with intervals; `above` if all are above 0."""
    results = {}
    for name, theirs in others.items():
        values = {metric: (whole(ours, metric), whole(theirs, metric)) for metric in METRICS}
        results[name] = {
            metric: {"mean": mean(one), **difference(mine, one, sessions)}
            for metric, (mine, one) in values.items()
        }
    above = all(one[metric]["low"] > 0.0 for one in results.values() for metric in METRICS)
    return {"above": above, "baselines": results}


def averaged(seeds: Sequence[Sequence[Gains]]) -> list[Gains]:
    """What each question gains in the mean over seeds."""
    return [
        {metric: list(np.mean([one[metric] for one in period], axis=0)) for metric in METRICS}
        for period in zip(*seeds, strict=True)
    ]


def measure(options: Options, chosen: TimedSet) -> Figures:
    """Every seed on the periods of the test; a quick run has one seed and three periods."""
    source = options.data / chosen.name / chosen.file
    name = options.given.experiment or chosen.recipe.experiment
    seeds = options.given.seeds[:1] if options.quick else options.given.seeds
    chosen = quicker(chosen) if options.quick else chosen
    log = chosen.read(source)
    asked = asked_in(chosen, log)
    sessions = [session for _, one in asked for session in one.sessions]
    clock = time.perf_counter()
    others = baselines(chosen, log)
    shared = {
        "experiment": Path(name).stem,
        "questions": len(sessions),
        "unknown_targets": sum(one.known.count(False) for _, one in asked),
        "baseline_seconds": time.perf_counter() - clock,
        "source_sha256": {chosen.file: hash_file(source).sha256},
    }
    results, rows = [], []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            settings = [*options.given.override, f"training.seed={seed}"]
            retrainer = Retrainer(log, Path(folder), name, chosen.recipe.half_life, chosen.features)
            ours, spent = answered(chosen, retrainer, settings)
        row = {
            "seed": seed,
            **shared,
            **{metric: mean(whole(ours, metric)) for metric in METRICS},
            **spent,
            **compared(ours, others, sessions),
            "periods": by_period(asked, ours, others),
            "configuration": load_experiment(name, [*chosen.recipe.base, *settings]).model_dump(mode="json"),
            "recipe": recipe_of(chosen),
            "machine": machine(),
        }
        results.append(ours)
        rows.append(row)
        if not options.quick:
            keep(chosen.name, row)
    return summary(chosen, rows, compared(averaged(results), others, sessions))


def quicker(chosen: TimedSet) -> TimedSet:
    """Three periods, one epoch, and a first model from what an update reads."""
    recipe = chosen.recipe
    base = (*recipe.base, "training.epochs=1")
    return replace(chosen, periods=3, recipe=replace(recipe, base=base, every=min(recipe.every, 1)))


def recipe_of(chosen: TimedSet) -> Figures:
    """The recipe as JSON has it, lengths of time in hours."""
    recipe = chosen.recipe
    return {
        "base": list(recipe.base),
        "base_hours": recipe.base_window / HOUR,
        "update": list(recipe.update),
        "update_reads_hours": recipe.window / HOUR,
        "update_predicts_hours": recipe.since / HOUR,
        "periods_between_updates": recipe.every,
        "half_life_hours": None if recipe.half_life is None else recipe.half_life / HOUR,
    }


def by_period(
    asked: Sequence[tuple[int, Questions]], ours: Sequence[Gains], others: dict[str, list[Gains]]
) -> list[Figures]:
    """How every model did in each period in which something was asked."""
    metric, rows = METRICS[0], []
    for number, (start, one) in enumerate(asked):
        if one.targets:
            models = {"Turret": ours, **others}
            means = {name: mean(periods[number][metric]) for name, periods in models.items()}
            rows.append({"begins": moment(start), "questions": len(one.targets), metric: means})
    return rows


def summary(chosen: TimedSet, rows: Sequence[Figures], found: Figures) -> Figures:
    """Means over seeds, and the comparison of what questions gain in the mean over seeds."""
    same = ("experiment", "questions", "unknown_targets", "source_sha256", "configuration", "recipe")
    return {
        "set": chosen.name,
        "protocol": chosen.protocol,
        **{metric: statistics.mean(row[metric] for row in rows) for metric in METRICS},
        **{f"{metric}_deviation": statistics.pstdev(row[metric] for row in rows) for metric in METRICS},
        **found,
        **{name: rows[0][name] for name in same},
        "seconds": statistics.mean(row["seconds"] for row in rows),
        "update_seconds": rows[0]["update_seconds"],
        "seeds": [row["seed"] for row in rows],
        "peak_memory_mb": peak_memory_mb(),
    }
