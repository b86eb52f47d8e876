"""Histories go round: from the log into the store, from the store into the log, with a user's commands."""

import csv
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.command_line import TURRET, environment, output, run
from tests.support.service_process import plain_client
from turret.data.prepared import PreparedData
from turret.tower.bundle.bundle import Bundle

pytestmark = pytest.mark.nightly

SMALL = ("--users", "200", "--items", "150", "--events-per-user", "12", "--seed", "5")
SHORT = ("--set", "shortest_history=4", "--set", "longest_history=30")
QUICK = ("--set", "training.batch_size=256", "--set", "tower.dimension=16", "--set", "training.epochs=2")
STORE = ("--store", "sqlite:///history.sqlite")


@contextmanager
def serving(folder: Path) -> Iterator[httpx2.Client]:
    command = [*TURRET, "serve", "--bundles", "bundles", "--port", "0", *STORE]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            (url, *_) = re.findall(r"http://[\d.:]+\d", process.stdout.readline())
            with plain_client(url) as client:
                yield client
        finally:
            process.terminate()
            process.wait(30)


def sources(client: httpx2.Client, user: str) -> set[str]:
    answer: dict[str, Any] = client.post("/v1/recommend", json={"user_id": user, "k": 5}).json()
    assert not answer["degraded"]
    return {item["source"] for item in answer["items"]}


def test_a_user_of_the_log_is_recommended_by_id_and_new_events_become_training_data(tmp_path: Path) -> None:
    output("data", "synth", "raw", *SMALL, *SHORT, folder=tmp_path)
    output("data", "prepare", "raw", "--to", "prepared", folder=tmp_path)
    output("train", "--data", "prepared", "--run", "run", "-e", "demo", *QUICK, folder=tmp_path)
    output("export", "run", "--bundles", "bundles", "--version", "first", folder=tmp_path)
    before = PreparedData.open(tmp_path / "prepared")
    until = Bundle.open(tmp_path / "bundles" / "first").manifest.data_until
    assert until == before.manifest.time.until
    user, item = str(before.users.id(3)), before.item_ids.id(0)
    with serving(tmp_path) as client:
        assert sources(client, user) == {"popular"}
        loaded = output("history", "load", "--data", "prepared", *STORE, folder=tmp_path)
        count = len(before.event_items)
        assert f"{count:,} events of {len(before.users):,} users: {count:,} are new in" in loaded
        assert sources(client, user) == {"towers"}
        assert client.get("/v1/version").json()["data_until"] == until
        events = [
            {"event_id": f"e{place}", "user_id": name, "item_id": item}
            for place, name in enumerate([user, "me"])
        ]
        assert client.post("/v1/events", json={"events": events}).json()["stored"] == 2
        dumped = output(
            "history", "dump", "--since", str(until), "--to", "new.parquet", *STORE, folder=tmp_path
        )
    # The newest event of the log is in both, and is not doubled.
    assert dumped.startswith("3 events of")
    assert "2 of 3 events are new" in output(
        "data", "append", "new.parquet", "--to", "prepared", folder=tmp_path
    )
    grown = PreparedData.open(tmp_path / "prepared")
    assert len(grown.event_items) == len(before.event_items) + 2
    assert grown.users.row("me") is not None
    again = output("history", "load", "--data", "prepared", *STORE, folder=tmp_path)
    assert ": 0 are new in" in again, "events that came from the store are in it already"
    warm = output(
        "train", "--from", "bundles", "--data", "prepared", "--run", "next", *QUICK, folder=tmp_path
    )
    assert f"The bundle was trained on events until {until}." in warm


def test_raw_events_are_loaded_with_the_columns_named_and_a_dump_gives_them_back(tmp_path: Path) -> None:
    rows = [
        ("ann", "x", "2024-05-01 10:00"),
        ("ann", "y", "2024-05-02 10:00"),
        ("bob", "", "2024-05-01 11:00"),
    ]
    with (tmp_path / "orders.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("customer", "sku", "ordered_at"), *rows])
    named = ("--user", "customer", "--item", "sku", "--time", "ordered_at", *STORE)
    refused = run("history", "load", "orders.csv", *named, folder=tmp_path)
    assert refused.returncode == 1
    assert "null item: 1" in refused.stderr
    loaded = output("history", "load", "orders.csv", *named, "--on-bad", "drop", folder=tmp_path)
    assert "left out: null item (1)" in loaded
    assert "2 events of 1 users: 2 are new" in loaded
    output("history", "dump", "--to", "events.parquet", *STORE, folder=tmp_path)
    described = output("data", "prepare", "events.parquet", "--to", "again", folder=tmp_path)
    assert "2024-05-01T10:00:00 to 2024-05-02T10:00:00" in described


def test_a_load_that_was_killed_continues_and_doubles_nothing(tmp_path: Path) -> None:
    count = 60_000
    rows = ((place % 999, place % 77, 1_700_000_000 + place) for place in range(count))
    with (tmp_path / "log.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("user_id", "item_id", "timestamp"), *rows])
    output("data", "prepare", "log.csv", "--to", "prepared", folder=tmp_path)
    words = ["history", "load", "--data", "prepared", *STORE]

    def stored() -> int:
        with closing(sqlite3.connect(f"file:{tmp_path}/history.sqlite?mode=ro", uri=True)) as connection:
            (number,) = connection.execute("SELECT count(*) FROM events").fetchone()
        return int(number)

    with subprocess.Popen([*TURRET, *words], cwd=tmp_path, env=environment()) as process:
        killed = 0
        while not killed:
            assert process.poll() is None, "it ended before it was killed"
            with suppress(sqlite3.OperationalError):  # no file, or no table yet
                killed = stored()
        process.kill()
    killed = stored()
    assert 0 < killed < count
    assert f"{count - killed:,} are new" in output(*words, folder=tmp_path)
    assert stored() == count


def test_a_store_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    for words in (("history", "load", "log.csv"), ("history", "dump", "--to", "e.parquet")):
        (tmp_path / "log.csv").write_text("user_id,item_id,timestamp\na,x,1700000000\n")
        done = run(*words, "--store", "nowhere://x", folder=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "no store has the address 'nowhere://x'; name sqlite:///PATH" in done.stderr
