"""The files of a run whose tables are split: each process writes and reads its own rows."""

import shutil
from pathlib import Path

from torch import Tensor, nn

from turret.training.checkpoint import (
    Checkpoint,
    RowsFolder,
    checkpoint_of,
    flat_tensors,
    read_checkpoint,
    save_checkpoint,
)
from turret.training.distributed.processes import Processes
from turret.training.distributed.shards import Rows, load_rows, save_rows, save_whole, slice_of
from turret.training.distributed.split_table import SplitTable
from turret.training.distributed.world import World
from turret.training.optimisers.optimiser import Optimiser
from turret.training.parallel.files import RunFiles
from turret.training.run import CHECKPOINT, MODEL, ROWS


class SplitFiles(RunFiles):
    """As `RunFiles`; the rows of split tables and of their moments are a folder beside the checkpoint.

    The checkpoint names its folder, so that both change at once, when the checkpoint is replaced.
    """

    def __init__(self, folder: Path, world: Processes, model: nn.Module, optimiser: Optimiser) -> None:
        super().__init__(folder, world)
        self.processes = world
        tables = {name: module for name, module in model.named_modules() if isinstance(module, SplitTable)}
        self.of_model = {
            f"{name}.weight": Rows(table.first, table.last, table.num_embeddings)
            for name, table in tables.items()
        }
        self.rows: dict[str, Rows] = {}
        for name, table in tables.items():
            rows = self.of_model[f"{name}.weight"]
            moments = [f"optimiser.{moment}" for moment in optimiser.row_names(table.weight)]
            self.rows |= dict.fromkeys([f"model.{name}.weight", f"best.{name}.weight", *moments], rows)

    @classmethod
    def of(cls, world: World, folder: Path, model: nn.Module, optimiser: Optimiser) -> "SplitFiles":
        """The files of several processes."""
        assert isinstance(world, Processes)
        return cls(folder, world, model, optimiser)

    def save_best(self, parameters: dict[str, Tensor]) -> None:
        """Replace the model of the run by the parts of all processes."""
        draft = self.folder / f".{MODEL}.parts"
        save_whole(draft, parameters, self.of_model, self.processes)
        if self.world.leads:
            draft.replace(self.folder / MODEL)
        self.world.wait()

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint of the run."""
        tensors = flat_tensors(checkpoint)
        progress = checkpoint.progress
        # The last step of an epoch may be saved twice, before and after its end: the checkpoint in use must
        # keep its folder until another one has replaced it.
        folder = self.folder / ROWS.replace("*", f"{progress.epoch}-{progress.step}")
        self._remove(folder)
        parts = {name: tensor for name, tensor in tensors.items() if name in self.rows}
        save_rows(folder, parts, self.rows, self.processes)
        if self.world.leads:
            whole = {name: tensor for name, tensor in tensors.items() if name not in self.rows}
            rows = RowsFolder(folder.name, {name: self.rows[name].total for name in parts})
            save_checkpoint(self.folder / CHECKPOINT, checkpoint_of(whole, progress), rows)
            for old in self.folder.glob(ROWS):
                if old != folder:
                    shutil.rmtree(old, ignore_errors=True)
        self.world.wait()

    def load(self) -> Checkpoint:
        """Read the checkpoint, of split tables this process's rows alone, however many wrote it."""
        path = self.folder / CHECKPOINT
        stored = read_checkpoint(path, without=self.rows)
        tensors = dict(stored.tensors)
        for name in stored.left_out:
            tensors[name] = slice_of(path, name, self.rows[name])
        if stored.rows is not None:
            folder, counts = self.folder / stored.rows.name, stored.rows.counts
            tensors |= load_rows(folder, counts, self.rows, self.processes)
        return checkpoint_of(tensors, stored.progress)

    def _remove(self, folder: Path) -> None:
        if self.world.leads:
            shutil.rmtree(folder, ignore_errors=True)
        self.world.wait()
