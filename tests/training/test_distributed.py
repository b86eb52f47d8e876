"""What the processes of one training share, as far as one process can show it; and one step of two."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch._C._distributed_c10d import HashStore

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
from tests.support.until import until
from turret.data.prepared import PreparedData
from turret.training import optimiser
from turret.training.checkpoint import mapped_tensors
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed.processes import join_world, launch_name, meet
from turret.training.distributed.world import World, process_count
from turret.training.errors import TrainingError
from turret.training.model_loss import build_objective
from turret.training.parallel import check_objective, check_same_run
from turret.training.process import naming_lack_of_memory, too_large_training
from turret.training.run import Run


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


def test_a_process_without_torchrun_is_a_world_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    world = join_world()
    assert type(world) is World
    assert (world.rank, world.size, world.leads, process_count()) == (0, 1, True, 1)


def test_processes_of_one_parent_have_one_launch_and_others_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """All with the same --rdzv-id."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "spring")
    first = launch_name()
    assert first is not None
    assert first.startswith("spring ")
    assert f" {os.getppid()} " in first
    assert launch_name() == first
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert launch_name() != first


def test_the_processes_of_each_start_have_a_name_that_no_other_has() -> None:
    store = HashStore()
    names = []
    for size in (3, 3, 2, 3):
        with ThreadPoolExecutor(size) as pool:
            (name,) = set(pool.map(lambda rank, size=size: meet(store, rank, size), range(size)))
        names.append(name)
    assert len(set(names)) == len(names)


class WatchedStore(HashStore):
    """Counts how often somebody has looked for the others."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def check(self, keys: list[str]) -> bool:
        self.looks += 1
        return super().check(keys)


@pytest.mark.parametrize("stays", [0, 1])
def test_a_process_does_not_meet_one_of_an_earlier_start(stays: int) -> None:
    """One that comes early finds what an ended one has left, and waits for the new one."""
    store = WatchedStore()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: meet(store, rank, 2), (0, 1)))
        before = store.looks
        early = pool.submit(meet, store, stays, 2)
        until(lambda: store.looks > before + 3, "the early process looks again")
        assert not early.done()
        assert meet(store, 1 - stays, 2) == early.result()


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
        check_objective(objective, 2)


TENSORS = {
    "table": torch.arange(12, dtype=torch.float32).view(4, 3),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "one": torch.tensor(2.5),
    "none": torch.zeros(0, 3),
    "double": torch.tensor([0.1], dtype=torch.float64),
}


def are_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]) for name in theirs
    )


def test_mapped_tensors_are_those_that_safetensors_wrote(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors", {"progress": "{}"})
    assert are_equal(mapped_tensors(tmp_path / "model.safetensors"), TENSORS)


def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for wrong in (b"", b"\xff" * 100):
        path.write_bytes(wrong)
        with pytest.raises(TrainingError, match=r"model\.safetensors: it can't be read"):
            mapped_tensors(path)
    with pytest.raises(TrainingError, match=r"other\.safetensors: it can't be read"):
        mapped_tensors(tmp_path / "other.safetensors")


PETABYTE = 10**15


@pytest.mark.parametrize("allocate", [lambda: torch.empty(PETABYTE), lambda: np.empty(PETABYTE)])
def test_a_failed_allocation_has_its_sentence(allocate: Callable[[], object]) -> None:
    with pytest.raises(TrainingError, match=r"^too large$"), naming_lack_of_memory("too large"):
        allocate()


@pytest.mark.parametrize(("processes", "words"), [(1, "one process"), (3, "each of 3 processes")])
def test_a_training_that_is_too_large_names_the_settings_that_make_it_smaller(
    processes: int, words: str
) -> None:
    sentence = too_large_training(processes)
    assert f"does not fit into the memory of {words};" in sentence
    assert "training.batch_size" in sentence


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shape"), naming_lack_of_memory("too large"):
        raise RuntimeError("the shape is wrong")
