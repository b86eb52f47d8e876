"""Metrics for groups of users: by the length of their history, and by their target."""

from typing import Any

from turret.training.evaluation.evaluation import SLICED
from turret.training.inspection.compared import SliceComparison
from turret.training.markup import numbers
from turret.training.markup.elements import Child, Html, element, joined
from turret.training.markup.interval import Scale, interval_line
from turret.training.markup.tables import Column, numeric, quiet, table
from turret.training.pages.shown import ranker_title

NOTE = (
    "Slices are by the number of events in the history, and by the popularity of the first target: head, "
    "torso and tail items hold a third of the training events each, cold items have none. "
    "Where targets repeat used items, two more tell whether the user had used the first target before."
)


def slice_table(report: dict[str, Any], metric: str) -> Html:
    """One metric of the run, of popularity, and of the baselines of own use in each slice."""
    slices: dict[str, dict[str, Any]] = report["slices"]
    known = {name: values for name, values in slices.items() if metric in values["towers"]}
    scale = Scale.of(values["towers"][metric] for values in known.values())
    others = [name for name in SLICED[1:] if name in report]
    rows: list[list[Child]] = []
    for name, values in known.items():
        own = values["towers"][metric]
        line = interval_line(own, scale)
        row: list[Child] = [
            name,
            numbers.count(values["users"]),
            numbers.metric(own),
            numbers.interval(own),
            line,
        ]
        for other in others:
            row += [numbers.metric(values[other][metric]), numbers.interval(values[other][metric])]
        rows.append(row)
    columns = [Column("slice"), numeric("users"), numeric("this run"), quiet("95 % interval"), quiet("")]
    for other in others:
        columns += [numeric(ranker_title(other)), quiet("95 % interval")]
    return joined(table(columns, rows, f"{metric} in each slice"), element("p", NOTE, class_="note"))


def compared_slices(slices: list[SliceComparison], metric: str) -> Html:
    """One metric of several runs in each slice, with paired differences to the first."""
    count = len(slices[0].metrics)
    columns = [Column("slice"), numeric("users"), numeric("1")]
    for number in range(2, count + 1):
        columns += [numeric(str(number)), numeric("minus 1"), quiet("paired 95 % interval")]
    rows: list[list[Child]] = []
    for one in slices:
        row: list[Child] = [one.name, numbers.count(one.users)]
        for value, gain in zip(one.metrics, one.differences, strict=True):
            row.append(numbers.metric(value) if value else "")
            if gain is not None:
                row += [signed(gain), numbers.difference_interval(gain)]
        rows.append(row)
    return joined(table(columns, rows, f"{metric} in each slice"), element("p", NOTE, class_="note"))


def signed(value: dict[str, float]) -> Html:
    """A paired difference, coloured where its interval excludes zero."""
    style = "good" if value["low"] > 0 else "bad" if value["high"] < 0 else None
    return element("span", numbers.difference(value), class_=style)
