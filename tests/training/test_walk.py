"""CONTRIBUTING.md lists the functions from a CSV to a gradient: each is called, in that order."""

import re
from pathlib import Path

from tests.support.places import ROOT
from tests.support.walk import Stop, Walk, walked
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.loop.trainer import Trainer
from turret.training.run import Run

STEP = ("training/loop/optimiser.py", "Optimiser.step")


def listed() -> list[Stop]:
    """File and qualified name of each stop."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    part = text.partition("### The path of a history")[2].partition("\n### ")[0]
    stops: list[Stop] = []
    for file, name in re.findall(r"^\d+\. (?:`([\w/]+\.py)` )?`([\w.]+)`", part, re.MULTILINE):
        stops.append((file or stops[-1][0], name))
    return stops


def test_a_history_takes_the_listed_path(tmp_path: Path) -> None:
    rows = [
        f"u{user},i{(user * 3 + step) % 12},{1_700_000_000 + step}" for user in range(30) for step in range(8)
    ]
    (tmp_path / "events.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    with walked() as walk:
        prepare(PrepareConfig.model_validate({"source": tmp_path / "events.csv"}), tmp_path / "prepared")
        data = PreparedData.open(tmp_path / "prepared")
        experiment = load_experiment("youtubednn", ["training.device=cpu", "training.epochs=1"])
        run = Run(tmp_path / "run", experiment, data.folder, data.fingerprint)
        run.write()
        Trainer(run, data, report=lambda line: None).train()
    stops = listed()
    assert len(stops) > 30
    assert [stop for stop in stops if stop not in walk.calls] == []
    places = [walk.calls.index(stop) for stop in stops]
    assert [stops[n] for n in range(1, len(stops)) if places[n] < places[n - 1]] == []
    functions, files, returns = Walk(functions=walk.functions[: walk.functions.index(STEP)]).size
    # A longer walk tires whoever follows it; a shorter one lowers these numbers.
    assert (functions <= 226, files <= 55, returns <= 82) == (True,) * 3, (functions, files, returns)
