"""A shop's first model, by the commands of a user without a chosen experiment."""

import json
from pathlib import Path

import pytest

import turret
from tests.support.command_line import output

pytestmark = pytest.mark.nightly

SMALL = ("--users", "400", "--items", "200", "--events-per-user", "15", "--seed", "3")
SETTINGS = {"training.epochs": 6, "tower.dimension": 32}
SHORT = ("--set", "shortest_history=4", "--set", "longest_history=40")


def test_the_data_chooses_an_experiment_that_beats_popularity(tmp_path: Path) -> None:
    """The reasons are printed, stored and in the JSON; the chosen experiment can be trained by its file."""
    output("data", "synth", "raw", *SMALL, *SHORT, folder=tmp_path)
    output("data", "prepare", "raw", "--to", "prepared", folder=tmp_path)
    settings = ("--set", "training.epochs=6", "--set", "tower.dimension=32")
    command = ("train", "--data", "prepared", "--run", "run", "--experiment", "auto", *settings)
    printed = output(*command, folder=tmp_path)
    assert "auto: The order of the events predicts the next item" in printed
    assert "auto: The data has features" in printed
    report = json.loads(output("evaluate", "run", "--json", folder=tmp_path))
    assert report["auto"]["picked"] in {"transformer", "features"}
    assert [trial["candidate"] for trial in report["auto"]["trials"]] == ["transformer", "features"]
    assert report["differences"]["popularity"]["ndcg@10"]["low"] > 0
    again = turret.train(tmp_path / "prepared", tmp_path / "again", experiment="auto", settings=SETTINGS)
    assert again.choice is not None
    assert again.choice["picked"] == report["auto"]["picked"]
    assert again.run.experiment == turret.open_run(tmp_path / "run").run.experiment
    file = str(tmp_path / "run" / "experiment.toml")
    named = ("train", "--data", "prepared", "--run", "named", "--experiment", file)
    assert "auto: " not in output(*named, folder=tmp_path)
