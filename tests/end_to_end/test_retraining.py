"""Events that a service has stored become training data, and its next version."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.command_line import TURRET, environment, invoke, output, serving
from tests.support.trained import trained_shop
from tests.support.until import until
from turret.client import Client
from turret.data.prepared import PreparedData

RETRAIN = (
    *("retrain", "--data", "prepared", "--bundles", "bundles", "--work", "work", "--anew-share", "1"),
    *("--store", "sqlite:///history.sqlite", "--margin", "1"),
    *("--set", "training.batch_size=128", "--set", "training.epochs=4"),
)


@dataclass(frozen=True)
class Live:
    """A service on the bundles of `folder`, and the events after its training in two parts."""

    folder: Path
    client: Client
    admin: str
    parts: list[pl.DataFrame]

    def send(self, events: pl.DataFrame) -> None:
        """Store events by the API."""
        given: Any = events.rename({"timestamp": "time"}).iter_rows(named=True)
        assert self.client.store_events(given).stored == len(events)

    def retrain(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return invoke(*RETRAIN, "--url", self.admin, *options, folder=self.folder)

    def version(self) -> str:
        return self.client.version().version

    def events(self) -> int:
        return len(PreparedData.open(self.folder / "prepared").event_items)

    def records(self) -> list[dict[str, Any]]:
        shown = output("retrain", "--history", "--json", "--work", "work", folder=self.folder)
        listed: list[dict[str, Any]] = json.loads(shown)
        return listed


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """The synthetic log; its first two thirds are those of the first training."""
    return pl.read_csv(trained_shop().folder / "raw" / "events.csv")


@pytest.fixture(scope="module")
def begun(log: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop at the time of its first training, with the live version `first`."""
    folder = tmp_path_factory.mktemp("begun")
    log[: len(log) * 2 // 3].write_csv(folder / "early.csv")
    output("data", "prepare", "early.csv", "--to", "prepared", folder=folder)
    first = ("--set", "training.epochs=5", "--set", "tower.dimension=16", "--set", "training.batch_size=256")
    output("train", "--data", "prepared", "--run", "run", "-e", "demo", *first, folder=folder)
    output("export", "run", "--bundles", "bundles", "--version", "first", folder=folder)
    return folder


@pytest.fixture
def live(begun: Path, log: pl.DataFrame, tmp_path: Path) -> Iterator[Live]:
    folder = shutil.copytree(begun, tmp_path / "shop")
    cuts = [len(log) * sixth // 6 for sixth in (4, 5, 6)]
    store = f"sqlite:///{folder}/history.sqlite"
    with (
        serving("--bundles", folder / "bundles", "--store", store, folder=folder) as service,
        Client(service.url) as client,
    ):
        yield Live(folder, client, service.admin, [log[cuts[0] : cuts[1]], log[cuts[1] : cuts[2]]])


@pytest.mark.process
def test_served_events_become_the_live_version_and_a_worse_one_is_refused(live: Live) -> None:
    before = live.events()
    live.send(live.parts[0])
    done = live.retrain()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("activated: ")
    assert " is not worse than first: ndcg@10 is " in done.stdout
    version = live.version()
    assert version != "first"
    assert live.events() == before + len(live.parts[0])

    live.send(live.parts[1])
    untrained = ("--mode", "anew", "--set", "training.learning_rate=1e-9", "--margin", "0.1")
    worse = live.retrain(*untrained)
    assert (worse.returncode, worse.stdout) == (3, "")
    assert f" is worse than {version}: ndcg@10 is " in worse.stderr
    assert live.version() == version
    records = live.records()
    assert [record["decision"] for record in records] == ["activated", "refused"]
    assert [record["new_events"] for record in records] == [len(part) for part in live.parts]
    assert records[0]["version"] == version
    assert records[1]["figures"]["high"] < 0


@pytest.mark.nightly
@pytest.mark.fault(72)
def test_a_killed_training_goes_on_without_losing_or_doubling_events(live: Live) -> None:
    before = live.events()
    live.send(live.parts[0])
    # Enough epochs that it has not ended when it is stopped.
    long = ("--set", "training.epochs=20", "--set", "training.patience=20")
    command = [*TURRET, *RETRAIN, "--url", live.admin, *long]
    with subprocess.Popen(command, cwd=live.folder, env=environment(), stderr=subprocess.DEVNULL) as process:
        runs = live.folder / "work" / "runs"
        until(lambda: list(runs.glob("*/checkpoint.safetensors")), "the first checkpoint of the training")
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None, "it ended before it was stopped"
        busy = live.retrain()
        assert busy.returncode == 1
        assert "another `turret retrain` is running in work" in busy.stderr
        process.send_signal(signal.SIGKILL)
    assert live.version() == "first"
    live.send(live.parts[1])
    done = live.retrain(*long)
    assert done.returncode == 0, done.stderr
    assert "was interrupted; it goes on with the step train" in done.stderr
    assert "Resuming at step " in done.stderr
    assert live.events() == before + len(live.parts[0])
    second = live.retrain()
    assert second.returncode == 0, second.stderr
    assert live.events() == before + len(live.parts[0]) + len(live.parts[1])
    records = live.records()
    assert [record["new_events"] for record in records] == [len(part) for part in live.parts]
    assert live.version() == records[1]["version"]
