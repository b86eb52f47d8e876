"""The figures of several seeds as text tables."""

from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.table import WIDTH, distinct_metrics


def training_table(summary: dict[str, Any]) -> str:
    """A row a seed with the figures of its training, then mean and deviation."""
    return _by_seed(summary["finished"], summary["training"], "training")


def evaluation_table(report: dict[str, Any]) -> str:
    """Mean and deviation of each metric, then a row a seed with the main metric of the towers."""
    text = StringIO()
    rankers = [TOWERS, *report["differences"]]
    title = f"{report['part']} part: {report['users']:,} users, {len(report['seeds'])} seeds"
    table = Table(title=title, caption="mean over users and seeds ± standard deviation of seeds")
    for heading in ("metric", *rankers):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name, equal in distinct_metrics([report[ranker] for ranker in rankers]).items():
        table.add_row(" = ".join([name, *equal]), *(_shown(report[ranker][name]) for ranker in rankers))
    Console(file=text, width=max(WIDTH, 20 * len(rankers))).print(table)
    metric = report["metric"]
    return text.getvalue() + _by_seed(report["seeds"], {metric: report[TOWERS][metric]}, TOWERS)


def _by_seed(seeds: list[int], figures: dict[str, Any], title: str) -> str:
    text = StringIO()
    table = Table(title=title)
    for heading in ("seed", *figures):
        table.add_column(heading, justify="right")
    for index, seed in enumerate(seeds):
        table.add_row(str(seed), *(_number(one["values"][index]) for one in figures.values()))
    table.add_section()
    table.add_row("mean", *(_number(one["mean"]) for one in figures.values()))
    if len(seeds) > 1:
        table.add_row("deviation", *(_number(one["deviation"]) for one in figures.values()))
    Console(file=text, width=WIDTH).print(table)
    return text.getvalue().rstrip()


def _shown(value: dict[str, Any]) -> str:
    deviation = value["deviation"]
    return f"{value['mean']:.4f}" + (f" ± {deviation:.4f}" if deviation else "")


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1 else f"{value:,.1f}"
