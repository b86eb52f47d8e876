"""What the processes of one training share, as far as one process can show it; and one step of two."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.distributed_jobs import (
    POOLED,
    STEPS,
    Job,
    Step,
    check_equal,
    experiment,
    first_steps,
    in_processes,
)
from turret.data.prepared import PreparedData
from turret.training import optimiser
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed import World, check_parts
from turret.training.errors import TrainingError
from turret.training.model_loss import build_objective
from turret.training.process import naming_lack_of_memory, too_large_training
from turret.training.run import Run, check_same_run


@pytest.fixture(scope="module")
def steps(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Step]]]:
    """The first step of each scenario, by the number of processes and by rank."""
    folder = tmp_path_factory.mktemp("steps")
    large = optimiser.LARGE
    alone = first_steps(World(), shop.folder, folder, STEPS)
    optimiser.LARGE = large
    (together,) = in_processes([Job(2, first_steps, (shop.folder, folder, STEPS))], folder)
    return {1: [alone], 2: together}


@pytest.mark.process
@pytest.mark.parametrize("scenario", STEPS)
def test_two_processes_make_the_step_that_one_makes(
    steps: dict[int, list[dict[str, Step]]], scenario: str
) -> None:
    (alone,) = steps[1]
    for together in steps[2]:
        check_equal(together[scenario], alone[scenario])


RUN = Run(Path("run"), ExperimentConfig(), Path("data"), "0123")


class Recording(World):
    """Process 0 of two, which remembers its last rows; the other sends `other`."""

    def __init__(self, other: Tensor | None = None) -> None:
        super().__init__()
        self.size, self.other, self.rows = 2, other, torch.empty(0)

    def gathered(self, rows: Tensor, counts: list[int] | None = None) -> Tensor:
        self.rows = rows
        return torch.cat([rows, rows if self.other is None else self.other])


def sent_for(run: Run) -> Tensor:
    world = Recording()
    check_same_run(world, run)
    return world.rows


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


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            experiment(POOLED, "scalable_cross_entropy"),
            r"objective\.loss: .* single examples, so 2 processes",
        ),
        (
            experiment(POOLED, "sampled_softmax", {"kind": "adaptive_ngram"}),
            r"objective\.sampler: AdaptiveNgramSampler learns from the examples",
        ),
    ],
    ids=["loss", "sampler"],
)
def test_what_processes_can_not_share_is_refused(
    settings: dict[str, Any], sentence: str, shop: PreparedData
) -> None:
    """The n-grams take seconds where they are not in numba's cache: they are compiled here."""
    chosen = ExperimentConfig.model_validate(settings)
    objective = build_objective(chosen.objective, chosen.tower, shop, 0, torch.device("cpu"))
    with pytest.raises(TrainingError, match=sentence):
        check_parts(objective, 2)


PETABYTE = 10**15


@pytest.mark.parametrize("allocate", [lambda: torch.empty(PETABYTE), lambda: np.empty(PETABYTE)])
def test_a_failed_allocation_names_the_settings_that_make_a_training_smaller(
    allocate: Callable[[], object],
) -> None:
    sentence = r"does not fit into the memory of each of 3 processes;.*training\.batch_size"
    with pytest.raises(TrainingError, match=sentence), naming_lack_of_memory(too_large_training(3)):
        allocate()
