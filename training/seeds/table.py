"""The figures of several seeds as text tables."""

from typing import Any

from turret.data.text import WIDTH, figure, text_table
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.table import distinct_metrics


def training_table(summary: dict[str, Any]) -> str:
    """A row a seed with the figures of its training, then mean and deviation."""
    return _by_seed(summary["finished"], summary["training"], "training")


def evaluation_table(report: dict[str, Any]) -> str:
    """Mean and deviation of each metric, then a row a seed with the main metric of the towers."""
    rankers = [TOWERS, *report["differences"]]
    metric = report["metric"]
    by_metric = text_table(
        ("metric", *rankers),
        (
            (" = ".join([name, *equal]), *(_with_deviation(report[ranker][name]) for ranker in rankers))
            for name, equal in distinct_metrics([report[ranker] for ranker in rankers]).items()
        ),
        f"{report['part']} part: {report['users']:,} users, {len(report['seeds'])} seeds",
        "mean over users and seeds ± standard deviation of seeds",
        width=max(WIDTH, 20 * len(rankers)),
    )
    return f"{by_metric}\n{_by_seed(report['seeds'], {metric: report[TOWERS][metric]}, TOWERS)}"


def _by_seed(seeds: list[int], figures: dict[str, Any], title: str) -> str:
    rows: list[list[str] | None] = [
        [str(seed), *(_number(one["values"][index]) for one in figures.values())]
        for index, seed in enumerate(seeds)
    ]
    rows += [None, ["mean", *(_number(one["mean"]) for one in figures.values())]]
    if len(seeds) > 1:
        rows.append(["deviation", *(_number(one["deviation"]) for one in figures.values())])
    return text_table(("seed", *figures), rows, title)


def _with_deviation(value: dict[str, Any]) -> str:
    deviation = value["deviation"]
    return figure(value) + (f" ± {figure(deviation)}" if deviation else "")


def _number(value: float) -> str:
    return figure(value) if abs(value) < 1 else f"{value:,.1f}"
