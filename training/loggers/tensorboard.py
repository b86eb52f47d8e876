"""Figures as event files in `RUN/tensorboard`."""

import json
from collections.abc import Mapping

from torch.utils.tensorboard import SummaryWriter

from turret.training.loggers.contract import LoggedRun, Logger, LoggerKind

FOLDER = "tensorboard"


class TensorBoardLogger(Logger):
    """Writes scalars; a resumed training hides those of steps that it makes again."""

    def __init__(self, run: LoggedRun) -> None:
        self._writer = SummaryWriter(str(run.folder / FOLDER), purge_step=run.step)
        if not run.step:
            # Four spaces make a block of code.
            text = json.dumps(run.settings, indent=2).replace("\n", "\n    ")
            self._writer.add_text("settings", f"    {text}")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write each figure as a scalar."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        """Write everything to the file."""
        self._writer.close()


TENSORBOARD = LoggerKind("tensorboard", TensorBoardLogger, "tensorboard")
