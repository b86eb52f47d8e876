"""Losses over labelled pairs and given negatives, on a log whose ratings are labels.

MovieLens 100K with a rating of 4 and above as label 1 and below as 0. The last event of each user is the
test, the one before it validation. Two metrics of the test events, means over three seeds: the AUC of the
given negatives, and NDCG@10 in the ranking of the whole catalog. Trainings have six epochs. Losses over the
negatives of the log select their epoch by the validation AUC; the one over uniform draws, which reads no
negatives, selects it by NDCG@10.
"""

import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Options, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import users_with_negatives
from turret.training.run import Run
from turret.training.trainer import train

SET, EVENTS, LIKED = "ml-100k", "ratings.parquet", 4
SEEDS, EPOCHS = (0, 1, 2), 6
COSINES, RANKS = "tower.scoring.temperature=1.0", "training.metric=ndcg@10"
METRICS = ("auc", "ndcg@10")
# By label: the settings beside those of the experiment `labelled_pairs`.
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


def labelled(options: Options, folder: Path) -> PreparedData:
    """The ratings with labels, prepared."""
    ratings = pl.read_parquet(options.data / SET / EVENTS)
    labels = (pl.col("rating") >= LIKED).cast(pl.Int8).alias("label")
    ratings.select("user_id", "item_id", "timestamp", labels).write_parquet(folder / "events.parquet")
    config = {"source": folder / "events.parquet", "columns": {"label": "label"}}
    prepare(PrepareConfig.model_validate(config), folder / "prepared")
    return PreparedData.open(folder / "prepared")


def one_side(
    name: str, data: PreparedData, work: Path, seeds: tuple[int, ...], quick: bool
) -> dict[str, Any]:
    """Train and measure one loss with every seed."""
    values: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for seed in seeds:
        epochs = f"training.epochs={1 if quick else EPOCHS}"
        changes = [*SIDES[name], f"training.seed={seed}", epochs]
        experiment = load_experiment("labelled_pairs", changes)
        run = Run(work / f"{list(SIDES).index(name)}_{seed}", experiment, data.folder, data.fingerprint)
        train(run, data, report=lambda line: None)
        towers = run.evaluate(data, "test")["towers"]
        for metric, by_seed in values.items():
            by_seed.append(towers[metric]["mean"])
    return {"name": name, "by_seed": values}


def measure(options: Options) -> dict[str, Any]:
    """Every side on the same data."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    with tempfile.TemporaryDirectory() as name:
        data = labelled(options, Path(name))
        rows = [one_side(side, data, Path(name), seeds, options.quick) for side in SIDES]
        counts = {"events": len(data.event_items), "negatives": data.manifest.negatives}
        counts["users"] = len(users_with_negatives(data, "test"))
    return {"set": SET, "seeds": list(seeds), "epochs": EPOCHS, **counts, "rows": rows}


if __name__ == "__main__":
    run(measure)
