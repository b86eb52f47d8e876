"""Evaluation reports as text tables."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from turret.training.evaluation.evaluation import SLICED

WIDTH = 100


def metrics_table(report: dict[str, Any]) -> str:
    """Tables of metrics with their intervals, of several baselines, and of slices at the smallest k."""
    text = StringIO()
    console = Console(file=text, width=WIDTH)
    console.print(_overall(report))
    if len(report.get("differences", {})) > 1:
        console.print(_baselines(report))
    console.print(_slices(report))
    return text.getvalue().rstrip()


def _overall(report: dict[str, Any]) -> Table:
    title = f"{report['part']} part: {report['users']:,} users, {report['items']:,} items ranked"
    table = Table(title=title, caption=_caption(report))
    for heading in ("metric", "towers", "popularity"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name, equal in distinct_metrics([report["towers"], report["popularity"]]).items():
        cells = [_shown(report[ranker][name]) for ranker in ("towers", "popularity")]
        table.add_row(" = ".join([name, *equal]), *cells)
    return table


def distinct_metrics(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The metrics to show, each with those that are equal to it in every summary.

    With one target a user, HR and recall are the same: only these are compared.
    """
    shown: dict[str, list[str]] = {}
    for name in summaries[0]:
        kind, _, k = name.partition("@")
        twin = f"hr@{k}"
        if kind == "recall" and twin in shown and all(each[name] == each[twin] for each in summaries):
            shown[twin].append(name)
        else:
            shown[name] = []
    return shown


def _baselines(report: dict[str, Any]) -> Table:
    """Every ranker at the smallest k, and the paired difference of the towers from it."""
    k = next(iter(report["towers"])).partition("@")[2]
    table = Table(title="baselines")
    for heading in ("ranker", f"recall@{k}", f"ndcg@{k}", f"ndcg@{k}: towers minus it"):
        table.add_column(heading, justify="left" if heading == "ranker" else "right")
    for name in ("towers", *report["differences"]):
        cells = [f"{report[name][metric]['mean']:.4f}" for metric in (f"recall@{k}", f"ndcg@{k}")]
        difference = report["differences"].get(name, {}).get(f"ndcg@{k}")
        table.add_row(name, *cells, _signed(difference) if difference else "")
    return table


def _signed(value: Mapping[str, float]) -> str:
    return f"{value['mean']:+.4f} [{value['low']:+.4f}, {value['high']:+.4f}]"


def _caption(report: dict[str, Any]) -> str:
    """The meaning of the values, and the number of targets that are masked."""
    caption = "mean over users [95 % bootstrap interval]"
    if report["exclude_seen"] and report["relevant_used_before"]:
        caption += (
            f"\n{report['relevant_used_before']:,} of {report['relevant_items']:,} targets were used before "
            "and are masked, so they are no hits; evaluation.exclude_seen = false ranks them too"
        )
    return caption


def _slices(report: dict[str, Any]) -> Table:
    k = next(iter(report["towers"])).partition("@")[2]
    rankers = [name for name in SLICED if name in report]
    metrics = (f"hr@{k}", f"ndcg@{k}") if len(rankers) == 2 else (f"ndcg@{k}",)
    columns = [(metric, ranker) for metric in metrics for ranker in rankers]
    table = Table(title="slices")
    for heading in ("slice", "users", *map(" ".join, columns)):
        table.add_column(heading, justify="left" if heading == "slice" else "right")
    for group, values in report["slices"].items():
        means = (values[ranker][metric]["mean"] for metric, ranker in columns)
        table.add_row(group, f"{values['users']:,}", *(f"{mean:.4f}" for mean in means))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value['mean']:.4f} [{value['low']:.4f}, {value['high']:.4f}]"
