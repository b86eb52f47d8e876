"""Objective, samplers, loop, evaluation and export: from prepared data to a bundle."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turret.training.estimator import Estimator as Estimator
    from turret.training.samplers.fixed.given import GivenNegatives as GivenNegatives

__all__ = [
    "checkpoint",
    "cli",
    "commands",
    "device",
    "errors",
    "estimator",
    "figures",
    "model_loss",
    "randomness",
    "registry",
    "run",
    "statistics",
    "trainer",
]


def __getattr__(name: str) -> Any:
    if name == "Estimator":
        from turret.training.estimator import Estimator

        return Estimator
    if name == "GivenNegatives":
        from turret.training.samplers.fixed.given import GivenNegatives

        return GivenNegatives
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
