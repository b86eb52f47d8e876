"""A tower that reads times, from the log to the answer, with the commands that a user types."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from tests.support.command_line import output, serving
from tests.support.service_process import plain_client
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.run import Run

pytestmark = pytest.mark.nightly

SIZE = ("--users", "120", "--items", "120", "--events-per-user", "15", "--seed", "3")
SHORT = ("--set", "shortest_history=4", "--set", "longest_history=30")
SETTINGS = (
    'tower.user={kind="transformer", times=true, history_length=10, blocks=1}',
    "tower.dimension=16",
    "training.epochs=3",
    "training.batch_size=128",
    "training.learning_rate=0.02",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small shop with a run and a bundle of it."""
    folder = tmp_path_factory.mktemp("times")
    output("data", "synth", "raw", *SIZE, *SHORT, folder=folder)
    output("data", "prepare", "raw", "--to", "prepared", folder=folder)
    changes = [word for setting in SETTINGS for word in ("--set", setting)]
    output("train", "--data", "prepared", "--run", "run", "-e", "transformer", *changes, folder=folder)
    output("export", "run", "--bundles", "bundles", "--version", "timed", folder=folder)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx2.Client]:
    with (
        serving(folder / "bundles") as service,
        plain_client(service.url) as client,
    ):
        yield client


def test_the_service_answers_at_a_time_what_the_evaluator_ranks_at_that_time(
    folder: Path, client: httpx2.Client
) -> None:
    """With the times of a history that is sent, and with those of stored events."""
    run = Run.read(folder / "run")
    data = run.open_data()
    users = np.arange(120)
    scores_of = tower_scores(run.open_model(data), data, "test", data.item_counts("train"))
    (block,) = rank(scores_of, data, users, "test", 10, exclude_seen=True)
    expected = [data.item_ids.ids(rows[rows >= 0]) for rows in block.rows]

    def answered(body: dict[str, Any]) -> list[Any]:
        answer = client.post("/v1/recommend", json={"k": 10, **body}).json()
        assert {item["source"] for item in answer["items"]} == {"towers"}
        return [item["id"] for item in answer["items"]]

    sent, stored, without = [], [], []
    for user in users.tolist():
        history = data.item_ids.ids(data.history(user, "test"))
        first, end = int(data.offsets[user]), int(data.splits[user, 1])
        times = [float(at) / 1000 for at in data.times[first:end]]
        at = float(data.times[end]) / 1000
        sent.append(answered({"history": history, "history_times": times, "at": at}))
        events = [
            {"event_id": f"{user}-{n}", "user_id": user, "item_id": item, "time": time}
            for n, (item, time) in enumerate(zip(history, times, strict=True))
        ]
        assert client.post("/v1/events", json={"events": events}).status_code == 200
        stored.append(answered({"user_id": user, "at": at}))
        without.append(answered({"history": history}))
    assert sent == expected
    assert stored == expected
    changed = sum(one != other for one, other in zip(without, expected, strict=True))
    assert changed > 40, "the times of the requests hardly matter"
