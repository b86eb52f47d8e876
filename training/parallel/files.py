"""The files of a run that training writes: the best model and the checkpoint."""

from pathlib import Path

from torch import Tensor

from turret.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, save_tensors
from turret.training.distributed.world import World
from turret.training.run import CHECKPOINT, MODEL


class RunFiles:
    """The files of a run whose processes all hold the whole model: process 0 writes them."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world = folder, world

    def save_best(self, parameters: dict[str, Tensor]) -> None:
        """Replace the model of the run."""
        if self.world.leads:
            save_tensors(self.folder / MODEL, parameters)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint of the run."""
        if self.world.leads:
            save_checkpoint(self.folder / CHECKPOINT, checkpoint)

    def load(self) -> Checkpoint:
        """Read the checkpoint of the run. Raises TrainingError when it is missing or invalid."""
        return load_checkpoint(self.folder / CHECKPOINT)
