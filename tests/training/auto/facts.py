"""Figures of an ordinary shop, with any of them replaced."""

from dataclasses import replace
from typing import Any

from turret.training.auto.facts import Facts

ORDINARY = Facts(
    items=3_000,
    examples=250_000,
    item_features=(),
    item_tastes={},
    user_features=(),
    order=2.0,
    repeat_share=0.0,
    has_validation=True,
    has_negatives=False,
)


def facts(**others: Any) -> Facts:
    """An ordered log of ids without repeats, but for `others`."""
    return replace(ORDINARY, **others)
