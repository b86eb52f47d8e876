"""The nearest items of popular and of rare items."""

from collections.abc import Sequence

from turret.training.inspection.item_names import ItemNames
from turret.training.inspection.nearest import Neighbours
from turret.training.markup.elements import Html, element, joined
from turret.training.pages.shown import item_name


def nearest_tables(popular: Sequence[Neighbours], rare: Sequence[Neighbours], names: ItemNames) -> Html:
    """A card for each item, popular ones first."""
    note = (
        "Similarities are inner products of item vectors, without biases. Neighbours of rare items that make "
        "no sense show that their vectors have seen too few events; features of the items help there."
    )
    return joined(
        element("h3", "Of the most popular items"),
        _cards(popular, names),
        *((element("h3", "Of rare items"), _cards(rare, names)) if rare else ()),
        element("p", note, class_="note"),
    )


def _cards(items: Sequence[Neighbours], names: ItemNames) -> Html:
    return element("div", [_card(one, names) for one in items], class_="examples near")


def _card(one: Neighbours, names: ItemNames) -> Html:
    events = f"{one.events:,} training event{'' if one.events == 1 else 's'}"
    lines = [
        element(
            "li", item_name(names.item(row), with_detail=True), element("span", f"{value:.2f}", class_="end")
        )
        for row, value in zip(one.nearest, one.similarities, strict=True)
    ]
    heading = element("h3", item_name(names.item(one.row), with_detail=True))
    return element(
        "div", heading, element("h4", events), element("ol", lines, class_="items"), class_="example"
    )
