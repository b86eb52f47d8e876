"""Objective, samplers, loop, evaluation and export: from prepared data to a bundle."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turret.training.estimator import Estimator as Estimator
    from turret.training.samplers.from_batch.in_batch import GivenNegatives as GivenNegatives

__all__ = [
    "begin",
    "checkpoint",
    "cli",
    "commands",
    "distributed",
    "errors",
    "estimator",
    "model_loss",
    "pairs_start",
    "process",
    "randomness",
    "records",
    "run",
    "used_items",
    "warm_start",
]

_LOADED: dict[str, str] = {
    "Estimator": "estimator",
    "GivenNegatives": "samplers.from_batch.in_batch",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"turret.training.{_LOADED[name]}"), name)
