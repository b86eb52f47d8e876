"""The checkpoint of split tables, in one process that is connected to itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from turret.training.checkpoint import Checkpoint, Progress, load_checkpoint
from turret.training.distributed.processes import Processes
from turret.training.distributed.split_table import SplitTable
from turret.training.optimisers.optimiser import Optimiser
from turret.training.parallel import split_files
from turret.training.parallel.split_files import SplitFiles


def checkpoint_of(model: nn.Module, progress: Progress) -> Checkpoint:
    return Checkpoint(model.state_dict(), {}, {}, {}, {}, progress)


def test_a_process_killed_while_it_saves_a_state_again_leaves_the_checkpoint(
    lone: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step of an epoch is saved twice where `checkpoint_every` divides it."""
    table = SplitTable(10, 4, None, lone)
    model = nn.ModuleDict({"table": table})
    files = SplitFiles(tmp_path, lone, model, Optimiser([model], [], 1e-3, 0.0))
    files.save(checkpoint_of(model, Progress(epoch=0, step=5, step_in_epoch=5)))

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    ended = checkpoint_of(model, Progress(epoch=1, step=5))
    with monkeypatch.context() as patched:
        patched.setattr(split_files, "save_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            files.save(ended)
    for loaded in (files.load(), load_checkpoint(tmp_path / "checkpoint.safetensors")):
        assert loaded.progress.step_in_epoch == 5
        assert torch.equal(loaded.model["table.weight"], table.weight)
    files.save(ended)
    assert [path.name for path in tmp_path.glob("*-rows")] == ["checkpoint-1-5-rows"]
