"""Figures for Weights & Biases, by its own settings: `WANDB_MODE`, `WANDB_PROJECT`, `WANDB_ENTITY`."""

import os
from collections.abc import Mapping

from turret.training.loggers.contract import LoggedRun, Logger, LoggerKind

FOLDER = "wandb"
_PROJECT = "turret"


class WandbLogger(Logger):
    """A run of Weights & Biases, with its files in `RUN/wandb`; settings are its configuration."""

    def __init__(self, run: LoggedRun) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=run.name,
            dir=str(run.folder),
            config=run.settings,
            id=run.earlier,
            resume=None if run.earlier is None else "allow",
            settings=wandb.Settings(console="off"),
        )
        self.id = self._run.id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures; the service ignores steps that it has."""
        self._run.log(dict(figures), step=step)

    def close(self, finished: bool) -> None:
        """End the run, which waits until its files are written or uploaded."""
        self._run.finish(exit_code=0 if finished else 1)


WANDB = LoggerKind("wandb", WandbLogger, "wandb")
