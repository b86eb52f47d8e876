"""The registry of losses by kind: those of Turret, and those of the entry points `turret.losses`."""

from importlib import import_module
from typing import TYPE_CHECKING

from turret.data.extras import kind_of, registry
from turret.training.errors import TrainingError
from turret.training.losses.catalog import ScalableCrossEntropyConfig
from turret.training.losses.hierarchical import HierarchicalSoftmaxConfig
from turret.training.losses.loss import decorated
from turret.training.objectives.contract import LossSettings
from turret.training.samplers.core.settings import one_of

# Importing a module registers its decorated functions.
_MODULES = {
    import_module(f"turret.training.losses.{name}").__name__
    for name in ("catalog", "sampled", "binary", "pairwise")
}
LOSSES: dict[str, type[LossSettings]] = registry(
    (
        *(settings for settings in decorated() if settings.__module__ in _MODULES),
        HierarchicalSoftmaxConfig,
        ScalableCrossEntropyConfig,
    ),
    "turret.losses",
    LossSettings,
    TrainingError,
    kind_of,
)

# The members of the union are known only when Turret runs, so mypy sees their base class.
if TYPE_CHECKING:
    LossConfig = LossSettings
else:
    LossConfig = one_of(LOSSES.values())
