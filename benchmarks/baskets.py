"""What goes together, beside rules of pairs: `python -m benchmarks.baskets --json`.

Protocol: the orders of online-retail (invoices; returns are left out, orders without a customer are kept),
the last month for the test, the one before it for validation. Of each later order of two or more products
one is held out, drawn by chance but the same for all; all products are ranked but those of the order. The
experiment `basket` as it is shipped learns from the earlier orders, and so do the rules, whose settings are
those with the best NDCG@10 in the validation part: item-kNN by the shrunk cosine, lift from a support on,
and plain co-occurrence. EASE is measured beside them with the regularization of the baseline. Intervals are
over the orders of the test part.

`over_best_rule` is the NDCG@10 of the towers over that of the best of the three rules, and
`recall_over_best_rule` the same of recall@10. `similar_in_basket` is the share of the ten products most
similar to a product that are among the ten that go with it.
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Options, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.baselines.pair_models import fit_co_occurrence, fit_ease, fit_item_knn, fit_lift
from turret.training.batches.baskets import examples_of
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.evaluation.complements import similar_in_basket
from turret.training.evaluation.evaluation import (
    TOWERS,
    Rankers,
    evaluate_rankers,
    metric_of,
    relevant_items,
)
from turret.training.loop.train import train
from turret.training.run import Run

METRICS = ("recall@10", "ndcg@10")
NEIGHBOURS, SHRINKAGES = (1, 2, 3, 5, 10, 20, 100), (0.0, 5.0, 10.0, 50.0)
SUPPORTS = (5, 10, 20, 50, 100, 200)
Fit = Callable[[PreparedData, Any], Any]
Settings = dict[str, float]
RULES: dict[str, tuple[Fit, list[Settings]]] = {
    "item_knn": (
        fit_item_knn,
        [{"most": most, "shrinkage": shrinkage} for most in NEIGHBOURS for shrinkage in SHRINKAGES],
    ),
    "lift": (fit_lift, [{"support": support} for support in SUPPORTS]),
    "co_occurrence": (fit_co_occurrence, [{}]),
}
QUICK = ("training.epochs=1", "tower.dimension=32")


def orders(data: Path, work: Path) -> PreparedData:
    """The products of each order by its number."""
    lines = pl.read_parquet(data / "online-retail" / "transactions.parquet").filter(pl.col("quantity") > 0)
    lines.select("user_id", "item_id", "timestamp", "invoice_no").write_parquet(work / "orders.parquet")
    settings = {
        "source": work / "orders.parquet",
        "columns": {"session": "invoice_no"},
        "split": {"kind": "time", "validation_from": "2011-10-09", "test_from": "2011-11-09"},
    }
    prepare(PrepareConfig.model_validate(settings), work / "prepared")
    return PreparedData.open(work / "prepared")


def tuned(data: PreparedData, experiment: ExperimentConfig, name: str, quick: bool) -> dict[str, Any]:
    """The settings of a rule with the best NDCG@10 in the validation part, and that figure."""
    fit, grid = RULES[name]
    relevant = relevant_items(data, "validation")
    values = [
        metric_of(fit(data, "validation", **settings), data, relevant, "ndcg@10", experiment.evaluation)
        for settings in (grid[:2] if quick else grid)
    ]
    best = max(range(len(values)), key=values.__getitem__)
    return {"settings": grid[best], "tried": len(values), "validation": values[best]}


def baskets(options: Options) -> Mapping[str, Any]:
    """Train, tune the rules, and measure all on the orders of the last month."""
    changes = ["evaluation.k=[10]", "training.device=cpu", *(QUICK if options.quick else ())]
    experiment = load_experiment("basket", changes)
    with tempfile.TemporaryDirectory() as folder:
        data = examples_of(experiment, orders(options.data, Path(folder)))
        trained = Run(Path(folder) / "run", experiment, data.folder, data.fingerprint)
        progress = train(trained, data)
        rules = {name: tuned(data, experiment, name, options.quick) for name in RULES}
        rankers: Rankers = {
            TOWERS: partial(trained.open_ranker, data, "test"),
            **{name: partial(RULES[name][0], data, "test", **rules[name]["settings"]) for name in RULES},
            "ease": partial(fit_ease, data, "test"),
        }
        report, _ = evaluate_rankers(rankers, data, "test", experiment.evaluation)
        share = similar_in_basket(trained.open_model(data), 10)["share"]
        validation = trained.best()["ndcg@10"]
    best = max(RULES, key=lambda name: report[name]["ndcg@10"]["mean"])
    over = {metric: report[TOWERS][metric]["mean"] / report[best][metric]["mean"] for metric in METRICS}
    return {
        "over_best_rule": over["ndcg@10"],
        "recall_over_best_rule": over["recall@10"],
        "over_ease": report[TOWERS]["ndcg@10"]["mean"] / report["ease"]["ndcg@10"]["mean"],
        "best_rule": best,
        "similar_in_basket": share,
        "orders": {part: _orders(data, part) for part in ("train", "validation", "test")},
        "items": report["items"],
        "training": {"epochs": progress.best_epoch, "seconds": progress.seconds, "validation": validation},
        "rules": rules,
        "rankers": {name: {metric: report[name][metric] for metric in METRICS} for name in rankers},
        "differences": {
            name: {metric: difference[metric] for metric in METRICS}
            for name, difference in report["differences"].items()
        },
    }


def _orders(data: PreparedData, part: Any) -> int:
    starts, ends = data.bounds(part)
    return int((ends > starts).sum())


if __name__ == "__main__":
    run(baskets)
