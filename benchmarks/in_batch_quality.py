"""The quality of the experiment `dssm` by its loss over in-batch candidates.

Protocol: the shipped experiment, in batches of 2,048, with each loss in place of its own, on items with
features: fewer of them than a batch has examples (`ml-100k`), and six times as many (`s3rec_beauty`). The
last item of each user is the test, the one before it selects the epoch; mean and standard deviation over
seeds. Every training is kept when it ends, and `--resume` goes on.
"""

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.cold_items import ColdSet
from benchmarks.harness import Options, run_rows
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import ColumnSettings, FeatureColumns, PrepareConfig
from turret.training.config.experiment import EvaluationConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run
from turret.training.trainer import train

SEEDS, CONFIG, METRICS = (0, 1, 2), EvaluationConfig(k=(10,)), ("hr@10", "ndcg@10")
LOSSES = {
    "sampled_softmax": 'objective.loss="sampled_softmax"',
    "sampled_softmax_corrected": 'objective.loss="sampled_softmax_corrected"',
    "sampled_softmax_corrected, hits kept": (
        'objective.loss={kind="sampled_softmax_corrected", remove_accidental_hits=false}'
    ),
}
Row = dict[str, Any]


def _ml_100k(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "ratings.parquet").select("user_id", "item_id", time="timestamp")


def _beauty(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "interactions.parquet").select("user_id", "item_id", time="pos")


SETS = {
    "ml-100k": ColdSet(_ml_100k, FeatureColumns(text=("title",), multi=("genres",))),
    "s3rec_beauty": ColdSet(_beauty, FeatureColumns(multi=("attributes",))),
}


def prepared(options: Options, name: str, work: Path) -> PreparedData:
    """The set with its items' features."""
    chosen, source = SETS[name], options.data / name
    chosen.read(source).write_parquet(work / "events.parquet")
    features = [column for _, column in chosen.features.by_kind()]
    pl.read_parquet(source / "items.parquet").select("item_id", *features).write_parquet(
        work / "items.parquet"
    )
    config = PrepareConfig(
        source=work / "events.parquet",
        items=work / "items.parquet",
        columns=ColumnSettings(time="time"),
        item_features=chosen.features,
        on_bad="drop",
    )
    prepare(config, work / "prepared")
    return PreparedData.open(work / "prepared")


def one(data: PreparedData, loss: str, seed: int, quick: bool, work: Path) -> dict[str, float]:
    """The metrics of one training."""
    epochs = ["training.epochs=1"] if quick else []
    experiment = load_experiment("dssm", [LOSSES[loss], f"training.seed={seed}", *epochs])
    run = Run(work, experiment, data.folder, data.fingerprint)
    train(run, data, report=lambda line: None)
    report = evaluate(run.open_model(data), data, "test", CONFIG, seed)
    return {metric: report["towers"][metric]["mean"] for metric in METRICS}


def measure(options: Options, kept: Sequence[Row]) -> Iterator[Row]:
    """Every set, seed and loss; one set and seed where it has to be quick."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    with tempfile.TemporaryDirectory() as folder:
        for name in list(SETS)[:1] if options.quick else SETS:
            work = Path(folder) / name
            work.mkdir()
            data = prepared(options, name, work)
            for seed, loss in itertools.product(seeds, LOSSES):
                about = {"set": name, "loss": loss, "seed": seed}
                if not any(about.items() <= row.items() for row in kept):
                    run = work / f"run{seed}-{list(LOSSES).index(loss)}"
                    yield {**about, **one(data, loss, seed, options.quick, run)}


if __name__ == "__main__":
    run_rows(measure)
