"""A comparison of runs as text tables."""

from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from turret.training.evaluation.table import WIDTH


def comparison_table(report: dict[str, Any], metric: str) -> str:
    """A table of the runs by one metric, and one of the settings that differ."""
    text = StringIO()
    console = Console(file=text, width=WIDTH)
    console.print(_runs(report, metric))
    for number, run in enumerate(report["runs"], start=1):
        console.print(f"{number}: {run['run']}{_seeds(run, metric)}", soft_wrap=True, highlight=False)
        if run["baseline"]:
            console.print(f"   {run['baseline']['sentence']}", soft_wrap=True, highlight=False)
    if report["slices"]:
        console.print(_slices(report, metric))
    if report["settings"]:
        console.print(_settings(report))
    else:
        console.print("The runs have the same settings.")
    if not report["same_data"]:
        console.print(
            "The runs were trained on different data: differences are those of data and settings together, "
            "over the users that all evaluations have."
        )
    return text.getvalue().rstrip()


def _seeds(run: dict[str, Any], metric: str) -> str:
    """The number of seeds that a run is the mean of, and their deviation."""
    if run["seeds"] is None:
        return ""
    deviation = run["deviation"][metric]
    spread = "" if deviation is None else f", standard deviation of {metric} {deviation:.4f}"
    return f" (mean of {len(run['seeds'])} seeds{spread})"


def _runs(report: dict[str, Any], metric: str) -> Table:
    table = Table(
        title=f"{report['part']} part: {report['users']:,} common users",
        caption="mean over users [95 % bootstrap interval]; differences are paired by user",
    )
    headings = ("run", metric, "difference from 1", "epochs", "seconds", "parameters", "MB")
    for heading in headings:
        table.add_column(heading, justify="right")
    for number, run in enumerate(report["runs"], start=1):
        value, difference = run["metrics"][metric], run["difference"]
        table.add_row(
            str(number),
            f"{value['mean']:.4f} [{value['low']:.4f}, {value['high']:.4f}]",
            _difference(difference[metric]) if difference else "",
            _count(run["epochs"]),
            _count(run["seconds"]),
            _count(run["parameters"]),
            f"{run['bytes'] / 1e6:.1f}",
        )
    return table


def _difference(value: dict[str, float]) -> str:
    return f"{value['mean']:+.4f} [{value['low']:+.4f}, {value['high']:+.4f}]"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _slices(report: dict[str, Any], metric: str) -> Table:
    table = Table(title=f"slices: {metric}, and the difference from 1")
    table.add_column("slice")
    for heading in ("users", *map(str, range(1, len(report["runs"]) + 1))):
        table.add_column(heading, justify="right")
    for name, group in report["slices"].items():
        if metric not in group["runs"][0]["metrics"]:  # as the AUC of users without negatives
            continue
        cells = [
            f"{run['metrics'][metric]['mean']:.4f}"
            + (f", {_difference(run['difference'][metric])}" if run["difference"] else "")
            for run in group["runs"]
        ]
        table.add_row(name, f"{group['users']:,}", *cells)
    return table


def _settings(report: dict[str, Any]) -> Table:
    table = Table(title="settings that differ")
    table.add_column("setting")
    for number in range(1, len(report["runs"]) + 1):
        table.add_column(str(number), justify="right")
    for name, values in report["settings"].items():
        table.add_row(name, *("" if value is None else str(value) for value in values))
    return table
