"""Towers beside tuned rules on one cut in time, over the whole catalog: `python -m benchmarks.recent --json`.

Protocol: the newest tenth of the events is the test, the tenth before it validation, cut at the same times
for all users; used items are ranked where the log repeats. EASE, item-kNN, RP3beta and the towers are tuned
by NDCG@10 of validation alone, setting by setting: their own (of the towers, four shipped experiments),
then a window of recent events, then a half-life, and for rules that rank used items the weight of these,
for the towers factors of pairs: eleven trials of the towers, ten or thirteen of each rule. The best of
each is fitted again on training and validation, and evaluated once on the test; differences are paired by
user. `over_best_rule` is the ratio of the towers to the best rule, and `least_over_best_rule` the least of
the sets.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from benchmarks.harness import Options, run_rows
from benchmarks.repeats import news
from benchmarks.tuned_rules import RULES, Setting, fitted
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import EvaluationConfig, load_experiment
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import (
    TOWERS,
    Rankers,
    Relevant,
    evaluate_rankers,
    metric_of,
    relevant_items,
)
from turret.training.loop.train import train
from turret.training.run import Run

METRIC = "ndcg@10"
SHARES = (0.5, 0.25, 0.125)
AGAIN = (0.3, 3.0, 10.0)  # beside 1
EXPERIMENTS = ("transformer_short", "transformer", "ids", "full_softmax")
SPLIT = {"kind": "time"}
Value = TypeVar("Value")
_DAY = 86_400_000.0
Row = dict[str, Any]
Settings = tuple[Any, ...]
"""The name of an experiment, then settings by name."""


def films(data: Path, work: Path) -> dict[str, Any]:
    """The ratings of MovieLens 100K."""
    return {"source": data / "ml-100k" / "ratings.parquet"}


def invoices(data: Path, work: Path) -> dict[str, Any]:
    """The purchases of known customers."""
    lines = pl.read_parquet(data / "online-retail" / "transactions.parquet")
    bought = lines.filter(pl.col("user_id").is_not_null() & (pl.col("quantity") > 0))
    bought.select("user_id", "item_id", "timestamp").write_parquet(work / "events.parquet")
    return {"source": work / "events.parquet"}


SETS: dict[str, tuple[Callable[[Path, Path], dict[str, Any]], bool]] = {
    "ml-100k": (films, False),
    "online-retail": (invoices, True),
    "globo": (partial(news, share=16), True),
}
"""Each set with whether used items are ranked."""


def best_of(
    first: Value, options: Sequence[Sequence[Callable[[Value], Value]]], trial: Callable[[Value], float]
) -> tuple[Value, list[dict[str, Any]]]:
    """The best value that a trial found, changed by one option after the other, and all trials."""
    best, highest = first, trial(first)
    trials: list[dict[str, Any]] = [{"tried": str(first), METRIC: highest}]
    for changes in options:
        for value in [change(best) for change in changes]:
            trials.append({"tried": str(value), METRIC: trial(value)})
            if trials[-1][METRIC] > highest:
                best, highest = value, trials[-1][METRIC]
    return best, trials


def tuned_rule(
    name: str, data: PreparedData, users: Relevant, config: EvaluationConfig
) -> tuple[Setting, list[dict[str, Any]]]:
    """The setting of a rule that is best on validation, and its trials."""

    def trial(setting: Setting) -> float:
        return metric_of(fitted(name, data, "validation", setting), data, users, METRIC, config)

    repeats = config.exclude_seen is False
    own = RULES[name][1]

    def options(field: str, values: Sequence[float]) -> list[Callable[[Setting], Setting]]:
        return [partial(_changed, field=field, value=value) for value in values]

    fields = {"own": own[1:], "window": SHARES, "half_life": SHARES, **({"again": AGAIN} if repeats else {})}
    first = Setting(own[0], again=float(repeats))
    return best_of(first, [options(field, values) for field, values in fields.items()], trial)


def _changed(setting: Setting, field: str, value: float) -> Setting:
    return replace(setting, **{field: value})


def tuned_towers(
    data: PreparedData, work: Path, fixed: Mapping[str, object]
) -> tuple[Run, list[dict[str, Any]]]:
    """The run with the settings that are best on validation, with its refit, and the trials."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    oldest, newest = float(data.times.min()), float(data.times[ends[ends > starts] - 1].max())

    def trained(settings: Settings, **more: object) -> Run:
        experiment = load_experiment(settings[0], {**fixed, **dict(settings[1:]), **more})
        run = Run(work / "run", experiment, data.folder, data.fingerprint)
        train(run, data, overwrite=True, report=lambda _: None)
        return run

    def of_experiment(_: Settings, name: str) -> Settings:
        return (name,)

    def with_setting(settings: Settings, name: str, value: object) -> Settings:
        return *settings, (name, value)

    lengths = [share * (newest - oldest) for share in SHARES]
    options: list[list[Callable[[Settings], Settings]]] = [
        [partial(of_experiment, name=name) for name in EXPERIMENTS[1:]],
        [partial(with_setting, name="training.since", value=f"{length / _DAY}d") for length in lengths],
        [partial(with_setting, name="training.half_life", value=length / _DAY) for length in lengths],
        [partial(with_setting, name="tower.scoring.pairs", value=256)],
    ]
    first: Settings = (EXPERIMENTS[0],)

    def trial(settings: Settings) -> float:
        try:
            return trained(settings).best()[METRIC]
        except TrainingError:  # no user has an earlier event than the window
            return 0.0

    best, trials = best_of(first, options, trial)
    return trained(best, **{"training.refit": True}), trials


