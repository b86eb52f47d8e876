"""Several seeds, from training to a comparison, with the commands that a user types."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import output, run

pytestmark = pytest.mark.nightly

SMALL = ("--users", "400", "--items", "200", "--events-per-user", "15", "--seed", "3")
SHORT = ("--set", "shortest_history=4", "--set", "longest_history=40")
QUICK = ("--set", "training.batch_size=256", "--set", "tower.dimension=16", "--set", "training.epochs=3")


def test_seeds_are_trained_evaluated_and_compared(tmp_path: Path) -> None:
    """With records of each run; commands for one run name a run of the folder."""
    output("data", "synth", "raw", *SMALL, *SHORT, folder=tmp_path)
    output("data", "prepare", "raw", "--to", "prepared", folder=tmp_path)
    train = ("train", "--data", "prepared", "-e", "demo", *QUICK)
    shown = output(*train, "--run", "many", "--seeds", "0,1", folder=tmp_path)
    assert "seed 1 (2 of 2)" in shown
    assert "deviation" in shown
    again = output(*train, "--run", "many", "--seeds", "0-2", "--resume", folder=tmp_path)
    assert "seed 0 (1 of 3): trained already" in again
    slow = ("--set", "training.learning_rate=1e-6")
    output(*train, *slow, "--run", "one", folder=tmp_path)
    report = json.loads(output("evaluate", "many", "--json", folder=tmp_path))
    assert len(report["towers"]["ndcg@10"]["values"]) == 3
    output("evaluate", "one", folder=tmp_path)
    compared = json.loads(
        output("compare", "one", "many", "--json", "--plot", "plots/one.png", folder=tmp_path)
    )
    assert compared["runs"][1]["difference"]["ndcg@10"]["low"] > 0
    assert compared["settings"]["training.seed"] == [0, [0, 1, 2]]
    assert (tmp_path / "plots" / "one.png").is_file()
    records = {path.name for path in (tmp_path / "many" / "seed-2").iterdir()}
    assert {"history.jsonl", "environment.json", "tensorboard"} <= records
    refused = run("export", "many", folder=tmp_path)
    assert refused.returncode == 1
    assert "holds the runs of several seeds; name one of them, such as many/seed-0" in refused.stderr
