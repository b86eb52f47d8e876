"""Events that a service has stored become training data, and its next version."""

import csv
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.command_line import TURRET, environment, invoke, output, serving
from tests.support.trained import TrainedShop
from tests.support.until import until
from turret.data.prepared import PreparedData

QUICK = ("--set", "training.batch_size=128", "--set", "training.epochs=4")
STORE = ("--store", "sqlite:///history.sqlite")
FOLDERS = ("--data", "prepared", "--bundles", "bundles", "--work", "work")
RETRAIN = ("retrain", *FOLDERS, "--anew-share", "1", *STORE, *QUICK)
Rows = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Live:
    """A service on the bundles of `folder`, and the events after its training in two parts."""

    folder: Path
    client: httpx2.Client
    admin: str
    parts: list[Rows]

    def send(self, rows: Rows) -> None:
        """Store events by the API."""
        events = [
            {
                "event_id": f"{row['user_id']}-{row['item_id']}-{row['timestamp']}",
                "user_id": row["user_id"],
                "item_id": row["item_id"],
                "time": int(row["timestamp"]),
            }
            for row in rows
        ]
        for first in range(0, len(events), 500):
            batch = events[first : first + 500]
            assert self.client.post("/v1/events", json={"events": batch}).json()["stored"] == len(batch)

    def retrain(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return invoke(*RETRAIN, "--url", self.admin, "--margin", "1", *options, folder=self.folder)

    def version(self) -> str:
        return str(self.client.get("/v1/version").json()["version"])

    def events(self) -> int:
        return len(PreparedData.open(self.folder / "prepared").event_items)

    def records(self) -> list[dict[str, Any]]:
        shown = output("retrain", "--history", "--json", "--work", "work", folder=self.folder)
        listed: list[dict[str, Any]] = json.loads(shown)
        return listed


def read_rows(shop: TrainedShop) -> tuple[Rows, Rows]:
    """The events of the synthetic log until the first training, and those after it."""
    with (shop.folder / "raw" / "events.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    cut = len(rows) * 2 // 3
    return rows[:cut], rows[cut:]


@pytest.fixture(scope="module")
def begun(shop: TrainedShop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop at the time of its first training, with the live version `first`."""
    folder = tmp_path_factory.mktemp("begun")
    rows, _ = read_rows(shop)
    with (folder / "early.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    output("data", "prepare", "early.csv", "--to", "prepared", folder=folder)
    first = ("--set", "training.epochs=5", "--set", "tower.dimension=16", "--set", "training.batch_size=256")
    output("train", "--data", "prepared", "--run", "run", "-e", "demo", *first, folder=folder)
    output("export", "run", "--bundles", "bundles", "--version", "first", folder=folder)
    return folder


@pytest.fixture
def live(begun: Path, shop: TrainedShop, tmp_path: Path) -> Iterator[Live]:
    folder = tmp_path / "shop"
    shutil.copytree(begun, folder)
    _, later = read_rows(shop)
    half = len(later) // 2
    store = f"sqlite:///{folder}/history.sqlite"
    with serving("--bundles", folder / "bundles", "--store", store, folder=folder) as service:
        yield Live(folder, service.client, service.admin, [later[:half], later[half:]])


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

    again = live.retrain()
    expected = "nothing_new: No new events since the last training: nothing is trained.\n"
    assert (again.returncode, again.stdout) == (0, expected)

    live.send(live.parts[1])
    untrained = ("--mode", "anew", "--set", "training.learning_rate=1e-9", "--margin", "0.1")
    worse = live.retrain(*untrained)
    assert (worse.returncode, worse.stdout) == (3, "")
    assert f" is worse than {version}: ndcg@10 is " in worse.stderr
    assert live.version() == version
    records = live.records()
    assert [record["decision"] for record in records] == ["activated", "nothing_new", "refused"]
    assert [record["new_events"] for record in records] == [len(live.parts[0]), 0, len(live.parts[1])]
    assert records[0]["version"] == version
    assert records[2]["figures"]["high"] < 0


@pytest.mark.nightly
@pytest.mark.fault(72)
def test_a_killed_training_goes_on_without_losing_or_doubling_events(live: Live) -> None:
    before = live.events()
    live.send(live.parts[0])
    # Enough epochs that it has not ended when it is stopped.
    long = ("--set", "training.epochs=20", "--set", "training.patience=20")
    command = [*TURRET, *RETRAIN, "--url", live.admin, "--margin", "1", *long]
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
    assert [record["new_events"] for record in records] == [len(part) for part in live.parts[:2]]
    assert live.version() == records[1]["version"]
