"""Both halves of an answer, beside the rules of a shop: `python -m benchmarks.again_and_new --json`.

Protocol: four logs in which used items are ranked, three of them those of `benchmarks.repeats` (of Globo one
user in 16), and a grocery of our own in which people buy their staples in periods. Each is prepared,
`--experiment auto` chooses, and every candidate that it tries is trained whole, the picked one also without
its refit; rules are fitted on the same events. All are evaluated as `turret evaluate` does, on the test part:
NDCG@10 of used targets among used items (`again`) and of the others among the others (`new`), with
differences paired by user from the best rule in each half.

`new_over_best_rule` and `again_over_best_rule` are the least of the logs' ratios of the picked towers to the
best rule, the latter where a third of the targets had been used; `auto_over_best_candidate` is the least
ratio of the picked candidate to the best one, in either half. All logs take two hours, so each row is kept as
soon as it is measured, and `--resume` measures the missing ones.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, run_rows
from benchmarks.repeats import invoices, messy, news
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.auto.candidates import candidates, facts_of
from turret.training.auto.choice import choose
from turret.training.baselines.registry import BASELINES
from turret.training.config.experiment import with_settings
from turret.training.evaluation.evaluation import TOWERS, evaluate_rankers
from turret.training.evaluation.ranking import ScoresOf
from turret.training.loop.train import train
from turret.training.run import Run, with_validation

HALVES = {
    "new": ("recent_popularity", "co_occurrence", "item_knn", "ease"),
    "again": ("due_again", "most_bought", "last_bought", "most_used", "last_used"),
}
MANY_REPEATS = 1 / 3
ONCE = "without_refit"
_DAY, _OPENING, _DAYS = 86_400, 1_700_000_000, 365
_CATEGORIES, _ITEMS = 60, 1_200
# Days after which a staple of a category is bought again, and the share of staples that end at a purchase.
_PERIODS, _ENDS = (7.0, 10.0, 14.0, 21.0, 30.0, 45.0, 60.0, 90.0), 0.04


def grocery(data: Path, work: Path) -> dict[str, Any]:
    """The year of 3,000 people: staples in individual periods, new items by taste, and their companions."""
    random = np.random.default_rng(3)
    category = np.arange(_ITEMS) * _CATEGORIES // _ITEMS
    popularity = 1.0 / random.permutation(np.arange(1, _ITEMS + 1)) ** 0.8
    periods = random.choice(_PERIODS, _CATEGORIES)
    rows: list[tuple[int, int, int]] = []
    for person in range(3_000):
        taste = (
            random.gamma(0.3, size=_CATEGORIES)[category] * random.gamma(0.5, size=8)[np.arange(_ITEMS) % 8]
        )
        chances = np.cumsum(popularity * (taste + 1e-6))
        mean_gap, pace = random.uniform(4, 12), random.lognormal(0, 0.3)
        days = np.cumsum(random.gamma(4, mean_gap / 4, int(_DAYS / mean_gap) + 2))
        staples: dict[int, tuple[float, float]] = {}  # the period of an item, and when it is due
        for day in days[days < _DAYS]:
            basket = [item for item, (_, due) in staples.items() if due <= day]
            for item in basket:
                period = staples.pop(item)[0]
                if random.random() >= _ENDS:
                    staples[item] = period, day + period * random.gamma(10, 0.1)
            draws = random.random(random.poisson(1.2)) * chances[-1]
            for item in np.unique(np.searchsorted(chances, draws)).tolist():
                basket += [item] + [(item * 7 + 13) % _ITEMS] * (random.random() < 0.25)
                if item not in staples and random.random() < 0.4:
                    period = periods[category[item]] * pace
                    staples[item] = period, day + period * random.gamma(10, 0.1)
            begin = _OPENING + int(day * _DAY) + int(random.integers(0, 3_600))
            rows += [(person, item, begin + place) for place, item in enumerate(dict.fromkeys(basket))]
    columns = ["user_id", "item_id", "timestamp"]
    log = pl.DataFrame(rows, schema=columns, orient="row").sort("timestamp", maintain_order=True)
    log.write_parquet(work / "events.parquet")
    begins = {f"{part}_from": _OPENING + day * _DAY for part, day in (("validation", 337), ("test", 351))}
    return {"source": work / "events.parquet", "split": {"kind": "time", **begins}}


LOGS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "messy shop": messy,
    "grocery": grocery,
    "online-retail": invoices,
    "globo": partial(news, share=16),
}


def measured(options: Options, name: str) -> dict[str, Any]:
    """Prepare a log, choose, train all candidates that were tried, and evaluate."""
    values: dict[str, object] = {"training.device": "cpu", "evaluation.k": [10]}
    rankers: dict[str, Callable[[], ScoresOf]] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(PrepareConfig.model_validate(LOGS[name](options.data, work)), work / "prepared")
        data = PreparedData.open(work / "prepared")
        if options.quick:
            values["training.epochs"] = 1
        _, choice = choose(data, values, work / "trials", partial(print, file=sys.stderr))
        facts, picked = facts_of(data), choice["picked"]
        for reason in choice["reasons"]:
            if reason["kind"] == "recency":
                facts = replace(facts, half_life=reason["figures"]["half_life"])
        experiments, _ = candidates(facts, values)
        tried = [trial["candidate"] for trial in choice["trials"] if trial["values"]] or [picked]
        once = with_settings(experiments[picked], {"training.refit": False})
        others = {name: experiments[name] for name in tried if name != picked}
        for ranker, experiment in {TOWERS: experiments[picked], ONCE: once, **others}.items():
            trained = Run(work / ranker, experiment, data.folder, data.fingerprint)
            train(trained, data, report=lambda _: None)
            rankers[ranker] = partial(trained.open_ranker, data, "test")
        for rule in sorted({rule for rules in HALVES.values() for rule in rules} & BASELINES.keys()):
            rankers[rule] = partial(BASELINES[rule].fit, with_validation(data), "test")
        report, _ = evaluate_rankers(rankers, data, "test", experiments[picked].evaluation)
    return {
        "events": len(data.event_items),
        "users": report["users"],
        "items": report["items"],
        "picked": picked,
        "reasons": [reason["sentence"] for reason in choice["reasons"]],
        **{half: _half(report, half, [*others]) for half in report["slots"] or ["new"]},
    }


def _half(report: Mapping[str, Any], half: str, others: list[str]) -> dict[str, Any]:
    """The means of one half, and the picked candidate over the best rule and the best candidate.

    Where used items are masked, all targets that count are new ones, and the report has no halves.
    """
    share, metric = {"users": report["users"], "share": 1.0}, "ndcg@10"
    if report["slots"]:
        share, metric = report["slots"][half], f"{half} {metric}"
    rules = [rule for rule in HALVES[half] if rule in report]
    means = {name: report[name][metric] for name in (TOWERS, ONCE, *others, *rules)}
    rule = max(rules, key=lambda name: means[name]["mean"])
    best = max(means[name]["mean"] for name in (TOWERS, *others))
    return {
        **share,
        "ndcg@10": means,
        "best_rule": rule,
        "over_best_rule": means[TOWERS]["mean"] / means[rule]["mean"],
        "difference": report["differences"][rule][metric],
        "auto_over_best_candidate": means[TOWERS]["mean"] / best,
    }


def measure(options: Options, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Measure the chosen logs that have no row yet; a quick run has one epoch each, and no news."""
    for name in options.given.logs or [name for name in LOGS if not (options.quick and name == "globo")]:
        if name not in {row["log"] for row in known}:
            yield {"log": name, **measured(options, name)}


def claim(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The least ratios of the logs, and the logs that were not measured."""
    halves = [row[half] for row in rows for half in HALVES if half in row]
    repeated = [row["again"] for row in rows if "again" in row and row["again"]["share"] >= MANY_REPEATS]
    return {
        "new_over_best_rule": min(row["new"]["over_best_rule"] for row in rows),
        "again_over_best_rule": min((half["over_best_rule"] for half in repeated), default=None),
        "auto_over_best_candidate": min(half["auto_over_best_candidate"] for half in halves),
        "not_measured": sorted(LOGS.keys() - {row["log"] for row in rows}),
    }


if __name__ == "__main__":
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--logs", nargs="+", choices=LOGS, help="the logs to measure (all)")
    run_rows(measure, summary=claim, more=more)
