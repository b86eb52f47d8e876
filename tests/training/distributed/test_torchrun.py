"""`torchrun -m turret train`, and a process of it that is killed."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from turret.data.prepared import PreparedData
from turret.training.checkpoint import load_progress
from turret.training.run import CHECKPOINT, Run
from turret.training.trainer import train

pytestmark = pytest.mark.nightly

EVERY, LAST = 5, 400
SETTINGS = (
    f"training.checkpoint_every={EVERY}",
    f"training.epochs={LAST}",
    f"training.patience={LAST}",
    "training.batch_size=64",
    "tower.dimension=8",
    "training.evaluate_every=1",
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


def killed(shop: PreparedData, folder: Path, settings: tuple[str, ...], *options: str) -> tuple[int, str]:
    """Kill the second of two processes after the first checkpoint: exit status and output of torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options]
    command += ["-m", "--", "turret", "train", "--data", str(shop.folder), "--run", str(folder)]
    command += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as agent,
        ExitStack() as stack,
    ):
        stack.callback(agent.terminate)  # it ends its processes; nothing happens where it has ended
        until = time.monotonic() + 120
        while not (folder / CHECKPOINT).is_file():
            assert agent.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(workers(agent.pid)[1], signal.SIGKILL)
        output, _ = agent.communicate(timeout=400)
        return agent.returncode, output


def test_a_killed_process_ends_the_job_and_costs_at_most_one_interval(
    shop: PreparedData, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    status, output = killed(shop, folder, SETTINGS)
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


def test_torchrun_starts_the_processes_again_and_they_resume(shop: PreparedData, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    status, output = killed(shop, folder, (*SETTINGS, "training.epochs=8"), "--max-restarts=3")
    assert status == 0, output
    assert output.count("failed (exitcode: ") == 1, output  # the killed one: all others have met
    assert re.search(r"^Resuming at step \d+", output, re.MULTILINE), output
    assert load_progress(folder / CHECKPOINT).finished
