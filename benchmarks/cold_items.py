"""How well items that were never seen in training are found, with their features and without.

A tenth of the items is held out with all of its events. Who used some of them has to get those, from a
history of the other items, out of the whole catalog: recall@k over all users with a held-out item, mean
and standard deviation over seeds (which also draw what is held out). The number of epochs is fixed: no
held-out event may choose it.
"""

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import ColumnSettings, FeatureColumns, FilesSplit, PrepareConfig
from turret.training.config.experiment import EvaluationConfig, ExperimentConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run
from turret.training.trainer import train

SHARE, SEEDS, EPOCHS = 0.1, (0, 1, 2), 3
CONFIG = EvaluationConfig(k=(20, 100))
METRICS = ("recall@20", "recall@100")
# What is compared: the settings that differ from the experiment `dssm`.
MODELS: dict[str, tuple[str, ...]] = {
    "features": (),
    "features, ids never dropped": ("tower.item.id_dropout=0.0",),
    "ids alone": ("tower.item.features=[]", "tower.item.hidden=[]", "tower.item.id_dropout=0.0"),
}


@dataclass(frozen=True)
class ColdSet:
    """`read` gives events with user_id, item_id and time from the folder of the data, oldest first."""

    read: Callable[[Path], pl.DataFrame]
    features: FeatureColumns


def _ml_1m(folder: Path) -> pl.DataFrame:
    ratings = pl.read_parquet(folder / "ratings.parquet").drop_nulls("pos")
    return ratings.select("user_id", "item_id", pl.col("pos").alias("time")).sort("user_id", "time")


def _retail(folder: Path) -> pl.DataFrame:
    lines = pl.read_parquet(folder / "transactions.parquet")
    bought = lines.filter(pl.col("user_id").is_not_null() & (pl.col("quantity") > 0))
    return bought.select("user_id", "item_id", pl.col("timestamp").alias("time")).sort("user_id", "time")


SETS = {
    "ml-1m": ColdSet(_ml_1m, FeatureColumns(text=("title",), multi=("genres",), number=("year",))),
    "online-retail": ColdSet(_retail, FeatureColumns(text=("title",))),
}


def held_out(events: pl.DataFrame, seed: int) -> pl.Series:
    """Which events are of a held-out item: a tenth of the items, drawn by the seed."""
    items = events["item_id"].unique().sort()
    chosen = np.random.default_rng(seed).random(len(items)) < SHARE
    return events["item_id"].is_in(items.filter(pl.Series(chosen)).implode())


def prepared(options: Options, name: str, seed: int, work: Path) -> PreparedData:
    """Train on the warm items' events; the test is each user's different cold items."""
    chosen, source = SETS[name], options.data / name
    events = chosen.read(source)
    cold = held_out(events, seed)
    warm = events.filter(~cold)
    queries = events.filter(cold).unique(["user_id", "item_id"], keep="first", maintain_order=True)
    queries = queries.filter(pl.col("user_id").is_in(warm["user_id"].unique().implode()))
    warm.write_parquet(work / "warm.parquet")
    queries.write_parquet(work / "cold.parquet")
    split = FilesSplit(
        kind="files", train=work / "warm.parquet", test=work / "cold.parquet", validation_fraction=0.0
    )
    items = pl.read_parquet(source / "items.parquet").select("item_id", *_columns(chosen.features))
    items.write_parquet(work / "items.parquet")
    config = PrepareConfig(
        split=split,
        items=work / "items.parquet",
        columns=ColumnSettings(time="time"),
        item_features=chosen.features,
        on_bad="drop",
    )
    prepare(config, work / "prepared")
    return PreparedData.open(work / "prepared")


def _columns(features: FeatureColumns) -> list[str]:
    return [column for _, column in features.by_kind()]


def experiment(model: str, seed: int, quick: bool) -> ExperimentConfig:
    """The experiment `dssm` with what the model changes."""
    epochs = 1 if quick else EPOCHS
    return load_experiment("dssm", [*MODELS[model], f"training.epochs={epochs}", f"training.seed={seed}"])


def one_seed(options: Options, name: str, seed: int) -> dict[str, dict[str, float]]:
    """The metrics of each model, and of popularity."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        data = prepared(options, name, seed, work)
        results = {}
        for number, model in enumerate(MODELS):
            settings = experiment(model, seed, options.quick)
            run = Run(work / f"run{number}", settings, data.folder, data.fingerprint)
            train(run, data, report=lambda line: None)
            report = evaluate(run.open_model(data), data, "test", CONFIG, seed)
            results[model] = {metric: report["towers"][metric]["mean"] for metric in METRICS}
            print(
                f"{name}, seed {seed}, {model}: "
                + ", ".join(f"{k} {v:.4f}" for k, v in results[model].items())
            )
        chance = {f"recall@{k}": k / len(data.item_ids) for k in CONFIG.k}
    return {**results, "chance": chance}


def measure(options: Options) -> dict[str, Any]:
    """Every set with every seed; a quick run takes one epoch of one seed."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    sets = {name: [one_seed(options, name, seed) for seed in seeds] for name in SETS}
    figures: dict[str, Any] = {"seeds": list(seeds), "sets": {}}
    for name, rows in sets.items():
        figures["sets"][name] = {
            model: {
                metric: {
                    "mean": statistics.mean(row[model][metric] for row in rows),
                    "deviation": statistics.pstdev(row[model][metric] for row in rows),
                }
                for metric in METRICS
            }
            for model in rows[0]
        }
    return figures


if __name__ == "__main__":
    run(measure)
