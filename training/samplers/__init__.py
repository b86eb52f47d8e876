"""Samplers of negatives, by kind: `samplers.quadratic(negatives=64)`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turret.training.samplers.core.settings import SamplerSettings

__all__ = ["registry"]


def __getattr__(kind: str) -> "Callable[..., SamplerSettings]":
    from turret.training.samplers.core.settings import maker
    from turret.training.samplers.registry import SAMPLERS

    return maker(SAMPLERS, kind, "sampler")
