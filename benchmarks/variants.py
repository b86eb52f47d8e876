"""Variants of an experiment in turn: `python -m benchmarks.variants` and one of the following.

`cold_items`: how well items that were never seen in training are found, with their features and without. A
tenth of the items is held out with all of its events. Their users have to get them from the whole catalog, by
a history of the other items: recall@k over all users with a held-out item, mean and standard
deviation over seeds (which also draw the held-out items). The number of epochs is fixed: no held-out event
may choose it.

`labelled_pairs`: losses over labelled pairs and given negatives, on MovieLens 100K with a rating of 4 and
above as label 1 and below as 0. The last event of each user is the test, the one before it validation. The
AUC of the given negatives, and NDCG@10 in the ranking of the whole catalog, after six epochs. Losses over the
negatives of the log select their epoch by the validation AUC; the one over uniform draws, which reads no
negatives, selects it by NDCG@10.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, over_seeds, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import FeatureColumns, FilesSplit, PrepareConfig
from turret.data.reading.source_settings import ColumnSettings
from turret.training.config.experiment import EvaluationConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.evaluation.ranking import users_with_negatives
from turret.training.loop.train import train
from turret.training.run import Run

SEEDS = (0, 1, 2)
Row = dict[str, Any]


@dataclass(frozen=True)
class FeaturedSet:
    """`read` gives events with user_id, item_id and time from the folder of the data, oldest first."""

    read: Callable[[Path], pl.DataFrame]
    features: FeatureColumns

    def prepared(self, source: Path, work: Path, /, **events: Any) -> PreparedData:
        """Prepare the `events`, which are settings of `PrepareConfig`, with the features of the items."""
        columns = [column for _, column in self.features.by_kind()]
        items = pl.read_parquet(source / "items.parquet").select("item_id", *columns)
        items.write_parquet(work / "items.parquet")
        config = PrepareConfig(
            **events,
            items=work / "items.parquet",
            columns=ColumnSettings(time="time"),
            item_features=self.features,
            on_bad="drop",
        )
        prepare(config, work / "prepared")
        return PreparedData.open(work / "prepared")


def tested(
    experiment: str, changes: Sequence[str], seed: int, data: PreparedData, work: Path, metrics: Sequence[str]
) -> dict[str, float]:
    """Train once with these changes; return the metrics of the towers on the test."""
    settings = load_experiment(experiment, [*changes, f"training.seed={seed}"])
    run = Run(work, settings, data.folder, data.fingerprint)
    train(run, data, report=lambda line: None)
    report = evaluate(run.open_model(data), data, "test", EvaluationConfig(k=(10, 20, 100)))
    means: dict[str, float] = {name: report["towers"][name]["mean"] for name in metrics}
    print(f"{experiment}, {changes}, seed {seed}: {means}", flush=True)
    return means


def _ml_1m(folder: Path) -> pl.DataFrame:
    ratings = pl.read_parquet(folder / "ratings.parquet").drop_nulls("pos")
    return ratings.select("user_id", "item_id", time="pos").sort("user_id", "time")


def _retail(folder: Path) -> pl.DataFrame:
    lines = pl.read_parquet(folder / "transactions.parquet")
    bought = lines.filter(pl.col("user_id").is_not_null() & (pl.col("quantity") > 0))
    return bought.select("user_id", "item_id", time="timestamp").sort("user_id", "time")


SHARE, EPOCHS, COLD_METRICS = 0.1, 3, ("recall@20", "recall@100")
COLD_SETS = {
    "ml-1m": FeaturedSet(_ml_1m, FeatureColumns(text=("title",), multi=("genres",), number=("year",))),
    "online-retail": FeaturedSet(_retail, FeatureColumns(text=("title",))),
}
# The settings that differ from the experiment `dssm`.
MODELS: dict[str, tuple[str, ...]] = {
    "features": (),
    "features, ids never dropped": ("tower.item.id_dropout=0.0",),
    "ids alone": ("tower.item.features=[]", "tower.item.hidden=[]", "tower.item.id_dropout=0.0"),
}


def cold_items(options: Options) -> Row:
    """Measure every set with every seed; a quick run takes one epoch of one seed."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    epochs = f"training.epochs={1 if options.quick else EPOCHS}"
    sets: Row = {}
    for name, chosen in COLD_SETS.items():
        rows_by_model: dict[str, list[dict[str, float]]] = {}
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                data = cold_data(options.data / name, chosen, seed, Path(folder))
                for model, changes in MODELS.items():
                    run, settings = Path(folder) / model, [*changes, epochs]
                    row = tested("dssm", settings, seed, data, run, COLD_METRICS)
                    rows_by_model.setdefault(model, []).append(row)
                chance = {f"recall@{k}": k / len(data.item_ids) for k in (20, 100)}
                rows_by_model.setdefault("chance", []).append(chance)
        sets[name] = {model: over_seeds(rows, COLD_METRICS) for model, rows in rows_by_model.items()}
    return {"seeds": list(seeds), "sets": sets}


