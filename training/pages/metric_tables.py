"""The metrics of a run beside its baselines."""

from collections.abc import Sequence
from typing import Any

from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.table import distinct_metrics
from turret.training.inspection.evaluations import best_baseline
from turret.training.markup import numbers
from turret.training.markup.elements import Html, element, joined
from turret.training.markup.interval import Scale, interval_line
from turret.training.markup.tables import Column, numeric, quiet, table
from turret.training.pages.shown import metrics_at_k, ranker_title


def metric_tables(report: dict[str, Any], metric: str, k: int) -> Html:
    """The main metric of every ranker with paired differences, then all metrics at `k`, then all others."""
    rankers = _by_mean(report, metric)
    every = [name for name in report[TOWERS] if not name.startswith("coverage")]
    own = metrics_at_k(every, k)
    others = [name for name in every if name not in own]
    parts = [
        _main_table(report, metric, rankers),
        _all_metrics(report, own, rankers, f"All metrics at k = {k}"),
    ]
    if others:
        closed = _all_metrics(report, others, rankers, "Metrics at the other cut-offs")
        parts.append(element("details", element("summary", "Other cut-offs"), closed))
    return joined(*parts, element("p", _note(report), class_="note"))


def _by_mean(report: dict[str, Any], metric: str) -> list[str]:
    """The run, then the baselines from the best."""
    names = sorted(report["differences"], key=lambda name: -report[name][metric]["mean"])
    return [TOWERS, *names]


def _main_table(report: dict[str, Any], metric: str, rankers: Sequence[str]) -> Html:
    scale = Scale.of(report[name][metric] for name in rankers)
    gains = {name: values[metric] for name, values in report["differences"].items()}
    gain_scale = Scale.of(gains.values())
    rows = []
    for name in rankers:
        value, gain = report[name][metric], gains.get(name)
        is_own = name == TOWERS
        paired = (
            (numbers.difference(gain), numbers.difference_interval(gain), interval_line(gain, gain_scale))
            if gain
            else ("", "", "")
        )
        line = interval_line(value, scale, is_own)
        rows.append([ranker_title(name), numbers.metric(value), numbers.interval(value), line, *paired])
    columns = [
        *(Column("ranker"), numeric(metric), quiet("95 % interval"), quiet("")),
        *(numeric("this run minus it"), quiet("paired 95 % interval"), quiet("")),
    ]
    best = ranker_title(best_baseline(report, metric))
    return table(columns, rows, f"{metric} on the {report['part']} part; the best baseline is {best}", (0,))


def _all_metrics(report: dict[str, Any], names: Sequence[str], rankers: Sequence[str], caption: str) -> Html:
    summaries = [{name: report[ranker][name] for name in names} for ranker in rankers]
    columns = [Column("metric"), *(numeric(ranker_title(ranker)) for ranker in rankers)]
    rows = []
    for name, equal in distinct_metrics(summaries).items():
        cells = [two_lines(report[ranker][name]) for ranker in rankers]
        rows.append([" = ".join([name, *equal]), *cells])
    cut_offs = [name.partition("@")[2] for name in names if "@" in name]
    for k in dict.fromkeys(cut_offs):
        shares = [numbers.metric(report[ranker][f"coverage@{k}"]) for ranker in rankers]
        rows.append([f"coverage@{k}", *shares])
    return table(columns, rows, caption)


def two_lines(value: dict[str, float]) -> Html:
    """A mean with its interval below it."""
    return joined(numbers.metric(value), element("br"), element("span", numbers.interval(value), class_="q"))


def _note(report: dict[str, Any]) -> str:
    masked = ""
    if report["exclude_seen"] and report["relevant_used_before"]:
        masked = (
            f" {report['relevant_used_before']:,} of {report['relevant_items']:,} targets were used before "
            "and are masked, so they are no hits."
        )
    return (
        "Means over users with 95 % bootstrap intervals; differences are paired by user. The whole catalog "
        f"of {report['items']:,} items is ranked.{masked}"
    )
