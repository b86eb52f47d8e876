"""Coverage and popularity bias."""

from itertools import pairwise

from turret.training.inspection.exposure import Exposure, Spread
from turret.training.markup import numbers
from turret.training.markup.elements import Child, Html, element, joined
from turret.training.markup.share_chart import Bars, share_chart
from turret.training.markup.tables import Column, numeric, table


def exposure_section(found: Exposure, k: int) -> Html:
    """A table of coverage and concentration, and the shares of each tenth of the catalog."""
    named = {
        "recommended": ("recommendations", found.recommended, "c1"),
        "targets": ("items that came", found.targets, "c2"),
        "events": ("training events", found.events, "other"),
    }
    columns = [
        *(Column("distribution of"), numeric("items with at least one"), numeric("Gini coefficient")),
        *(numeric("in the most popular tenth"), numeric("mean popularity")),
    ]
    rows = [_row(label, spread) for label, spread, _ in named.values()]
    bars = [Bars(label, spread.shares, style) for label, spread, style in named.values()]
    groups = _groups(len(found.events.shares))
    chart = share_chart(f"Share by popularity of the item, first {k}", "items", groups, bars)
    note = (
        "The catalog is cut into tenths of equally many items, from the most popular in training on. A Gini "
        "coefficient of 0 means that all items occur equally often, one near 1 that few have nearly all "
        "occurrences. The mean popularity is the mean number of training events of an item that occurs. "
        "Recommendations far above the items that came, in the first tenth, are a popularity bias."
    )
    return joined(table(columns, rows, marked=(0,)), chart, element("p", note, class_="note"))


def _row(label: str, spread: Spread) -> list[Child]:
    return [
        label,
        numbers.share(spread.coverage),
        f"{spread.gini:.3f}",
        numbers.share(spread.shares[0]),
        numbers.count(spread.popularity),
    ]


def _groups(count: int) -> list[str]:
    """Labels such as "top 10 %" and "10 to 20 %"."""
    edges = [round(100 * number / count) for number in range(count + 1)]
    return [f"top {high} %" if not low else f"{low} to {high} %" for low, high in pairwise(edges)]
