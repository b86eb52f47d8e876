"""YouTubeDNN on MovieLens 1M as SASRec splits it: from the raw file to the full ranking.

The protocol is that of `benchmarks.quality --set sasrec_ml-1m`, the experiment is `youtubednn`; `seconds` has
preparation, and the mean of training and evaluation over three seeds.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, flat_over_seeds, peak_memory_mb, run
from benchmarks.quality import one_seed
from benchmarks.quality_sets import SETS
from turret.data.manifest import hash_file
from turret.data.preparing.prepare import prepare
from turret.training.config.experiment import load_experiment

SEEDS = (0, 1, 2)
METRICS = ("hr@50", "hr@10", "ndcg@10")
SET = replace(SETS["sasrec_ml-1m"], experiment="youtubednn", metrics=METRICS)


def measure(options: Options) -> dict[str, Any]:
    """Prepare the data, train and evaluate with every seed; a quick run takes two epochs of one seed."""
    source = options.data / SET.name
    overrides = ["training.epochs=2"] if options.quick else []
    rows, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        start = time.perf_counter()
        prepare(SET.prepared(source, work / "files"), work / "prepared")
        prepared = time.perf_counter() - start
        for seed in SEEDS[:1] if options.quick else SEEDS:
            experiment = load_experiment(SET.experiment, [*overrides, f"training.seed={seed}"])
            start = time.perf_counter()
            rows.append(one_seed(SET, work, [work / "prepared"], experiment, first=False))
            seconds.append(time.perf_counter() - start)
    return {
        **flat_over_seeds(rows, METRICS),
        **{f"popularity_{name}": rows[0][f"popularity_{name}"] for name in METRICS},
        "seconds": prepared + statistics.mean(seconds),
        "prepare_seconds": prepared,
        "peak_memory_mb": peak_memory_mb(),
        "source_sha256": hash_file(source / SET.files[0]).sha256,
        "experiment": load_experiment(SET.experiment, overrides).model_dump(mode="json"),
        "seeds": rows,
    }


if __name__ == "__main__":
    run(measure)
