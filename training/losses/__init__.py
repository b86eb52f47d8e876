"""Losses over drawn candidates and over whole catalogs, by kind: `losses.gbce(t=0.75)`.

No module here has the name of a kind, which it would hide.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turret.training.objectives.contract import LossSettings

__all__ = ["catalog", "loss", "pairs", "registry", "sampled"]


def __getattr__(kind: str) -> "Callable[..., LossSettings]":
    from turret.training.losses.registry import LOSSES
    from turret.training.registry import maker

    return maker(LOSSES, kind, "loss")
