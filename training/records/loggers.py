"""Loggers: the tools of tracking experiments that get a run's settings and figures.

A logger is made of the folder of the run, the settings by dotted names, the step from which training goes on,
and the `id` that it had when the training began, if any. Its methods may raise.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turret.data.extras import install_hint
from turret.training.errors import TrainingError

LOGGERS_FILE = "loggers.json"
# These are names of loggers, and of their folders in a run.
TENSORBOARD, WANDB = "tensorboard", "wandb"
DEFAULT = (TENSORBOARD,)
_PROJECT = "turret"
# MLflow takes at most so many parameters in a request.
_PARAMETERS = 100


def _shown(folder: Path) -> str:
    """The folder's name with its parent's, as in run/seed-0."""
    path = folder.resolve()
    return f"{path.parent.name}/{path.name}"


class TensorBoardLogger:
    """Writes scalars to event files in `RUN/tensorboard`; a resumed training hides the steps it repeats."""

    id = None

    def __init__(self, folder: Path, settings: dict[str, Any], step: int, earlier: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=step)
        if not step:
            # In Markdown four spaces make a block of code.
            text = json.dumps(settings, indent=2).replace("\n", "\n    ")
            self._writer.add_text("settings", f"    {text}")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write each figure as a scalar."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        """Write everything to the file."""
        self._writer.close()


class MLflowLogger:
    """A run in MLflow's tracking store; settings are its parameters.

    The logger goes by MLflow's own settings: `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME`.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], step: int, earlier: str | None) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._client, self._metric = MlflowClient(), Metric
        self.id: str
        if earlier is not None:
            self.id = earlier
            self._client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.id = self._client.create_run(number, run_name=_shown(folder)).info.run_id
        parameters = [Param(key, str(value)) for key, value in settings.items()]
        for first in range(0, len(parameters), _PARAMETERS):
            self._client.log_batch(self.id, params=parameters[first : first + _PARAMETERS])

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures as metrics. MLflow allows no @ in a name: ndcg@10 becomes ndcg_at_10."""
        now = int(time.time() * 1000)
        metrics = [
            self._metric(name.replace("@", "_at_"), value, now, step) for name, value in figures.items()
        ]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Set the status of the run."""
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


class WandbLogger:
    """A run of Weights & Biases, with its files in `RUN/wandb`; settings are its configuration.

    The logger goes by the library's own settings: `WANDB_MODE`, `WANDB_PROJECT`, `WANDB_ENTITY`.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], step: int, earlier: str | None) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=_shown(folder),
            dir=str(folder),
            config=settings,
            id=earlier,
            resume=None if earlier is None else "allow",
            settings=wandb.Settings(console="off"),
        )
        self.id: str = self._run.id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures; the service ignores steps that it has already."""
        self._run.log(dict(figures), step=step)

    def close(self, finished: bool) -> None:
        """End the run, which waits until its files are written or uploaded."""
        self._run.finish(exit_code=0 if finished else 1)


Logger = TensorBoardLogger | MLflowLogger | WandbLogger
# Each logger has the name of the module that has to be installed.
LOGGERS: dict[str, Callable[[Path, dict[str, Any], int, str | None], Logger]] = {
    TENSORBOARD: TensorBoardLogger,
    "mlflow": MLflowLogger,
    WANDB: WandbLogger,
}


def check_loggers(names: Sequence[str]) -> None:
    """Raise TrainingError for a name that is no logger's, and for a library that is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise TrainingError(f"--logger {name}: there is no such logger; there are {', '.join(LOGGERS)}.")
        if find_spec(name) is None:
            hint = install_hint(ModuleNotFoundError(name=name))
            raise TrainingError(f"--logger {name}: {hint or f'{name} is not installed'}.")


def stored_loggers(folder: Path) -> dict[str, str | None]:
    """The names of the loggers that a run began with, and their ids; empty if it has none or can't tell."""
    try:
        stored = json.loads((folder / LOGGERS_FILE).read_text(encoding="utf-8"))
        return {str(name): None if run_id is None else str(run_id) for name, run_id in stored.items()}
    except (OSError, ValueError, AttributeError):
        return {}
