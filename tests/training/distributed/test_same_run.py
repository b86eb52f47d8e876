from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed.world import World
from turret.training.errors import TrainingError
from turret.training.parallel.same_run import check_same_run
from turret.training.run import Run

RUN = Run(Path("run"), ExperimentConfig(), Path("data"), "0123")


class Recording(World):
    """Process 0 of two, which remembers what it sends; the other sends `other`."""

    size = 2

    def __init__(self, other: Tensor | None = None) -> None:
        self.other, self.sent = other, torch.empty(0)

    def gathered(self, rows: Tensor, counts: list[int] | None = None) -> Tensor:
        self.sent = rows
        return torch.cat([rows, rows if self.other is None else self.other])


def sent_for(run: Run) -> Tensor:
    world = Recording()
    check_same_run(world, run)
    return world.sent


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (replace(RUN, fingerprint="4567"), "copy of the prepared data"),
        (replace(RUN, experiment=ExperimentConfig.model_validate({"training": {"seed": 7}})), "experiment"),
    ],
)
def test_a_process_that_trains_another_run_is_refused(other: Run, name: str) -> None:
    with pytest.raises(TrainingError, match=rf"^process 1 of 2 has another {name} than process 0;"):
        check_same_run(Recording(sent_for(other)), RUN)


def test_the_same_run_may_lie_elsewhere() -> None:
    """Machines may mount it at other paths."""
    check_same_run(Recording(sent_for(replace(RUN, folder=Path("other"), data_folder=Path("x")))), RUN)
    check_same_run(World(), RUN)
