"""Evaluation reports as text tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from turret.data.text import figure, signed_with_interval, text_table, with_interval
from turret.training.evaluation.evaluation import SLICED

_TWINS = {"recall": "hr", "map": "mrr"}


def metrics_table(report: dict[str, Any]) -> str:
    """Tables of metrics with their intervals, of several baselines, and of slices at the smallest k."""
    rankers = ("towers", "popularity")
    asked = "queries" if report.get("queries") else "users"
    caption = f"mean over {asked} [95 % bootstrap interval]"
    if report["relevant_masked"]:
        caption += (
            f"\n{report['relevant_masked']:,} of {report['relevant_items']:,} targets were used before "
            "and are masked, so they are no hits; evaluation.exclude_seen = false ranks them too"
        )
    overall = text_table(
        ("metric", *rankers),
        (
            (" = ".join([name, *equal]), *(with_interval(report[ranker][name]) for ranker in rankers))
            for name, equal in distinct_metrics([report[ranker] for ranker in rankers]).items()
        ),
        f"{report['part']} part: {report['users']:,} {asked}, {report['items']:,} items ranked",
        caption,
    )
    baselines = [_baselines(report)] if len(report.get("differences", {})) > 1 else []
    # Slices are by histories, and queries have none.
    return "\n".join([overall, *baselines, *([] if report.get("queries") else [_slices(report)])])


def distinct_metrics(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The metrics to show, each with those that are equal to it in every summary.

    With one target a user, HR and recall are the same, and so are MRR and MAP: only these are compared.
    """
    shown: dict[str, list[str]] = {}
    for name in summaries[0]:
        kind, _, k = name.partition("@")
        twin = f"{_TWINS.get(kind)}@{k}"
        if twin in shown and all(each[name] == each[twin] for each in summaries):
            shown[twin].append(name)
        else:
            shown[name] = []
    return shown


def _baselines(report: dict[str, Any]) -> str:
    """Every ranker at the smallest k, and the paired difference of the towers from it."""
    k = next(iter(report["towers"])).partition("@")[2]
    ndcg, gains = f"ndcg@{k}", report["differences"]
    return text_table(
        ("ranker", f"recall@{k}", ndcg, f"{ndcg}: towers minus it"),
        (
            (
                name,
                *(figure(report[name][metric]) for metric in (f"recall@{k}", ndcg)),
                signed_with_interval(gains[name][ndcg]) if name in gains else "",
            )
            for name in ("towers", *gains)
        ),
        "baselines",
    )


def _slices(report: dict[str, Any]) -> str:
    k = next(iter(report["towers"])).partition("@")[2]
    rankers = [name for name in SLICED if name in report]
    metrics = (f"hr@{k}", f"ndcg@{k}") if len(rankers) == 2 else (f"ndcg@{k}",)
    columns = [(metric, ranker) for metric in metrics for ranker in rankers]
    return text_table(
        ("slice", "users", *map(" ".join, columns)),
        (
            (group, f"{values['users']:,}", *(figure(values[ranker][metric]) for metric, ranker in columns))
            for group, values in report["slices"].items()
        ),
        "slices",
    )
