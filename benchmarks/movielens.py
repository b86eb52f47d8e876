"""YouTubeDNN on MovieLens 1M as SASRec splits it: from the raw file to the full ranking.

Protocol: the last item of each user is the test, the one before it validation and not in the training
data; the whole catalog is ranked, the user's own items masked, ties by ascending row; the epoch is
selected on validation NDCG@10; mean and standard deviation over three seeds.
"""

import hashlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, peak_memory_mb, run
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.batches.batches import TrainingBatches
from turret.training.config.experiment import EvaluationConfig, ExperimentConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run
from turret.training.trainer import train

SEEDS = (0, 1, 2)
METRICS = ("hr@50", "hr@10", "ndcg@10")
CONFIG = EvaluationConfig(k=(10, 50))


def one_seed(work: Path, data: PreparedData, experiment: ExperimentConfig) -> dict[str, Any]:
    """Train and evaluate once."""
    seed = experiment.training.seed
    run = Run(work / f"run{seed}", experiment, data.folder, data.fingerprint)
    start = time.perf_counter()
    progress = train(run, data, resume=False)
    trained = time.perf_counter()
    report = evaluate(run.open_model(data), data, "test", CONFIG, seed)
    batches = TrainingBatches.of(experiment, data)
    return {
        "seed": seed,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": time.perf_counter() - start,
        "events_per_second": batches.example_count * progress.epoch / (trained - start),
        **{name: report["towers"][name]["mean"] for name in METRICS},
        **{f"popularity_{name}": report["popularity"][name]["mean"] for name in METRICS},
    }


def measure(options: Options) -> dict[str, Any]:
    """Prepare the data, train with every seed, and put the figures together."""
    source = options.data / "sasrec_ml-1m" / "interactions.parquet"
    overrides = ["training.epochs=2"] if options.quick else []
    seeds = SEEDS[:1] if options.quick else SEEDS
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        start = time.perf_counter()
        prepare(PrepareConfig(source=source), work / "prepared")
        prepared = time.perf_counter() - start
        data = PreparedData.open(work / "prepared")
        settings = [[*overrides, f"training.seed={seed}"] for seed in seeds]
        rows = [one_seed(work, data, load_experiment("youtubednn", one)) for one in settings]
    return {
        **{name: statistics.mean(row[name] for row in rows) for name in METRICS},
        **{f"{name}_deviation": statistics.pstdev(row[name] for row in rows) for name in METRICS},
        **{f"popularity_{name}": rows[0][f"popularity_{name}"] for name in METRICS},
        "seconds": prepared + statistics.mean(row["seconds"] for row in rows),
        "prepare_seconds": prepared,
        "events_per_second": statistics.median(row["events_per_second"] for row in rows),
        "peak_memory_mb": peak_memory_mb(),
        "source_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "experiment": load_experiment("youtubednn", overrides).model_dump(mode="json"),
        "seeds": rows,
    }


if __name__ == "__main__":
    run(measure)
