"""Several processes of one training: shared batches, steps and checkpoints, and one that is killed."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor

from tests.support import distributed_jobs as jobs
from tests.support.distributed_jobs import (
    BY_ROW,
    FEATURES_OF_ITEMS,
    POOLED,
    STEPS,
    TRAINED,
    Job,
    Step,
    check_equal,
    experiment,
    first_steps,
    in_processes,
)
from tests.support.ports import free_port
from tests.support.until import until
from turret.data.prepared import PreparedData
from turret.training.checkpoint import load_progress
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed import World, check_parts, joined
from turret.training.errors import TrainingError
from turret.training.loop import optimiser
from turret.training.loop.train import train
from turret.training.model_loss import build_objective
from turret.training.process import naming_lack_of_memory, too_large_training
from turret.training.run import CHECKPOINT, MODEL, Run, check_same_run


@pytest.fixture(scope="module")
def steps(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Step]]]:
    """The first step of each scenario, by the number of processes and by rank."""
    folder = tmp_path_factory.mktemp("steps")
    large = optimiser.LARGE
    alone = first_steps(shop.folder, folder, STEPS)
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
    with joined(world):
        check_same_run(run)
    return world.rows


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (replace(RUN, fingerprint="4567"), "copy of the prepared data"),
        (replace(RUN, experiment=ExperimentConfig.model_validate({"training": {"seed": 7}})), "experiment"),
    ],
)
def test_a_process_that_trains_another_run_is_refused(other: Run, name: str) -> None:
    refused = pytest.raises(TrainingError, match=rf"^process 1 of 2 has another {name} than process 0;")
    with refused, joined(Recording(sent_for(other))):
        check_same_run(RUN)


def test_the_same_run_may_lie_elsewhere() -> None:
    """Machines may mount it at other paths."""
    with joined(Recording(sent_for(replace(RUN, folder=Path("other"), data_folder=Path("x"))))):
        check_same_run(RUN)
    check_same_run(RUN)


@pytest.mark.parametrize(
    ("loss", "sampler", "sentence"),
    [
        ("scalable_cross_entropy", None, r"objective\.loss: .* single examples, so 2 processes"),
        ("sampled_softmax", {"kind": "adaptive_ngram"}, r"objective\.sampler: .* learns from the examples"),
    ],
)
def test_what_processes_can_not_share_is_refused(
    loss: str, sampler: dict[str, Any] | None, sentence: str, shop: PreparedData
) -> None:
    chosen = ExperimentConfig.model_validate(experiment(POOLED, loss, sampler))
    objective = build_objective(chosen, shop, torch.device("cpu"))
    with pytest.raises(TrainingError, match=sentence):
        check_parts(objective, 2)


@pytest.mark.parametrize("allocate", [lambda: torch.empty(10**15), lambda: np.empty(10**15)])
def test_a_failed_allocation_names_the_settings_that_make_a_training_smaller(
    allocate: Callable[[], object],
) -> None:
    sentence = r"does not fit into the memory of each of 3 processes;.*training\.batch_size"
    with pytest.raises(TrainingError, match=sentence), naming_lack_of_memory(too_large_training(3)):
        allocate()


@dataclass(frozen=True)
class Answers:
    """What each job returned, by name, number of processes and rank; and the folder of its run."""

    folder: Path
    of: dict[tuple[str, int], list[Any]]

    def __getitem__(self, job: tuple[str, int]) -> list[Any]:
        return self.of[job]


@pytest.fixture(scope="module")
def answers(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """All jobs: a world of one in this process, the others in three processes that stay the same."""
    folder, data = tmp_path_factory.mktemp("distributed"), shop.folder
    features, by_row, whole = folder / "features", folder / "by_row", folder / "whole"
    trained_by_row = jobs.Scenario(TRAINED, lazy_from=100)
    named: dict[tuple[str, int], tuple[Any, ...]] = {
        ("saved", 3): (jobs.saved, features, FEATURES_OF_ITEMS),
        ("saved by row", 3): (jobs.saved, by_row, BY_ROW),
        ("resumed", 3): (jobs.resumed, features, FEATURES_OF_ITEMS),
        ("resumed", 2): (jobs.resumed, features, FEATURES_OF_ITEMS),
        ("resumed by row", 2): (jobs.resumed, by_row, BY_ROW),
        ("resumed whole", 2): (jobs.resumed, whole, BY_ROW),
        ("trained", 2): (jobs.trained, folder / "trained", jobs.Scenario(TRAINED)),
        ("trained by row", 2): (jobs.trained, folder / "trained by row", trained_by_row),
    }
    large = optimiser.LARGE
    of: dict[tuple[str, int], list[Any]] = {("saved whole", 1): [jobs.saved(data, whole, BY_ROW)]}
    meetings = tmp_path_factory.mktemp("meetings")
    wanted = [Job(size, job, (data, *arguments)) for (_, size), (job, *arguments) in named.items()]
    of |= dict(zip(named, in_processes(wanted, meetings), strict=True))
    of["resumed", 1] = [jobs.resumed(data, features, FEATURES_OF_ITEMS)]
    of["resumed by row", 1] = [jobs.resumed(data, by_row, BY_ROW)]
    optimiser.LARGE = large
    return Answers(folder, of)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "size"), [("", 3), ("", 2), ("", 1), (" by row", 2), (" by row", 1)])
def test_any_number_of_processes_goes_on_where_three_stopped(answers: Answers, name: str, size: int) -> None:
    (alone,) = answers[f"resumed{name}", 1]
    for step, _ in answers[f"resumed{name}", size]:
        check_equal(step, alone[0])
    for step in answers[f"saved{name}", 3]:
        check_equal(step, alone[0])


@pytest.mark.nightly
def test_processes_go_on_where_one_stopped(answers: Answers) -> None:
    (alone,) = answers["saved whole", 1]
    for step, _ in answers["resumed whole", 2]:
        check_equal(step, alone)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["features", "by_row"])
def test_the_best_model_is_that_of_the_checkpoint(answers: Answers, name: str) -> None:
    stored = load_file(answers.folder / name / MODEL)
    ((_, best),) = answers[{"features": "resumed", "by_row": "resumed by row"}[name], 1]
    assert stored.keys() == best.keys()
    for key, tensor in best.items():
        np.testing.assert_array_equal(stored[key], tensor)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["trained", "trained by row"])
def test_two_processes_train(answers: Answers, name: str) -> None:
    """They draw other candidates than one process, and both validate the same model."""
    first, second = answers[name, 2]
    assert first == second
    assert first[0][1] < 0.8 * max(value for _, value in first)


ALONE = """
from datetime import timedelta
from turret.data.errors import TurretError
from turret.training import distributed
distributed.TIMEOUT = timedelta(seconds=1)
try:
    distributed.join_world()
