"""`turret compare`: a comparison of runs as text tables or JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turret.data.text import count, figure, signed_with_interval, text_table, with_interval
from turret.training.comparison.compare import compare
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart


def compare_runs(folders: Sequence[Path], part: EvaluatedPart, metric: str, as_json: bool) -> None:
    """Compare runs with the first of them: print a table by `metric`, or JSON with all metrics.

    Raises:
        TrainingError: the runs can't be compared, or have no such metric in common.
    """
    report = compare(folders, part)
    metrics = report["runs"][0]["metrics"]
    if metric not in metrics:
        raise TrainingError(f"--metric {metric}: the runs have {', '.join(metrics)} in common; name one.")
    print(json.dumps(report, indent=2) if as_json else comparison_table(report, metric))


def comparison_table(report: dict[str, Any], metric: str) -> str:
    """A table of the runs by one metric, their baselines, slices, and the settings that differ."""
    runs = report["runs"]
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    parts = [
        text_table(
            ("run", metric, "difference from 1", "epochs", "seconds", "parameters", "MB"),
            [
                (
                    number,
                    with_interval(run["metrics"][metric]),
                    signed_with_interval(run["difference"][metric]) if run["difference"] else "",
                    *(count(run[name]) for name in ("epochs", "seconds", "parameters")),
                    f"{run['bytes'] / 1e6:.1f}",
                )
                for number, run in zip(numbers, runs, strict=True)
            ],
            f"{report['part']} part: {report['users']:,} common users",
            "mean over users [95 % bootstrap interval]; differences are paired by user",
        )
    ]
    for number, run in zip(numbers, runs, strict=True):
        parts.append(f"{number}: {run['run']}{_seeds(run, metric)}")
        if run["baseline"]:
            parts.append(f"   {run['baseline']['sentence']}")
    if report["slices"]:
        slices = [
            (name, f"{group['users']:,}", *(_with_difference(run, metric) for run in group["runs"]))
            for name, group in report["slices"].items()
            if metric in group["runs"][0]["metrics"]  # unlike the AUC of users without negatives
        ]
        title = f"slices: {metric}, and the difference from 1"
        parts.append(text_table(("slice", "users", *numbers), slices, title))
    if report["settings"]:
        settings = [
            (name, *("" if value is None else str(value) for value in values))
            for name, values in report["settings"].items()
        ]
        parts.append(text_table(("setting", *numbers), settings, "settings that differ"))
    else:
        parts.append("The runs have the same settings.")
    if not report["same_data"]:
        parts.append(
            "The runs were trained on different data: differences are those of data and settings together, "
            "over the users that all evaluations have."
        )
    return "\n".join(parts)


def _seeds(run: dict[str, Any], metric: str) -> str:
    """The number of seeds that a run is the mean of, and their deviation."""
    if run["seeds"] is None:
        return ""
    deviation = run["deviation"][metric]
    spread = "" if deviation is None else f", standard deviation of {metric} {deviation:.4f}"
    return f" (mean of {len(run['seeds'])} seeds{spread})"


def _with_difference(run: dict[str, Any], metric: str) -> str:
    gain = f", {signed_with_interval(run['difference'][metric])}" if run["difference"] else ""
    return figure(run["metrics"][metric]) + gain
