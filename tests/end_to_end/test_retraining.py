"""Events that a service has stored become its next version, by the command that a timer runs."""

import csv
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.command_line import TURRET, environment, output, run
from tests.support.service_process import plain_client
from turret.data.prepared import PreparedData
from turret.service.client.commands import read_routes

pytestmark = pytest.mark.nightly

SMALL = ("--users", "200", "--items", "150", "--events-per-user", "15", "--seed", "5")
SHORT = ("--set", "shortest_history=5", "--set", "longest_history=30")
QUICK = ("--set", "training.batch_size=128", "--set", "training.epochs=4")
STORE = ("--store", "sqlite:///history.sqlite")
FOLDERS = ("--data", "prepared", "--bundles", "bundles", "--work", "work")
RETRAIN = ("retrain", *FOLDERS, "--anew-share", "1", *STORE, *QUICK)
Rows = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Shop:
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
        assert self.client.post("/v1/events", json={"events": events}).json()["stored"] == len(events)

    def retrain(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return run(*RETRAIN, "--url", self.admin, "--margin", "1", *options, folder=self.folder)

    def version(self) -> str:
        return str(self.client.get("/v1/version").json()["version"])

    def events(self) -> int:
        return len(PreparedData.open(self.folder / "prepared").event_items)

    def records(self) -> list[dict[str, Any]]:
        shown = output("retrain", "--history", "--json", "--work", "work", folder=self.folder)
        listed: list[dict[str, Any]] = json.loads(shown)
        return listed


def read_rows(folder: Path) -> tuple[Rows, Rows]:
    """The events of the synthetic log until the first training, and those after it."""
    with (folder / "raw" / "events.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    cut = len(rows) * 2 // 3
    return rows[:cut], rows[cut:]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop with the live version `first`, as commands make it."""
    tmp_path = tmp_path_factory.mktemp("trained")
    output("data", "synth", "raw", *SMALL, *SHORT, folder=tmp_path)
    rows, _ = read_rows(tmp_path)
    with (tmp_path / "early.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    output("data", "prepare", "early.csv", "--to", "prepared", folder=tmp_path)
    first = ("--set", "training.epochs=5", "--set", "tower.dimension=16")
    output("train", "--data", "prepared", "--run", "run", "-e", "demo", *first, folder=tmp_path)
    output("export", "run", "--bundles", "bundles", "--version", "first", folder=tmp_path)
    return tmp_path


@pytest.fixture
def shop(trained: Path, tmp_path: Path) -> Iterator[Shop]:
    folder = tmp_path / "shop"
    shutil.copytree(trained, folder)
    _, later = read_rows(folder)
    half = len(later) // 2
    with serving(folder) as (url, admin), plain_client(url) as client:
        yield Shop(folder, client, admin, [later[:half], later[half:]])


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str]]:
    command = [*TURRET, "serve", "--bundles", "bundles", "--port", "0", *STORE]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=pipe, stderr=nothing, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url, *_, admin = re.findall(r"http://[\d.:]+\d", process.stdout.readline())
            yield url, admin
        finally:
            process.terminate()
            process.wait(30)


def test_served_events_become_the_live_version_and_a_worse_one_is_refused(shop: Shop) -> None:
    before = shop.events()
    shop.send(shop.parts[0])
    done = shop.retrain()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("activated: ")
    assert " is not worse than first: ndcg@10 is " in done.stdout
    live = shop.version()
    assert live != "first"
    assert shop.events() == before + len(shop.parts[0])

    again = shop.retrain()
    expected = "nothing_new: No new events since the last training: nothing is trained.\n"
    assert (again.returncode, again.stdout) == (0, expected)

    shop.send(shop.parts[1])
    untrained = ("--mode", "anew", "--set", "training.learning_rate=1e-9", "--margin", "0.1")
    worse = shop.retrain(*untrained)
    assert (worse.returncode, worse.stdout) == (3, "")
    assert f" is worse than {live}: ndcg@10 is " in worse.stderr
    assert shop.version() == live
    records = shop.records()
    assert [record["decision"] for record in records] == ["activated", "nothing_new", "refused"]
    assert [record["new_events"] for record in records] == [len(shop.parts[0]), 0, len(shop.parts[1])]
    assert records[0]["version"] == live
    assert records[2]["figures"]["high"] < 0


@pytest.mark.fault(72)
def test_a_killed_training_goes_on_without_losing_or_doubling_events(shop: Shop) -> None:
    before = shop.events()
    shop.send(shop.parts[0])
    command = [*TURRET, *RETRAIN, "--url", shop.admin, "--margin", "1"]
    with subprocess.Popen(command, cwd=shop.folder, env=environment(), stderr=subprocess.DEVNULL) as process:
        wait_for_checkpoint(process, shop.folder / "work" / "runs")
        process.send_signal(signal.SIGSTOP)
        busy = shop.retrain()
        assert busy.returncode == 1
        assert "another `turret retrain` is running in work" in busy.stderr
        process.send_signal(signal.SIGKILL)
    assert shop.version() == "first"
    shop.send(shop.parts[1])
    done = shop.retrain()
    assert done.returncode == 0, done.stderr
    assert "was interrupted; it goes on with the step train" in done.stderr
    assert "Resuming at step " in done.stderr
    assert shop.events() == before + len(shop.parts[0])
    second = shop.retrain()
    assert second.returncode == 0, second.stderr
    assert shop.events() == before + len(shop.parts[0]) + len(shop.parts[1])
    records = shop.records()
    assert [record["new_events"] for record in records] == [len(part) for part in shop.parts[:2]]
    assert shop.version() == records[1]["version"]


def wait_for_checkpoint(process: "subprocess.Popen[bytes]", runs: Path) -> None:
    end = time.monotonic() + 60
    while not list(runs.glob("*/checkpoint.safetensors")):
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_canary_is_promoted_by_the_next_run(shop: Shop) -> None:
    shop.send(shop.parts[0])
    first = shop.retrain("--canary", "0.5")
    assert first.returncode == 0, first.stderr
    canary = shop.records()[0]["version"]
    assert (shop.version(), shop.records()[0]["decision"]) == ("first", "canary")
    routes = read_routes(shop.folder / "bundles", shop.admin)
    assert routes["canary"] == {"version": canary, "share": 0.5}

    shop.send(shop.parts[1])
    second = shop.retrain("--canary", "0.5")
    assert second.returncode == 0, second.stderr
    assert shop.version() == canary
    record = shop.records()[1]
    assert (record["canary"]["version"], record["canary"]["decision"]) == (canary, "promoted")
    assert record["origin"] == canary
    routes = read_routes(shop.folder / "bundles", shop.admin)
    assert routes["canary"] == {"version": record["version"], "share": 0.5}
