"""What each part of an experiment adds, on sets of several kinds: `python -m benchmarks.ablation --json`.

Protocol: as `benchmarks.quality` for a log in order: each user's last item is the test, the one before it
validation, by which the epoch is chosen; the whole catalog is ranked. Each variant changes one setting of the
experiment, for the seeds 0, 1 and 2; a row has the means over seeds of NDCG@10 on both parts and HR@10 on the
test, their spread, and the processor seconds of a training (without those of its teachers). Logs of fewer
events than `s3rec_beauty` train with smaller batches. The file of `s3rec_beauty` has the whole days between
the events of a user in place of their times; `benchmarks.quality` has measured its experiment as it is.
`--resume` goes on after the rows that are kept.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Options, kept, over_seeds, run_rows
from benchmarks.quality import CONFIG, trained
from benchmarks.quality_sets import SETS as QUALITY_SETS
from benchmarks.repeats import news
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run

SEEDS, TEACHING = (0, 1, 2), (3, 4, 5)
METRICS = ("validation", "ndcg@10", "hr@10", "seconds")
SHARE, LOSS, PAIRS = "tower.user.filter_share", "objective.loss", "tower.scoring.pairs"
TIMES, BEGINNING = "tower.user.times", 1_000_000_000
AS_IT_IS, PAIRED, TIMED = "as it is", "256 pairs", "times"
TAUGHT = "3 teachers"  # of other seeds, as the experiment is
Row = dict[str, Any]


def _file(name: str, data: Path, work: Path) -> dict[str, Any]:
    """A file as it is."""
    return {"source": data / name}


def _day_gaps(data: Path, work: Path) -> dict[str, Any]:
    """The events of `s3rec_beauty`; every user begins at the same time, as the file has no other."""
    log = pl.read_parquet(data / "s3rec_beauty" / "interactions.parquet").sort("user_id", "pos")
    times = pl.col("gap_seconds").cum_sum().over("user_id")
    log.select("user_id", "item_id", timestamp=BEGINNING + times).write_parquet(work / "events.parquet")
    return {"source": work / "events.parquet"}


@dataclass(frozen=True)
class Ablated:
    """A log and an experiment: `variants` name what differs from it, each with its settings.

    `log` gives the settings of its preparation by the folders of all data and of scratch files.
    """

    log: Callable[[Path, Path], dict[str, Any]]
    experiment: str
    settings: tuple[str, ...]
    variants: dict[str, tuple[str, ...]]


SETS = {
    "amazon-scientific": Ablated(
        partial(_file, "amazon-scientific/interactions.parquet"),
        "transformer_short",
        ("training.batch_size=256", "training.epochs=60", "training.patience=12"),
        {
            AS_IT_IS: (),
            "no filter": (f"{SHARE}=0",),
            "filter share .5": (f"{SHARE}=0.5",),
            "no smoothing": (f"{LOSS}={{kind='full_softmax', smoothing=0}}",),
            "4 blocks": ("tower.user.blocks=4",),
            PAIRED: (f"{PAIRS}=256",),
            TAUGHT: (),
        },
    ),
    "ml-100k": Ablated(
        partial(_file, "ml-100k/ratings.parquet"),
        "transformer",
        ("training.batch_size=256", "training.epochs=40", "training.patience=8"),
        {
            AS_IT_IS: (),
            "filter share .3": (f"{SHARE}=0.3",),
            "filter share .7": (f"{SHARE}=0.7",),
            "smoothing .1": (f"{LOSS}={{kind='full_softmax', smoothing=0.1}}",),
            TIMED: (f"{TIMES}=true",),
            PAIRED: (f"{PAIRS}=256",),
        },
    ),
    "s3rec_beauty": Ablated(_day_gaps, "transformer_short", (), {AS_IT_IS: (), TIMED: (f"{TIMES}=true",)}),
    "globo": Ablated(
        partial(news, share=16),
        "transformer",
        ("training.batch_size=256", "training.epochs=40", "training.patience=8"),
        {AS_IT_IS: (), TIMED: (f"{TIMES}=true",)},
    ),
}


def measured(options: Options, data: PreparedData, work: Path, name: str, variant: str) -> Row:
    """Train every seed of a variant, and test it."""
    chosen, rows = SETS[name], list[Row]()
    about = {"set": name, "experiment": chosen.experiment, "variant": variant}
    if variant == AS_IT_IS and name in QUALITY_SETS and not options.quick:
        rows = [row for row in kept(name) if row["experiment"] == chosen.experiment and row["seed"] in SEEDS]
        return {**about, "settings": (), **over_seeds(rows, METRICS[:-1]), "seeds": len(rows)}
    settings = [*chosen.settings, *chosen.variants[variant], "training.metric='ndcg@10'"]
    settings += ["training.epochs=1"] if options.quick else []

    def trained_with(seed: int, *more: str) -> tuple[Run, Row]:
        experiment = load_experiment(chosen.experiment, [*settings, f"training.seed={seed}", *more])
        return trained(work / f"{name}-{variant}-{seed}", data, experiment)

    teachers = [str(trained_with(seed)[0].folder) for seed in TEACHING] if variant == TAUGHT else []
    for seed in SEEDS[:1] if options.quick else SEEDS:
        begun = time.process_time()
        run, figures = trained_with(seed, f"training.teacher={teachers}")
        seconds = time.process_time() - begun
        report = evaluate(run.open_model(data), data, "test", CONFIG)
        tested = {metric: report["towers"][metric]["mean"] for metric in ("ndcg@10", "hr@10")}
        rows.append({"validation": figures["validation"], "seconds": seconds, **tested})
    return {**about, "settings": chosen.variants[variant], **over_seeds(rows, METRICS), "seeds": len(rows)}


def measure(options: Options, measured_rows: list[Row]) -> Iterator[Row]:
    """Measure the variants that are not kept; a quick run has two of the smaller set."""
    known = {(row["set"], row["variant"]) for row in measured_rows}
    for name, chosen in SETS.items():
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            prepare(PrepareConfig.model_validate(chosen.log(options.data, work)), work / "data")
            data = PreparedData.open(work / "data")
            for variant in [*chosen.variants][: 2 if options.quick else None]:
                if (name, variant) not in known:
                    yield measured(options, data, work, name, variant)
        if options.quick:
            return


def summary(rows: list[Row]) -> Row:
    """Validation NDCG@10 of each variant over that of the experiment as it is, by set."""
    base = {row["set"]: row["validation"]["mean"] for row in rows if row["variant"] == AS_IT_IS}
    gains: dict[str, dict[str, float]] = {name: {} for name in base}
    for row in rows:
        gains[row["set"]][row["variant"]] = row["validation"]["mean"] / base[row["set"]]
    return {"over_experiment": gains}


if __name__ == "__main__":
    run_rows(measure, summary)
