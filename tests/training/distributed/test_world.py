"""A world of one process, the usual case."""

import subprocess
import sys

import pytest
import torch

from turret.training.distributed.joining import join_world
from turret.training.distributed.world import World, process_count


def test_a_process_without_torchrun_is_a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    world = join_world()
    assert type(world) is World
    assert (world.rank, world.size, world.leads, process_count()) == (0, 1, True, 1)


def test_nothing_is_exchanged_in_a_world_of_one() -> None:
    world, rows = World(), torch.ones(3, 2, requires_grad=True)
    assert world.gathered(rows) is rows
    assert world.gathered_vectors(rows, [3]) is rows
    assert world.sums([1.0, 2.0]) == [1.0, 2.0]
    assert world.agreed(True)
    assert world.purpose("draw") == "draw"


@pytest.mark.nightly
def test_a_training_in_one_process_imports_nothing_for_several() -> None:
    """They would cost it a second and memory."""
    code = (
        "import sys, turret.training.trainer as trainer; "
        "print([name for name in sys.modules if name.startswith("
        "('torch.distributed.checkpoint', 'torch.nn.parallel.distributed', "
        "'turret.training.distributed.p'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before = subprocess.run(
        [sys.executable, "-c", "import torch, sys; print('torch.nn.parallel.distributed' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    allowed = ["torch.nn.parallel.distributed"] if before.stdout.strip() == "True" else []
    assert found.stdout.strip() == str(allowed)
