"""What the processes of one training share, as far as one process can show it; and one step of two."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed, nn
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
from turret.training.checkpoint import Checkpoint, Progress, load_checkpoint
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed.joining import join_world
from turret.training.distributed.launch import launch_name
from turret.training.distributed.meeting import meet
from turret.training.distributed.processes import Processes
from turret.training.distributed.shards import Rows, load_rows, load_whole
from turret.training.distributed.split_table import SplitTable
from turret.training.distributed.tensor_files import content, layout, mapped_tensors
from turret.training.distributed.world import World, process_count
from turret.training.errors import TrainingError
from turret.training.model_loss import build_objective
from turret.training.optimisers import optimiser
from turret.training.optimisers.optimiser import Optimiser
from turret.training.parallel import split_files, tables
from turret.training.parallel.memory import naming_lack_of_memory, too_large_training
from turret.training.parallel.refusals import check_objective
from turret.training.parallel.same_run import check_same_run
from turret.training.parallel.split_files import SplitFiles
from turret.training.run import Run


@pytest.fixture
def lone() -> Iterator[Processes]:
    """This process, connected to itself alone as several are to each other."""
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    world = Processes()
    yield world
    world.close()


@pytest.fixture(scope="module")
def steps(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Step]]]:
    """The first step of each scenario, by the number of processes and by rank."""
    folder = tmp_path_factory.mktemp("steps")
    large, split_from = optimiser.LARGE, tables.SPLIT_FROM
    alone = first_steps(World(), shop.folder, folder, STEPS)
    optimiser.LARGE, tables.SPLIT_FROM = large, split_from
    (together,) = in_processes([Job(2, first_steps, (shop.folder, folder, STEPS))], folder)
    return {1: [alone], 2: together}


@pytest.mark.process
@pytest.mark.parametrize("scenario", STEPS)
def test_two_processes_make_the_step_that_one_makes(
    steps: dict[int, list[dict[str, Step]]], scenario: str
) -> None:
    """Each holds half of the tables that are split, else the step would compare tables held whole."""
    (alone,) = steps[1]
    for together in steps[2]:
        check_equal(together[scenario], alone[scenario])
    bounds = [parts["split tables"].rows["item.table.weight"] for parts in steps[2]]
    assert bounds == [(0, 96), (96, 192)]


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
            experiment(POOLED, "full_softmax", training={"device": "auto"}),
            "device = 'auto': .* on CPUs alone",
        ),
        (
            experiment(POOLED, "full_softmax", training={"chunk_size": 64}),
            "chunk_size = 64: the tables of 3 ",
        ),
        (experiment(POOLED, "full_softmax", training={"metric": "auc"}), "no process ranks by whole rows"),
        (experiment(POOLED, "hierarchical_softmax"), "not ranked by an inner product"),
    ],
    ids=["auto", "chunks", "auc", "loss"],
)
def test_what_needs_whole_tables_is_refused_where_they_are_split(
    settings: dict[str, Any],
    sentence: str,
    shop: PreparedData,
    lone: Processes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = ExperimentConfig.model_validate(settings)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: settings["training"]["device"] != "cpu")
    assert not tables.build_split_model(lone, chosen, shop).is_split
    monkeypatch.setattr(tables, "SPLIT_FROM", 3)
    with pytest.raises(TrainingError, match=sentence):
        tables.build_split_model(lone, chosen, shop)


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


TABLE = torch.arange(24.0).view(8, 3)
FIRSTS = (0, 3, 6)
COUNTS = {"table": len(TABLE)}


def written(folder: Path, tensor: Tensor) -> list[Path]:
    """The files of three processes, as torch.distributed.checkpoint writes them."""
    folder.mkdir()
    files = []
    for rank, (first, last) in enumerate(zip(FIRSTS, (*FIRSTS[1:], len(tensor)), strict=True), start=1):
        offsets = json.dumps({"table": {"saved_offsets": [first, 0]}})
        files.append(folder / f"shard-{rank:05}-model-00001-of-00001.safetensors")
        save_file({"table": tensor[first:last].contiguous()}, files[-1], {"DCP_SHARDING_INFO": offsets})
    return files


def test_the_rows_of_all_files_are_read(lone: Processes, tmp_path: Path) -> None:
    written(tmp_path / "rows", TABLE)
    assert torch.equal(load_whole(tmp_path / "rows", COUNTS)["table"], TABLE)
    parts = load_rows(tmp_path / "rows", COUNTS, {"table": Rows(0, 8, 8)}, lone)
    assert torch.equal(parts["table"], TABLE)


@pytest.mark.parametrize("missing", [[0], [1], [2], [0, 1, 2]])
def test_a_missing_file_is_named_by_its_folder(missing: list[int], lone: Processes, tmp_path: Path) -> None:
    """Its rows would be those of uninitialised memory."""
    folder = tmp_path / "rows"
    files = written(folder, TABLE)
    for number in missing:
        files[number].unlink()
    first = FIRSTS[missing[0]]
    sentence = f"{folder}: rows of 'table' are missing from row {first} of 8 on"
    with pytest.raises(TrainingError, match=sentence):
        load_whole(folder, COUNTS)
    with pytest.raises(TrainingError, match=sentence):
        load_rows(folder, COUNTS, {"table": Rows(0, 8, 8)}, lone)


def test_a_missing_or_damaged_folder_is_named(lone: Processes, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    with pytest.raises(TrainingError, match=f"{folder}: the rows of the checkpoint can't be read"):
        load_whole(folder, COUNTS)
    files = written(folder, TABLE)
    files[1].write_bytes(files[1].read_bytes()[:-5])
    with pytest.raises(TrainingError, match=f"{folder}: the rows of the checkpoint can't be read"):
        load_rows(folder, COUNTS, {"table": Rows(0, 8, 8)}, lone)


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


def test_safetensors_reads_a_file_that_was_written_in_parts(tmp_path: Path) -> None:
    parts = TENSORS | {"table": TENSORS["table"][2:]}
    header, places = layout(parts, {"table": 4})
    path = tmp_path / "parts.safetensors"
    with path.open("wb") as file:
        file.write(header)
        for name, tensor in TENSORS.items():
            file.seek(len(header) + places[name])
            file.write(content(tensor))
    assert are_equal(load_file(path), TENSORS)


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


@pytest.mark.parametrize(
    ("processes", "words", "more"), [(1, "one process", 2), (3, "each of 3 processes", 6)]
)
def test_a_training_that_is_too_large_names_twice_the_processes(
    processes: int, words: str, more: int
) -> None:
    sentence = too_large_training(processes)
    assert f"does not fit into the memory of {words};" in sentence
    assert f"torchrun --standalone --nproc-per-node {more} -m -- turret train" in sentence


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shape"), naming_lack_of_memory("too large"):
        raise RuntimeError("the shape is wrong")
