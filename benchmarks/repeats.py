"""The repeat term beside the rules and the models that rank used items: `python -m benchmarks.repeats`.

Three logs in which used items are ranked too: a messy shop of the generator, the news of Globo, and the
invoices of Online Retail. Each is prepared, trained with the repeat term and evaluated on its test part as
`turret evaluate` does: NDCG@10 over the whole catalog, with intervals over users, and the
difference of the towers from each ranker, paired by user. `least_over_best_baseline` is the least of the
sets' ratios of the towers to the best of the last used items, the most used ones, EASE and item-kNN.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Options, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.messy import MessyConfig
from turret.data.synthetic.synthesis import synthesise
from turret.training.baselines.registry import BASELINES
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import TOWERS, Rankers, evaluate_rankers
from turret.training.loop.train import train
from turret.training.run import Run

METRIC, ALONE = "ndcg@10", "towers_alone"
RIVALS = ("last_used", "most_used", "ease", "item_knn")
USERS_SHARE = 4  # one of this many users of Globo is read
QUICK = ("training.epochs=1", "training.validation_users=2000")


@dataclass(frozen=True)
class RepeatSet:
    """A log: `settings` gives the settings of `prepare`, from the folder of the data and a scratch folder."""

    protocol: str
    settings: Callable[[Path, Path], dict[str, Any]]
    experiment: str
    changes: tuple[str, ...]


def messy(data: Path, work: Path) -> dict[str, Any]:
    """The generator's default shop, as docs/messy_shop.md prepares it."""
    synthesise(MessyConfig(), work / "raw")
    return {
        "source": work / "raw",
        "columns": {"session": "session_id"},
        "kinds": {"view": "signal", "cart": "signal", "purchase": "target", "return": "negative"},
        "filters": {"duplicates": "strongest", "session_gap": "30m", "max_user_events": 1000},
        "on_bad": "drop",
    }


def news(data: Path, work: Path, share: int = USERS_SHARE) -> dict[str, Any]:
    """The clicks of one in `share` users."""
    clicks = pl.read_parquet(
        data / "globo" / "clicks.parquet", columns=["user_id", "item_id", "timestamp_ms"]
    )
    clicks.filter(pl.col("user_id") % share == 0).write_parquet(work / "events.parquet")
    return {"source": work / "events.parquet"}


def invoices(data: Path, work: Path) -> dict[str, Any]:
    """The purchases of known customers; the last month is the test, the one before it validation."""
    lines = pl.read_parquet(data / "online-retail" / "transactions.parquet")
    bought = lines.filter(pl.col("user_id").is_not_null() & (pl.col("quantity") > 0))
    bought.select("user_id", "item_id", "timestamp").write_parquet(work / "events.parquet")
    split = {"kind": "time", "validation_from": "2011-10-09", "test_from": "2011-11-09"}
    return {"source": work / "events.parquet", "split": split}


SETS = {
    "messy shop": RepeatSet(
        "purchases are next items, views and carts are read; each user's last purchase is the test",
        messy,
        "youtubednn",
        (
            'objective={loss="full_softmax"}',
            "tower.user.kinds=true",
            "tower.user.dropout=0.2",
            "training.batch_size=512",
            "training.epochs=8",
        ),
    ),
    "globo": RepeatSet(
        f"one in {USERS_SHARE} users; the last click of each is the test",
        news,
        "youtubednn",
        (
            "tower.user.history_length=20",
            'objective.sampler={kind="uniform",negatives=1024}',
            "training.epochs=6",
        ),
    ),
    "online-retail": RepeatSet(
        "the purchases of a customer in the last month; the month before is the validation",
        invoices,
        "ids",
        ("training.metric=ndcg@10",),
    ),
}


def measured(options: Options, chosen: RepeatSet) -> dict[str, Any]:
    """Prepare, train and evaluate; the means of each ranker with their intervals, and the differences."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(PrepareConfig.model_validate(chosen.settings(options.data, work)), work / "prepared")
        data = PreparedData.open(work / "prepared")
        always = ("evaluation.exclude_seen=false", "evaluation.k=[10]", "training.device=cpu")
        changes = [*always, *chosen.changes, *(QUICK if options.quick else ())]
        experiment = load_experiment(chosen.experiment, changes)
        trained = Run(work / "run", experiment, data.folder, data.fingerprint)
        train(trained, data)
        rankers: Rankers = {
            TOWERS: lambda: trained.open_ranker(data, "test"),
            ALONE: lambda: trained.open_ranker(data, "test", repeats=False),
            **{name: partial(BASELINES[name].fit, data, "test") for name in RIVALS},
        }
        report, _ = evaluate_rankers(rankers, data, "test", experiment.evaluation)
    best = max(RIVALS, key=lambda name: report[name][METRIC]["mean"])
    return {
        "protocol": chosen.protocol,
        "experiment": chosen.experiment,
        "changes": list(chosen.changes),
        "users": report["users"],
        "items": report["items"],
        "events": len(data.event_items),
        "relevant_used_before": report["relevant_used_before"] / report["relevant_items"],
        METRIC: {name: report[name][METRIC] for name in rankers},
        "differences": {name: difference[METRIC] for name, difference in report["differences"].items()},
        "limits": {name: limit for name in RIVALS if (limit := BASELINES[name].limits(data))},
        "best_baseline": best,
        "over_best_baseline": report[TOWERS][METRIC]["mean"] / report[best][METRIC]["mean"],
    }


def repeats(options: Options) -> dict[str, Any]:
    """Measure every set; a quick run has one epoch each, and no news."""
    names = [name for name in SETS if not (options.quick and name == "globo")]
    sets = {name: measured(options, SETS[name]) for name in names}
    return {"sets": sets, "least_over_best_baseline": min(row["over_best_baseline"] for row in sets.values())}


if __name__ == "__main__":
    run(repeats)
