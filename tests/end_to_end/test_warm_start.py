"""A day later: new events and new items, trained from what is served, with the commands that a user types."""

import csv
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import output, serving
from tests.support.service_process import plain_client
from turret.tower.bundle.bundle import Bundle

pytestmark = pytest.mark.nightly

SMALL = ("--users", "300", "--items", "250", "--events-per-user", "15", "--seed", "5")
SHORT = ("--set", "shortest_history=4", "--set", "longest_history=40")
QUICK = ("--set", "training.batch_size=256", "--set", "tower.dimension=16", "--set", "training.epochs=3")
NEW = "i-new"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def a_day_passes(folder: Path) -> str:
    """Leave the oldest nine tenths of the log in `raw`, put all of it into `later`, and give the day between.

    Later, there is a twin of the newest item, which all users with an event after that day take in the end.
    """
    events = read(folder / "raw" / "events.csv")
    cut = int(events[len(events) * 9 // 10]["timestamp"])
    items, last = read(folder / "raw" / "items.csv"), events[-1]
    (twin,) = (row for row in items if row["item_id"] == last["item_id"])
    late = sorted({row["user_id"] for row in events if int(row["timestamp"]) >= cut})
    seen = [{"user_id": user, "item_id": NEW, "timestamp": str(int(last["timestamp"]) + 60)} for user in late]
    (folder / "later").mkdir()
    write(folder / "later" / "events.csv", [*events, *seen])
    write(folder / "later" / "items.csv", [*items, {**twin, "item_id": NEW}])
    write(folder / "later" / "users.csv", read(folder / "raw" / "users.csv"))
    write(folder / "raw" / "events.csv", [row for row in events if int(row["timestamp"]) < cut])
    return datetime.fromtimestamp(cut, UTC).isoformat()


@pytest.mark.parametrize("experiment", ["demo", "dssm"])
def test_a_day_of_events_becomes_the_next_version(tmp_path: Path, experiment: str) -> None:
    """It replays its recorded queries, goes live in the running service, and knows the item that is new."""
    output("data", "synth", "raw", *SMALL, *SHORT, folder=tmp_path)
    since = a_day_passes(tmp_path)
    output("data", "prepare", "raw", "--to", "first", folder=tmp_path)
    output("train", "--data", "first", "--run", "one", "-e", experiment, *QUICK, folder=tmp_path)
    output("export", "one", "--bundles", "bundles", "--version", "one", folder=tmp_path)
    with serving(tmp_path / "bundles") as service, plain_client(service.url) as client:
        assert client.get(f"/v1/items/{NEW}/similar").status_code == 404
        output("data", "prepare", "later", "--to", "second", folder=tmp_path)
        words = ("--from", "bundles", "--data", "second", "--run", "two")
        said = output("train", *words, "--set", f"training.since={since}", folder=tmp_path)
        output("export", "two", "--bundles", "bundles", "--version", "two", folder=tmp_path)
        output("activate", "two", "--bundles", "bundles", "--url", service.admin, folder=tmp_path)
        assert client.get("/v1/version").json()["version"] == "two"
        assert len(client.get(f"/v1/items/{NEW}/similar", params={"k": 5}).json()["items"]) == 5
    kept, new, gone = map(int, re.findall(r"(\d+) (?:items keep|are new|are gone)", said.splitlines()[0]))
    one, two = (Bundle.open(tmp_path / "bundles" / name) for name in ("one", "two"))
    assert (kept + new, kept + gone) == (len(two.vocabulary), len(one.vocabulary))
    assert new >= 1
    assert two.manifest.fingerprints["origin"] == "one"
    rows = [bundle.vocabulary.known_rows(one.vocabulary.ids(range(100)))[0] for bundle in (one, two)]
    stayed = float(np.mean(np.sum(one.vectors[rows[0]] * two.vectors[rows[1]], axis=1)))
    assert stayed > 0.7, "known items are not where they were"
