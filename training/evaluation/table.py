"""Evaluations, comparisons of runs and trainings of several seeds as text."""

from collections.abc import Iterator, Mapping, Sequence
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
from turret.tower.slots import SLOTS, slot_metric
from turret.training.evaluation.evaluation import SLICED, TOWERS

Report = dict[str, Any]
_TWINS = {"recall": "hr", "map": "mrr"}


def metrics_table(report: Report) -> str:
    """Tables of metrics with their intervals, of several baselines, and of slices at the smallest k.

    For several seeds, a table has the mean and deviation of each metric, another the main metric by seed.
    """
    seeds = report.get("seeds")
    rankers = [TOWERS, *report["differences"]] if seeds else [TOWERS, "popularity"]
    subjects = next((name for name in ("queries", "baskets") if report.get(name)), "users")
    title = f"{report['part']} part: {report['users']:,} {subjects}, "
    if seeds:
        title, caption = (
            f"{title}{len(seeds)} seeds",
            "mean over users and seeds ± standard deviation of seeds",
        )
    else:
        title, caption = (
            f"{title}{report['items']:,} items ranked",
            f"mean over {subjects} [95 % interval]",
        )
    if report.get("relevant_masked"):
        caption += (
            f"\n{report['relevant_masked']:,} of {report['relevant_items']:,} targets were used before "
            "and are masked, so they are no hits; evaluation.exclude_seen = false ranks them too"
        )

    def cell(value: Any) -> str:
        if not seeds:
            return with_interval(value)
        return figure(value) + (f" ± {figure(value['deviation'])}" if value["deviation"] else "")

    shown = distinct_metrics([report[ranker] for ranker in rankers])
    rows = [
        (" = ".join([name, *equal]), *(cell(report[ranker][name]) for ranker in rankers))
        for name, equal in shown.items()
        if " " not in name
    ]
    tables = [text_table(("metric", *rankers), rows, title, caption, width=max(WIDTH, 20 * len(rankers)))]
    if seeds:
        tables.append(seeds_table(seeds, {report["metric"]: report[TOWERS][report["metric"]]}, TOWERS))
    elif len(report.get("differences", {})) > 1:
        tables.append(_baselines(report))
    if report.get("slots"):
        tables.append(_slots(report))
    if "slices" in report and subjects != "queries":  # slices are by histories, which queries don't have
        tables.append(_slices(report))
    return "\n".join(tables)


