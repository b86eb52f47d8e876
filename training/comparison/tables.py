"""Comparisons, several seeds and verdicts as text."""

from typing import Any

from turret.data.text import (
    WIDTH,
    count,
    figure,
    paragraph,
    signed_with_interval,
    text_table,
    with_interval,
)
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.table import distinct_metrics


def paragraphs(report: dict[str, Any]) -> str:
    """The sentences of the verdict of a report, one a paragraph."""
    lines = (paragraph(finding["sentence"], "- ", "  ") for finding in report["verdict"])
    return "\n".join(["verdict", *lines])


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
