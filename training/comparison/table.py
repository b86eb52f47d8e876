"""A comparison of runs as text tables."""

from typing import Any

from turret.data.text import count, figure, signed_with_interval, text_table, with_interval


def comparison_table(report: dict[str, Any], metric: str) -> str:
    """A table of the runs by one metric, and one of the settings that differ."""
    parts = [_runs(report, metric)]
    for number, run in enumerate(report["runs"], start=1):
        parts.append(f"{number}: {run['run']}{_seeds(run, metric)}")
        if run["baseline"]:
            parts.append(f"   {run['baseline']['sentence']}")
    if report["slices"]:
        parts.append(_slices(report, metric))
    parts.append(_settings(report) if report["settings"] else "The runs have the same settings.")
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


def _runs(report: dict[str, Any], metric: str) -> str:
    rows = [
        (
            str(number),
            with_interval(run["metrics"][metric]),
            signed_with_interval(run["difference"][metric]) if run["difference"] else "",
            *(count(run[name]) for name in ("epochs", "seconds", "parameters")),
            f"{run['bytes'] / 1e6:.1f}",
        )
        for number, run in enumerate(report["runs"], start=1)
    ]
    return text_table(
        ("run", metric, "difference from 1", "epochs", "seconds", "parameters", "MB"),
        rows,
        f"{report['part']} part: {report['users']:,} common users",
        "mean over users [95 % bootstrap interval]; differences are paired by user",
    )


def _slices(report: dict[str, Any], metric: str) -> str:
    rows = []
    for name, group in report["slices"].items():
        if metric not in group["runs"][0]["metrics"]:  # as the AUC of users without negatives
            continue
        cells = [
            figure(run["metrics"][metric])
            + (f", {signed_with_interval(run['difference'][metric])}" if run["difference"] else "")
            for run in group["runs"]
        ]
        rows.append((name, f"{group['users']:,}", *cells))
    return text_table(
        ("slice", "users", *_numbers(report)), rows, f"slices: {metric}, and the difference from 1"
    )


def _settings(report: dict[str, Any]) -> str:
    rows = (
        (name, *("" if value is None else str(value) for value in values))
        for name, values in report["settings"].items()
    )
    return text_table(("setting", *_numbers(report)), rows, "settings that differ")


def _numbers(report: dict[str, Any]) -> list[str]:
    return [str(number + 1) for number in range(len(report["runs"]))]
