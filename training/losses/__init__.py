"""Losses over drawn candidates and over whole catalogs, by kind: `losses.gbce(t=0.75)`.

No module here has the name of a kind, which it would hide.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turret.training.objectives.contract import LossSettings

__all__ = ["catalog", "loss", "pairwise", "registry", "sampled"]


def __getattr__(kind: str) -> "Callable[..., LossSettings]":
    from turret.training.losses.registry import LOSSES
    from turret.training.samplers.core.settings import maker

    return maker(LOSSES, kind, "loss")
