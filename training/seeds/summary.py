"""The mean and the deviation of figures over seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from turret.training.evaluation.evaluation import TOWERS, EvaluatedPart, summarise
from turret.training.evaluation.per_user import load_rankers, mean_per_user
from turret.training.run import PER_USER, Run
from turret.training.seeds.runs import SeedRuns
from turret.training.verdict.comparison import comparison_findings
from turret.training.verdict.verdict import main_metric

# Findings about the data and the settings: the same for all seeds.
_OF_DATA = ("baseline_limits", "baseline_left_out", "unread_features", "unread_order", "repeats")


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The `mean`, the sample standard `deviation` (None of one value), and the `values` themselves."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    if deviation is not None and min(values) == max(values):
        deviation = 0.0  # without the rounding error of the mean
    return {"mean": float(np.mean(values)), "deviation": deviation, "values": list(values)}


def training_summary(runs: SeedRuns) -> dict[str, Any]:
    """The finished seeds, and the spread of their training figures: JSON-ready.

    The metric is that of the best epoch on the validation part; data without one has no such entry.
    """
    finished = runs.finished()
    summary: dict[str, Any] = {"finished": list(finished), "training": {}}
    if not finished:
        return summary
    progress = list(finished.values())
    best = [one.best for one in progress if one.best is not None]
    if len(best) == len(progress):
        metric = Run.read(runs.run_folder(next(iter(finished)))).experiment.training.metric
        summary["training"][f"validation {metric}"] = spread(best)
    summary["training"]["epochs"] = spread([one.epoch for one in progress])
    summary["training"]["seconds"] = spread([one.seconds for one in progress])
    return summary


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
    paths = [run.folder / PER_USER[part] for run in runs]
    shared = set.intersection(*(set(load_rankers(path)) for path in paths))
    rankers = [name for name in load_rankers(paths[0]) if name in shared]
    values = {name: mean_per_user(paths, name)[1] for name in rankers}
    described = {
        name: {
            metric: {**spread([report[name][metric]["mean"] for report in reports]), **interval}
            for metric, interval in summarise(values[name], replicates, seed).items()
        }
        for name in rankers
    }
    differences = {
        name: summarise(
            {metric: values[TOWERS][metric] - value for metric, value in values[name].items()},
            replicates,
            seed,
        )
        for name in rankers
        if name != TOWERS
    }
    counts = ("users", "users_with_negatives", "items", "relevant_items", "relevant_cold")
    report = {
        **{name: reports[0][name] for name in ("part", *counts, "exclude_seen") if name in reports[0]},
        "seeds": [run.experiment.training.seed for run in runs],
        **described,
        "differences": differences,
    }
    metric = main_metric(report, experiment)
    report["verdict"] = [
        *(finding.as_json() for finding in comparison_findings(report, metric)),
        *(finding for finding in reports[0]["verdict"] if finding["kind"] in _OF_DATA),
    ]
    return {**report, "metric": metric}