def measured(options: Options, name: str) -> Row:
    """Prepare a set, tune all, and evaluate the best of each on the test."""
    settings_of, repeats = SETS[name]
    fixed: dict[str, object] = {
        "training.metric": METRIC,
        "training.patience": 5,
        "evaluation.k": [10, 20],
        "evaluation.exclude_seen": not repeats,
        **({"training.epochs": 1} if options.quick else {}),
    }
    config = load_experiment(EXPERIMENTS[0], fixed).evaluation
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(
            PrepareConfig.model_validate({**settings_of(options.data, work), "split": SPLIT}), work / "data"
        )
        data = PreparedData.open(work / "data")
        users = relevant_items(data, "validation")
        rules, trials = dict[str, Setting](), dict[str, list[dict[str, Any]]]()
        for rule in RULES:
            rules[rule], trials[rule] = tuned_rule(rule, data, users, config)
        run, trials[TOWERS] = tuned_towers(data, work, fixed)
        rankers: Rankers = {
            TOWERS: partial(run.open_ranker, data, "test"),
            **{rule: partial(fitted, rule, data, "test", setting) for rule, setting in rules.items()},
        }
        report, _ = evaluate_rankers(rankers, data, "test", config)
    best = max(RULES, key=lambda rule: report[rule][METRIC]["mean"])
    return {
        "set": name,
        "users": report["users"],
        "items": report["items"],
        "events": len(data.event_items),
        METRIC: {ranker: report[ranker][METRIC] for ranker in rankers},
        "differences": {ranker: value[METRIC] for ranker, value in report["differences"].items()},
        "chosen": {
            TOWERS: run.experiment.model_dump(mode="json"),
            **{rule: asdict(setting) for rule, setting in rules.items()},
        },
        "trials": trials,
        "best_rule": best,
        "over_best_rule": report[TOWERS][METRIC]["mean"] / report[best][METRIC]["mean"],
    }


def measure(options: Options, kept: list[Row]) -> Iterator[Row]:
    """Measure the sets that are not kept; a quick run has one."""
    known = {row["set"] for row in kept}
    for name in [*SETS][: 1 if options.quick else None]:
        if name not in known:
            yield measured(options, name)


def summary(rows: list[Row]) -> Row:
    """The least ratio of the towers to the best rule."""
    return {"least_over_best_rule": min(row["over_best_rule"] for row in rows)}


if __name__ == "__main__":
    run_rows(measure, summary)
