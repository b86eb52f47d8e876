"""The quality of the experiment `dssm` by its loss over in-batch candidates.

Protocol: the shipped experiment, in batches of 2,048, with each loss in place of its own, on items with
features: fewer of them than a batch has examples (`ml-100k`), and six times as many (`s3rec_beauty`). The
last item of each user is the test, the one before it selects the epoch; mean and standard deviation over
seeds. Every training is kept when it ends, and `--resume` goes on.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.cold_items import ColdSet
from benchmarks.harness import RESULTS, Options, finish, read_options
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


def rows(options: Options, kept: Sequence[Row]) -> Iterator[list[Row]]:
    """Every set, seed and loss; one set and seed where it has to be quick. All rows after each training."""
    done, seeds = list(kept), SEEDS[:1] if options.quick else SEEDS
    with tempfile.TemporaryDirectory() as folder:
        for name in list(SETS)[:1] if options.quick else SETS:
            work = Path(folder) / name
            work.mkdir()
            data = prepared(options, name, work)
            for seed, loss in itertools.product(seeds, LOSSES):
                about = {"set": name, "loss": loss, "seed": seed}
                if not any(about.items() <= row.items() for row in done):
                    run = work / f"run{seed}-{list(LOSSES).index(loss)}"
                    done.append({**about, **one(data, loss, seed, options.quick, run)})
                    print(done[-1], flush=True)
                    yield done


def table(found: Sequence[Row]) -> Table:
    """Means and standard deviations over the seeds."""
    shown = Table("set", "loss", *METRICS)
    for name, loss in dict.fromkeys((row["set"], row["loss"]) for row in found):
        shown.add_row(name, loss, *(spread(found, name, loss, metric) for metric in METRICS))
    return shown


def spread(found: Sequence[Row], name: str, loss: str, metric: str) -> str:
    """Mean and standard deviation over the seeds of a set and loss."""
    values = [row[metric] for row in found if (row["set"], row["loss"]) == (name, loss)]
    return f"{statistics.mean(values):.4f} ± {statistics.pstdev(values):.4f}"


def parser() -> argparse.ArgumentParser:
    """The options that only this script has."""
    made = argparse.ArgumentParser(add_help=False)
    made.add_argument("--resume", action="store_true", help="trainings that are kept aren't run again")
    return made


def main() -> None:
    """Measure, print and keep."""
    options, path = read_options(__doc__, more=parser()), RESULTS / "in_batch_quality.json"
    kept: list[Row] = []
    if options.given.resume and path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))["rows"]
    for found in rows(options, kept):
        kept = list(found)
        finish("in_batch_quality", replace(options, as_json=False), {"rows": kept})
    Console().print(table(kept))
    finish("in_batch_quality", options, {"rows": kept})


if __name__ == "__main__":
    main()
