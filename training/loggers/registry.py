"""The loggers by name, and the choice of `--logger`."""

from collections.abc import Sequence
from importlib.util import find_spec

from turret.data.entry_points import registry
from turret.data.extras import install_hint
from turret.training.errors import TrainingError
from turret.training.loggers.contract import LoggerKind
from turret.training.loggers.mlflow import MLFLOW
from turret.training.loggers.tensorboard import TENSORBOARD
from turret.training.loggers.wandb import WANDB

LOGGERS: dict[str, LoggerKind] = registry(
    (TENSORBOARD, MLFLOW, WANDB), "turret.loggers", LoggerKind, TrainingError
)
DEFAULT = (TENSORBOARD.name,)


def chosen_loggers(names: Sequence[str]) -> list[LoggerKind]:
    """The named loggers, each once.

    Raises:
        TrainingError: there is no such logger, or its library is not installed.
    """
    for name in names:
        if name not in LOGGERS:
            raise TrainingError(f"--logger {name}: there is no such logger; there are {', '.join(LOGGERS)}.")
    kinds = [LOGGERS[name] for name in dict.fromkeys(names)]
    for kind in kinds:
        if find_spec(kind.module) is None:
            hint = install_hint(ModuleNotFoundError(name=kind.module))
            raise TrainingError(f"--logger {kind.name}: {hint or f'{kind.module} is not installed'}.")
    return kinds