def distinct_metrics(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The metrics to show, each with those that are equal to it in every summary.

    With one target per user, HR and recall are the same, and so are MRR and MAP: only these are compared.
    """
    shown: dict[str, list[str]] = {}
    for name in summaries[0]:
        kind, _, k = name.partition("@")
        slot, space, kind = kind.rpartition(" ")
        twin = f"{slot}{space}{_TWINS.get(kind)}@{k}"
        if twin in shown and all(each[name] == each[twin] for each in summaries):
            shown[twin].append(name)
        else:
            shown[name] = []
    return shown


def _baselines(report: Report) -> str:
    """Every ranker at the smallest k, and the paired difference of the towers from it."""
    k = next(iter(report[TOWERS])).partition("@")[2]
    ndcg, gains = f"ndcg@{k}", report["differences"]
    rows = [
        (
            name,
            *(figure(report[name][metric]) for metric in (f"recall@{k}", ndcg)),
            signed_with_interval(gains[name][ndcg]) if name in gains else "",
        )
        for name in (TOWERS, *gains)
    ]
    return text_table(("ranker", f"recall@{k}", ndcg, f"{ndcg}: towers minus it"), rows, "baselines")


def _slots(report: Report) -> str:
    """Every ranker in each half of an answer, and the paired difference of the towers from it."""
    ndcg = f"ndcg@{next(iter(report[TOWERS])).partition('@')[2]}"
    names = [slot_metric(slot, ndcg) for slot in report["slots"]]
    rows = [
        (
            ranker,
            *(
                cell
                for name in names
                for cell in (
                    figure(report[ranker][name]),
                    signed_with_interval(report["differences"][ranker][name]) if ranker != TOWERS else "",
                )
            ),
        )
        for ranker in (TOWERS, *report["differences"])
    ]
    columns = [column for name in names for column in (name, "towers minus it")]
    return text_table(("ranker", *columns), rows, "used items (again) and others (new)", _shares(report))


def _shares(report: Report) -> str:
    """How many of the targets, and of the users, are in each half of an answer."""
    return ", ".join(
        f"{slot}: {size['share']:.0%} of the targets, {size['users']:,} users"
        for slot, size in report["slots"].items()
    )


def _slices(report: Report) -> str:
    k = next(iter(report[TOWERS])).partition("@")[2]
    rankers = [name for name in SLICED if name in report]
    metrics = (f"hr@{k}", f"ndcg@{k}") if len(rankers) == 2 else (f"ndcg@{k}",)
    columns = [(metric, ranker) for metric in metrics for ranker in rankers]
    rows = [
        (group, f"{values['users']:,}", *(figure(values[ranker][metric]) for metric, ranker in columns))
        for group, values in report["slices"].items()
    ]
    return text_table(("slice", "users", *map(" ".join, columns)), rows, "slices")


def seeds_table(seeds: Sequence[int], figures: Mapping[str, Any], title: str) -> str:
    """A table with one row per seed and its figures, then mean and deviation."""
    rows: list[list[str] | None] = [
        [str(seed), *(_number(spread["values"][index]) for spread in figures.values())]
        for index, seed in enumerate(seeds)
    ]
    rows += [None, ["mean", *(_number(spread["mean"]) for spread in figures.values())]]
    if len(seeds) > 1:
        rows.append(["deviation", *(_number(spread["deviation"]) for spread in figures.values())])
    return text_table(("seed", *figures), rows, title)


def _number(value: float) -> str:
    return figure(value) if abs(value) < 1 else f"{value:,.1f}"


def comparison_table(report: Report, metric: str) -> str:
    """A table of the runs by one metric, their baselines, slices, and the settings that differ."""
    runs = {str(number): run for number, run in enumerate(report["runs"], start=1)}
    rows = [
        (
            number,
            with_interval(run["metrics"][metric]),
            signed_with_interval(run["difference"][metric]) if run["difference"] else "",
            *(count(run[name]) for name in ("epochs", "seconds", "parameters")),
            f"{run['bytes'] / 1e6:.1f}",
        )
        for number, run in runs.items()
    ]
    parts = [
        text_table(
            ("run", metric, "difference from 1", "epochs", "seconds", "parameters", "MB"),
            rows,
            f"{report['part']} part: {report['users']:,} common users",
            "mean over users [95 % interval]; differences are paired by user",
        )
    ]
    for number, run in runs.items():
        seeds = ""
        if run["seeds"] is not None:
            deviation = run["deviation"][metric]
            ending = "" if deviation is None else f", standard deviation of {metric} {deviation:.4f}"
            seeds = f" (mean of {len(run['seeds'])} seeds{ending})"
        parts.append(f"{number}: {run['run']}{seeds}")
        if run["baseline"]:
            parts.append(f"   {run['baseline']['sentence']}")
    parts += _parts_of_users(report, runs, metric)
    parts.append(_settings_that_differ(report["settings"], [*runs]))
    if not report["same_data"]:
        parts.append(
            "The runs were trained on different data: differences are those of data and settings together, "
            "over the users that all evaluations have."
        )
    return "\n".join(parts)


def _parts_of_users(report: Report, runs: Mapping[str, Report], metric: str) -> Iterator[str]:
    """A table of the two halves of the answers, and a table of the slices, where the report has them."""
    measured = report["runs"][0]["metrics"]
    slots = [name for slot in SLOTS if (name := slot_metric(slot, metric)) in measured]
    if slots:
        in_slots = [(name, *(_with_difference(run, name) for run in runs.values())) for name in slots]
        title = "used items (again) and others (new), and the difference from 1"
        yield text_table(("slot", *runs), in_slots, title, _shares(report))
    if report["slices"]:
        slices = [
            (name, f"{group['users']:,}", *(_with_difference(run, metric) for run in group["runs"]))
            for name, group in report["slices"].items()
            if metric in group["runs"][0]["metrics"]  # users without negatives have no AUC
        ]
        yield text_table(("slice", "users", *runs), slices, f"slices: {metric}, and the difference from 1")


def _settings_that_differ(settings: Mapping[str, Sequence[object]], runs: Sequence[str]) -> str:
    if not settings:
        return "The runs have the same settings."
    rows = [
        (name, *("" if value is None else str(value) for value in values))
        for name, values in settings.items()
    ]
    return text_table(("setting", *runs), rows, "settings that differ")


def _with_difference(run: Report, metric: str) -> str:
    gain = f", {signed_with_interval(run['difference'][metric])}" if run["difference"] else ""
    return figure(run["metrics"][metric]) + gain


def verdict_text(report: Report) -> str:
    """The sentences of the verdict of a report, one per paragraph."""
    lines = (paragraph(finding["sentence"], "- ", "  ") for finding in report["verdict"])
    return "\n".join(["verdict", *lines])
