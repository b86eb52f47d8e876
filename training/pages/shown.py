"""The words that several sections use: metrics, rankers, findings and items."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turret.training.baselines.registry import BASELINES
from turret.training.evaluation.auc import AUC
from turret.training.evaluation.evaluation import TOWERS
from turret.training.inspection.item_names import NamedItem
from turret.training.markup.elements import Html, element, joined


def metrics_at_k(names: Iterable[str], k: int) -> list[str]:
    """The metrics at one cut-off, and the AUC, which has none."""
    return [name for name in names if name.endswith(f"@{k}") and not name.startswith("coverage")] + [
        name for name in names if name == AUC
    ]


def main_metric_at(names: Sequence[str], main: str, k: int) -> str:
    """The metric of training at the cut-off of the page; NDCG if that was not measured."""
    kind = main.partition("@")[0]
    wanted = main if main == AUC else f"{kind}@{k}"
    return wanted if wanted in names else f"ndcg@{k}"


def ranker_title(name: str) -> str:
    """A ranker as a table names it."""
    if name == TOWERS:
        return "this run"
    return BASELINES[name].title if name in BASELINES else name


def sentences(findings: Sequence[Mapping[str, Any]]) -> Html:
    """The sentences of a verdict as a list."""
    return element("ul", [element("li", with_code(one["sentence"])) for one in findings], class_="findings")


def with_code(text: str) -> Html:
    """Text in which words between backquotes are code."""
    parts = re.split(r"`([^`]+)`", text)
    return joined(*(element("code", part) if index % 2 else part for index, part in enumerate(parts)))


def item_name(item: NamedItem, with_detail: bool = False) -> Html:
    """An item by its title, or its id, and its first other field; more shows when the pointer rests on it."""
    hint = f"{item.id} · {item.details}" if item.details else str(item.id)
    detail = element("span", f" {item.detail}", class_="q") if with_detail and item.detail else None
    return element("span", item.title or str(item.id), detail, class_="item", title=hint)