except TurretError as error:
    print(error)
"""


@pytest.mark.nightly
def test_a_process_that_meets_no_other_ends_with_a_sentence() -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "2"}
    ended = subprocess.run(
        [sys.executable, "-c", ALONE], env={**os.environ, **place}, capture_output=True, text=True, timeout=60
    )
    assert "the other processes of this training can't be reached (Timed out after" in ended.stdout


EVERY, LAST = 5, 400
SETTINGS = (
    f"training.checkpoint_every={EVERY}",
    f"training.epochs={LAST}",
    f"training.patience={LAST}",
    "training.batch_size=64",
    "tower.dimension=8",
)


def workers(agent: int) -> dict[int, int]:
    """The pids of the processes that an agent of torchrun has started, by rank."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text(encoding="utf-8").split()
    found: dict[int, int] = {}
    for pid in children:
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        ranks = [int(one[5:]) for one in environment if one.startswith("RANK=")]
        found |= {rank: int(pid) for rank in ranks}
    return found


def killed(
    shop: PreparedData, folder: Path, settings: tuple[str, ...], given: list[str], *options: str
) -> tuple[int, str]:
    """Kill the second of two processes after the first checkpoint: exit status and output of torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options]
    command += ["-m", "--", "turret", "train", "--data", str(shop.folder), "--run", str(folder)]
    command += given
    command += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as agent,
        ExitStack() as stack,
    ):
        stack.callback(agent.terminate)  # it ends its processes; nothing happens where it has ended
        until(lambda: (folder / CHECKPOINT).is_file() or agent.poll() is not None, "the first checkpoint")
        assert agent.poll() is None
        os.kill(workers(agent.pid)[1], signal.SIGKILL)
        output, _ = agent.communicate(timeout=400)
        return agent.returncode, output


@pytest.mark.nightly
def test_a_killed_process_ends_the_job_and_costs_at_most_one_interval(
    shop: PreparedData, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    status, output = killed(shop, folder, SETTINGS, [])
    assert status != 0
    # It has noticed by itself, or torchrun was faster to tell it.
    sentences = re.findall(r"^turret: (process 0 of 2 (?:has lost|was stopped) .*)$", output, re.MULTILINE)
    assert len(sentences) == 1, output
    (sentence,) = sentences
    assert sentence.endswith("(training.checkpoint_every).")
    assert "--resume" in sentence
    saved = load_progress(folder / CHECKPOINT)
    assert saved.step % EVERY == 0 or saved.step_in_epoch == 0
    lines: list[str] = []
    run = Run.read(folder)
    train(run, shop, resume=True, report=lines.append, observe=lambda epoch, value: True)
    assert lines[0] == f"Resuming at step {saved.step}."
    assert load_progress(folder / CHECKPOINT).finished


@pytest.mark.nightly
def test_torchrun_starts_the_processes_again_and_they_resume(shop: PreparedData, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    status, output = killed(shop, folder, (*SETTINGS, "training.epochs=8"), ["--resume"], "--max-restarts=3")
    assert status == 0, output
    assert output.count("failed (exitcode: ") == 1, output  # the killed one: all others have met
    assert re.search(r"^Resuming at step \d+", output, re.MULTILINE), output
    assert load_progress(folder / CHECKPOINT).finished
