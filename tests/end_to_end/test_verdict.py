"""From a log to a decision between two runs, with the commands that a user types."""

import json
import re
from pathlib import Path

import pytest

from tests.support.command_line import output

pytestmark = pytest.mark.nightly

SMALL = ("--users", "400", "--items", "200", "--events-per-user", "15", "--seed", "3")
SHORT = ("--set", "shortest_history=4", "--set", "longest_history=40")
QUICK = ("--set", "training.batch_size=256", "--set", "tower.dimension=16")


def test_two_runs_are_judged_and_compared(tmp_path: Path) -> None:
    """One as good as untrained; the other is better, and the comparison says so."""
    output("data", "synth", "raw", *SMALL, *SHORT, folder=tmp_path)
    output("data", "prepare", "raw", "--to", "prepared", folder=tmp_path)
    for run, epochs, rate in (("short", 1, 1e-6), ("long", 12, 5e-3)):
        settings = (
            *QUICK,
            *("--set", f"training.epochs={epochs}"),
            *("--set", f"training.learning_rate={rate}"),
        )
        output("train", "--data", "prepared", "--run", run, "-e", "demo", *settings, folder=tmp_path)
    shown = output("evaluate", "short", "--baselines", "co_occurrence, ease", folder=tmp_path)
    assert re.search(r"^verdict\n- .+ popularity: ndcg@10 is 0\.", shown, re.M)
    assert "Worse than EASE:" in shown
    report = json.loads(output("evaluate", "long", "--baselines", "all", "--json", folder=tmp_path))
    baselines = {"popularity", "recent_popularity", "co_occurrence", "item_knn", "ease"}
    assert set(report["differences"]) - {"als"} == baselines
    judged = [
        finding["figures"]["baseline"] for finding in report["verdict"] if finding["kind"] == "baseline"
    ]
    assert judged == list(report["differences"])
    compared = json.loads(output("compare", "short", "long", "--json", folder=tmp_path))
    assert compared["runs"][1]["difference"]["ndcg@10"]["low"] > 0
    assert compared["settings"] == {"training.epochs": [1, 12], "training.learning_rate": [1e-6, 5e-3]}
    assert "training.epochs" in output("compare", "short", "long", folder=tmp_path)
