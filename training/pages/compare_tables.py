"""The tables of a page about several runs."""

from collections.abc import Sequence
from typing import Any

from turret.training.evaluation.table import distinct_metrics
from turret.training.markup import numbers
from turret.training.markup.elements import Child, Html, element, joined
from turret.training.markup.interval import Scale, interval_line
from turret.training.markup.tables import Column, numeric, quiet, table
from turret.training.pages.metric_tables import two_lines
from turret.training.pages.shown import metrics_at_k
from turret.training.pages.slice_tables import signed
from turret.training.pages.summary import whole


def summary_of_runs(report: dict[str, Any], labels: Sequence[str], metric: str) -> Html:
    """The main metric of every run, its paired difference to the first, and a sentence for each."""
    runs = report["runs"]
    scale = Scale.of(run["metrics"][metric] for run in runs)
    gain_scale = Scale.of(run["difference"][metric] for run in runs[1:])
    rows: list[list[Child]] = []
    for label, run in zip(labels, runs, strict=True):
        value, gain = run["metrics"][metric], (run["difference"] or {}).get(metric)
        row: list[Child] = [
            label,
            numbers.metric(value),
            numbers.interval(value),
            interval_line(value, scale),
        ]
        if gain is None:
            row += ["", "", ""]
        else:
            row += [signed(gain), numbers.difference_interval(gain), interval_line(gain, gain_scale)]
        rows.append(row)
    columns = [
        *(Column("run"), numeric(metric), quiet("95 % interval"), quiet("")),
        *(numeric("minus 1"), quiet("paired 95 % interval"), quiet("")),
    ]
    caption = f"{metric} on the {report['part']} part, {report['users']:,} users"
    verdicts = [
        element("li", _verdict(label, run, metric)) for label, run in zip(labels[1:], runs[1:], strict=True)
    ]
    verdicts += [
        element("li", f"Run {label}: {run['baseline']['sentence']}")
        for label, run in zip(labels, runs, strict=True)
        if run["baseline"]
    ]
    note = (
        "Differences are paired by user; one whose interval excludes zero is coloured. Intervals are over "
        "users, and do not contain the noise of training between seeds."
    )
    return joined(
        table(columns, rows, caption),
        element("ul", verdicts, class_="findings"),
        element("p", note, class_="note"),
    )


def _verdict(label: str, run: dict[str, Any], metric: str) -> Html:
    gain = run["difference"][metric]
    result = (
        "better than"
        if gain["low"] > 0
        else "worse than"
        if gain["high"] < 0
        else "not clearly different from"
    )
    return joined(
        f"Run {label} is {result} run 1: {metric} differs by {numbers.difference(gain)}, 95 % interval over "
        "paired users ",
        whole(numbers.difference_interval(gain)),
        f".{_seeds(run, metric)}",
    )


def _seeds(run: dict[str, Any], metric: str) -> str:
    if run["seeds"] is None:
        return ""
    deviation = run["deviation"][metric]
    spread = "" if deviation is None else f", standard deviation {deviation:.4f}"
    return f" It is the mean of {len(run['seeds'])} seeds{spread}."


def metrics_of_runs(report: dict[str, Any], labels: Sequence[str], k: int) -> Html:
    """All metrics at `k` with their intervals, and the differences to the first run below."""
    runs = report["runs"]
    names = metrics_at_k(list(runs[0]["metrics"]), k)
    shown = distinct_metrics([{name: run["metrics"][name] for name in names} for run in runs])
    titles = {name: " = ".join([name, *equal]) for name, equal in shown.items()}
    columns = [Column("metric"), *(numeric(label) for label in labels)]
    means = [[title, *(two_lines(run["metrics"][name]) for run in runs)] for name, title in titles.items()]
    differences = [
        [title, *(_paired(run["difference"][name]) for run in runs[1:])] for name, title in titles.items()
    ]
    others = [columns[0], *columns[2:]]
    return element(
        "div",
        table(columns, means, f"Metrics at k = {k}, with 95 % intervals"),
        table(others, differences, f"Paired differences from {labels[0]}, with 95 % intervals"),
        class_="beside",
    )


def _paired(value: dict[str, float]) -> Html:
    interval = element("span", numbers.difference_interval(value), class_="q")
    return joined(signed(value), element("br"), interval)


def cost_table(report: dict[str, Any], labels: Sequence[str]) -> Html:
    """Epochs, steps, time and size of every run."""
    columns = [Column("run"), *map(numeric, ("epochs", "steps", "seconds", "parameters", "MB"))]
    rows = []
    for label, run in zip(labels, report["runs"], strict=True):
        counts = [numbers.count(run[name]) for name in ("epochs", "steps", "seconds", "parameters")]
        rows.append([label, *counts, f"{run['bytes'] / 1e6:.1f}"])
    return table(columns, rows)


def settings_table(report: dict[str, Any]) -> Html:
    """The settings whose values are not the same in all runs."""
    if not report["settings"]:
        return element("p", "The runs have the same settings.")
    columns = [Column("setting"), *(numeric(str(number + 1)) for number in range(len(report["runs"])))]
    rows = [
        [element("code", name), *("" if value is None else str(value) for value in values)]
        for name, values in report["settings"].items()
    ]
    return table(columns, rows)
