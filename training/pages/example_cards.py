"""Cards with the history of a user, the recommended items, and those that came."""

from collections.abc import Sequence

from turret.training.inspection.examples import Example
from turret.training.inspection.item_names import ItemNames
from turret.training.markup import numbers
from turret.training.markup.elements import Html, element, joined
from turret.training.pages.shown import item_name

# Longer lists are read by nobody.
MOST_SHOWN = 10


def example_cards(examples: Sequence[Example], names: ItemNames, k: int, hit_rate: float) -> Html:
    """One card a user."""
    hits = sum(any(one.hits) for one in examples)
    note = (
        f"{len(examples)} users drawn at random, {hits} of them with a hit among the first {k}; "
        f"{numbers.share(hit_rate)} of all users have one. A hit is coloured; the rank of an item that came "
        "is its rank in the whole catalog."
    )
    cards = [_card(one, names, k) for one in examples]
    return joined(element("p", note), element("div", cards, class_="examples"))


def _card(example: Example, names: ItemNames, k: int) -> Html:
    left = [element("h4", _history_heading(example)), _history(example, names)]
    left += [element("h4", _target_heading(example)), _targets(example, names, k)]
    right = [element("h4", "recommended"), _recommended(example, names)]
    columns = element("div", element("div", left), element("div", right), class_="columns")
    return element("div", element("h3", f"user {str(example.user)[:80]}"), columns, class_="example")


def _history_heading(example: Example) -> str:
    if not example.history:
        return "no history: popular items"
    events = f"{example.history_length:,} event{'' if example.history_length == 1 else 's'}"
    newest = f", the newest {len(example.history)}" if example.history_length > len(example.history) else ""
    return f"history: {events}{newest}"


def _history(example: Example, names: ItemNames) -> Html:
    return element(
        "ul", [element("li", item_name(names.item(row))) for row in example.history], class_="items"
    )


def _target_heading(example: Example) -> str:
    more = example.target_count - len(example.targets)
    return f"came next (and {more:,} more)" if more else "came next"


def _targets(example: Example, names: ItemNames, k: int) -> Html:
    lines = []
    for row, rank in zip(example.targets, example.target_ranks, strict=True):
        place = "used before" if rank is None else f"rank {rank:,}"
        is_hit = rank is not None and rank <= k
        end = element("span", place, class_="end")
        lines.append(element("li", item_name(names.item(row)), end, class_="hit" if is_hit else None))
    return element("ul", lines, class_="items")


def _recommended(example: Example, names: ItemNames) -> Html:
    lines = []
    for rank, (row, hit) in enumerate(zip(example.recommended, example.hits, strict=True), start=1):
        if rank <= MOST_SHOWN or hit:
            number = element("span", rank, class_="rank")
            lines.append(element("li", number, item_name(names.item(row)), class_="hit" if hit else None))
    return element("ol", lines, class_="items")