def cold_data(source: Path, chosen: FeaturedSet, seed: int, work: Path) -> PreparedData:
    """Prepare the warm items' events for training; the test is each user's distinct cold items."""
    events = chosen.read(source)
    items = events["item_id"].unique().sort()
    drawn = items.filter(pl.Series(np.random.default_rng(seed).random(len(items)) < SHARE))
    is_cold = pl.col("item_id").is_in(drawn.implode())
    warm = events.filter(~is_cold)
    queries = events.filter(is_cold).unique(["user_id", "item_id"], keep="first", maintain_order=True)
    queries = queries.filter(pl.col("user_id").is_in(warm["user_id"].unique().implode()))
    warm.write_parquet(work / "warm.parquet")
    queries.write_parquet(work / "cold.parquet")
    split = FilesSplit(
        kind="files", train=work / "warm.parquet", test=work / "cold.parquet", validation_fraction=0.0
    )
    return chosen.prepared(source, work, split=split)


LABELLED, LIKED, LABELLED_EPOCHS, LABELLED_METRICS = "ml-100k", 4, 6, ("auc", "ndcg@10")
COSINES, RANKS = "tower.scoring.temperature=1.0", "training.metric=ndcg@10"
# The settings of each side, by label, that differ from the experiment `labelled_pairs`.
SIDES: dict[str, tuple[str, ...]] = {
    "labelled pairs, `binary_cross_entropy`": (),
    "labelled pairs, `cosine_embedding`": ('objective.loss="cosine_embedding"', COSINES),
    **{
        f"given negatives, `cosine_hinge`, margin {margin:g}": (
            f'objective={{loss={{kind="cosine_hinge", margin={margin}}}, candidates="given"}}',
            COSINES,
        )
        for margin in (0.5, 1.0)
    },
    "uniform draws, `sampled_softmax`": (
        'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=512}}',
        RANKS,
    ),
}


def labelled_pairs(options: Options) -> Row:
    """Measure every side on the same data."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    epochs = f"training.epochs={1 if options.quick else LABELLED_EPOCHS}"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        ratings = pl.read_parquet(options.data / LABELLED / "ratings.parquet")
        labels = (pl.col("rating") >= LIKED).cast(pl.Int8).alias("label")
        ratings.select("user_id", "item_id", "timestamp", labels).write_parquet(work / "events.parquet")
        config = {"source": work / "events.parquet", "columns": {"label": "label"}}
        prepare(PrepareConfig.model_validate(config), work / "prepared")
        data = PreparedData.open(work / "prepared")
        for number, (name, changes) in enumerate(SIDES.items()):
            by_seed: dict[str, list[float]] = {metric: [] for metric in LABELLED_METRICS}
            for seed in seeds:
                run = work / f"{number}_{seed}"
                means = tested("labelled_pairs", [*changes, epochs], seed, data, run, LABELLED_METRICS)
                for metric, value in means.items():
                    by_seed[metric].append(value)
            rows.append({"name": name, "by_seed": by_seed})
        users = len(users_with_negatives(data, "test"))
        counts = {"events": len(data.event_items), "negatives": data.manifest.negatives, "users": users}
    return {"set": LABELLED, "seeds": list(seeds), "epochs": LABELLED_EPOCHS, **counts, "rows": rows}


if __name__ == "__main__":
    run(cold_items, labelled_pairs)
