"""The runs of several seeds in one folder, and the mean and deviation of their figures."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart, differences, summarise
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import MODEL, PER_USER, RUN, Run
from turret.training.verdict.verdict import comparison_findings, main_metric

_MOST, _LIMIT = 1000, 2**32
# Findings about the data and the settings: the same for all seeds.
_OF_DATA = ("baseline_limits", "baseline_left_out", "unread_features", "unread_order", "repeats")


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of a text such as "0-4" or "0,1,5", each once.

    Raises:
        TrainingError: the text is no list of numbers and ranges, or names too many.
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:\s*-\s*(\d{1,10}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= _LIMIT:
            raise TrainingError(
                f"--seeds {text}: {part.strip()!r} is no seed and no range; give numbers and ranges below "
                "2^32, such as 0-4 or 0,1,5."
            )
        if last - first >= _MOST or len(seeds) >= _MOST:
            raise TrainingError(f"--seeds {text}: that is more than {_MOST:,} seeds; name fewer.")
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


def seed_folder(folder: Path, seed: int) -> Path:
    """The folder of one run of several seeds, such as `seed-0`."""
    return folder / f"seed-{seed}"


def begun_seeds(folder: Path) -> list[int]:
    """The seeds whose training has begun in a folder; none where it is that of one run."""
    names = (path.parent.name.removeprefix("seed-") for path in folder.glob(f"seed-*/{RUN}"))
    return sorted(int(name) for name in names if name.isdecimal())


def is_finished(run: Run) -> bool:
    """Whether the training of a run has ended."""
    progress = run.progress()
    return progress is not None and progress.finished and (run.folder / MODEL).is_file()


def open_runs(folder: Path) -> list[Run]:
    """The run of a folder, or the finished runs of its seeds. Raises TrainingError if there is none."""
    if not (seeds := begun_seeds(folder)):
        return [Run.read(folder)]
    runs = [run for seed in seeds if is_finished(run := Run.read(seed_folder(folder, seed)))]
    if not runs:
        raise TrainingError(
            f"{folder}: no seed is trained to its end yet; let `turret train --run {folder} --resume` finish."
        )
    return runs


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The `mean`, the sample standard `deviation` (None of one value), and the `values` themselves."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    if deviation is not None and min(values) == max(values):
        deviation = 0.0  # without the rounding error of the mean
    return {"mean": float(np.mean(values)), "deviation": deviation, "values": list(values)}


def training_summary(runs: Sequence[Run]) -> dict[str, Any]:
    """The spread of the training figures of finished runs.

    The metric is that of the best epoch on the validation part; data without one has no such entry.
    """
    ends = [end for run in runs if (end := run.progress()) is not None]
    best = [end.best for end in ends if end.best is not None]
    metric = {f"validation {runs[0].experiment.training.metric}": spread(best)} if best else {}
    return {
        **metric,
        "epochs": spread([end.epoch for end in ends]),
        "seconds": spread([end.seconds for end in ends]),
    }


def evaluation_summary(runs: Sequence[Run], part: EvaluatedPart) -> dict[str, Any]:
    """The evaluations of several seeds in one JSON-ready report.

    Returns:
        For each ranker and metric its `spread` over seeds, with the 95 % interval over users of the figures
        averaged over seeds (`low`, `high`); `differences` of the towers from each other ranker, paired by
        user after that average, and the verdict: of these, and of the data.
    """
    experiment = runs[0].experiment
    replicates, seed = experiment.evaluation.bootstrap, experiment.training.seed
    reports = [run.metrics()[part] for run in runs]
    values = load_per_user(*(run.folder / PER_USER[part] for run in runs)).values
    described = {
        name: {
            metric: {**spread([report[name][metric]["mean"] for report in reports]), **interval}
            for metric, interval in summarise(own, replicates, seed).items()
        }
        for name, own in values.items()
    }
    counts = ("users", "users_with_negatives", "items", "relevant_items", "relevant_cold")
    report = {
        **{name: reports[0][name] for name in ("part", *counts, "exclude_seen") if name in reports[0]},
        "seeds": [run.experiment.training.seed for run in runs],
        **described,
        "differences": differences(values, replicates, seed),
    }
    metric = main_metric(report, experiment)
    of_data = [finding for finding in reports[0]["verdict"] if finding["kind"] in _OF_DATA]
    return {**report, "verdict": [*comparison_findings(report, metric), *of_data], "metric": metric}
