"""A table that is too large for one process: a limit of memory for each, as the system enforces it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import turret

# Trains 400,000 vectors of 256 numbers with their moments, on one core, and builds an index of them: a minute
# and a half, and 5 GB of disk.
pytestmark = pytest.mark.nightly

ITEMS, DIMENSION = 400_000, 256
TABLE = 4 * ITEMS * DIMENSION
# Measured beyond the imports: 5.8 tables for one process, of which 4 are the weights, their two moments and
# the best weights; 5.0 for each of two, most of them for a moment in which the checkpoint is written; 1.4 for
# the export, which has the table, the vectors and the index in files, and in memory the ids of the items.
TABLES, EXPORT_TABLES = 5.4, 1.6
SETTINGS = (
    "training.epochs=1",
    "training.batch_size=4096",
    f"tower.dimension={DIMENSION}",
    "tower.user.history_length=2",
    'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=4}}',
)
IMPORTED = """
from turret.training.process import set_up_process
set_up_process()
import turret.training.commands
print(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1])
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def limited(limit: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose processes may each have `limit` bytes of data."""
    # Not set between fork and exec: there a library of the tests that forks badly, gRPC, may end the child.
    return subprocess.run(
        ["prlimit", f"--data={limit}", sys.executable, "-m", *words],
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        timeout=400,
        check=False,
    )


@pytest.fixture(scope="module")
def imported() -> int:
    """The bytes of data of a process that has imported the modules."""
    command = [sys.executable, "-c", IMPORTED]
    printed = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, check=True).stdout
    return int(printed) * 1024


def test_two_processes_train_a_table_that_one_can_not_hold_and_it_is_served(
    imported: int, tmp_path: Path
) -> None:
    limit, less = imported + int(TABLES * TABLE), imported + int(EXPORT_TABLES * TABLE)
    rows = np.random.default_rng(0).permutation(ITEMS)
    events = pl.DataFrame({"user": rows % 500, "item": rows, "time": np.arange(ITEMS)})
    data = turret.prepare(events, tmp_path / "prepared")
    options = ("--data", str(data.folder), *(part for one in SETTINGS for part in ("--set", one)))
    alone = limited(limit, "turret", "train", *options, "--run", str(tmp_path / "alone"))
    assert alone.returncode == 1
    sentence = "turret: the training does not fit into the memory of one process"
    assert sentence in alone.stderr
    assert "torchrun --standalone --nproc-per-node 2 -m -- turret train" in alone.stderr

    run, bundles = tmp_path / "run", tmp_path / "bundles"
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "--")
    together = limited(limit, *torchrun, "turret", "train", *options, "--run", str(run))
    assert together.returncode == 0, together.stderr
    export = ("turret", "export", str(run), "--bundles", str(bundles), "--version", "one")
    refused = limited(imported + TABLE // 2, *export)
    assert refused.returncode == 1
    assert f"{run}: the export does not fit into memory; run it on a machine with more." in refused.stderr
    exported = limited(less, *export)
    assert exported.returncode == 0, exported.stderr
    model = turret.load(bundles / "one")
    history = data.item_ids.ids(data.history(0, "end"))
    assert len(model.recommend(history, k=10)) == 10
