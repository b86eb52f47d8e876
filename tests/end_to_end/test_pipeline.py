"""From a log to answers: the service ranks what the evaluator ranks, and the next version goes live."""

import csv
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from fastapi.testclient import TestClient

from tests.support.command_line import output
from tests.support.service_app import ADMIN, serving
from tests.support.trained import TrainedShop
from turret.data.prepared import PreparedData
from turret.tower.bundle.bundle import Bundle
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.export.export import export
from turret.training.run import Run
from turret.training.trainer import train

Client = httpx2.Client | TestClient


def trained(data: PreparedData, folder: Path, experiment: str, *settings: str) -> Path:
    """Train an experiment on the data, and give the folder of its bundle."""
    run = Run(folder / "run", load_experiment(experiment, settings), data.folder, data.fingerprint)
    train(run, data, report=lambda _: None)
    export(run, data, folder / "bundles", experiment)
    return folder / "bundles"


@dataclass(frozen=True)
class Expected:
    """Of some users: the history before the test, and the ten items that the evaluator ranks first."""

    rows: list[int]
    histories: list[list[Any]]
    ranked: list[list[Any]]


def ranked_by_the_evaluator(run: Run, data: PreparedData, step: int = 2) -> Expected:
    users = np.arange(0, len(data.users), step)
    scores_of = tower_scores(run.open_model(data), data, "test", data.item_counts("train"))
    (block,) = rank(scores_of, data, users, "test", 10, exclude_seen=True)
    return Expected(
        rows=users.tolist(),
        histories=[data.item_ids.ids(data.history(user, "test")) for user in users.tolist()],
        ranked=[data.item_ids.ids(rows[rows >= 0]) for rows in block],
    )


def answered(client: Client, asked: list[dict[str, Any]]) -> list[list[Any]]:
    """The ids of the answers, which are the same one by one and in batches of 100."""
    asked = [{**body, "k": 10, "exclude_seen": True} for body in asked]
    answers = [ids(client.post("/v1/recommend", json=body).json()) for body in asked]
    for first in range(0, len(asked), 100):
        batch = client.post("/v1/recommend/batch", json={"requests": asked[first : first + 100]})
        assert [ids(answer) for answer in batch.json()["results"]] == answers[first : first + 100]
    return answers


def ids(answer: dict[str, Any]) -> list[Any]:
    assert {item["source"] for item in answer["items"]} == {"towers"}
    return [item["id"] for item in answer["items"]]


def test_the_towers_beat_popularity_in_json_that_others_can_read(shop: TrainedShop) -> None:
    report = json.loads(shop.said["evaluate ids"])
    assert report["users"] == 400
    assert report["towers"]["ndcg@10"]["low"] > report["popularity"]["ndcg@10"]["high"]


def test_the_service_answers_what_the_evaluator_ranks(shop: TrainedShop, tmp_path: Path) -> None:
    """For 200 users the same ten items in order; then by a version that reads features of users, too.

    It takes seconds: both sides rank the catalog for every user, twice.
    """
    expected = ranked_by_the_evaluator(shop.run("ids"), shop.data)
    plain: list[dict[str, Any]] = [{"history": history} for history in expected.histories]
    with (shop.folder / "raw" / "users.csv").open(encoding="utf-8", newline="") as file:
        features = {row.pop("user_id"): row for row in csv.DictReader(file)}
    with serving(shop.copy(tmp_path / "shop").bundles) as client:
        assert answered(client, plain) == expected.ranked
        assert client.post("/admin/activate", json={"version": "features"}, headers=ADMIN).json() == {
            "version": "features",
            "previous": "ids",
        }
        expected = ranked_by_the_evaluator(shop.run("features"), shop.data)
        users = [str(shop.data.users.id(row)) for row in expected.rows]
        plain = [{**body, "exclude": shop.data.cold_items().ids} for body in plain]  # in no evaluation
        full = [{**body, "features": features[user]} for user, body in zip(users, plain, strict=True)]
        assert answered(client, full) == expected.ranked
        without = answered(client, plain)
    changed = sum(one != other for one, other in zip(without, expected.ranked, strict=True))
    assert changed > 100, "the features of the requests hardly matter"


def test_a_tower_of_times_answers_at_a_time_what_the_evaluator_ranks_then(
    shop: TrainedShop, tmp_path: Path
) -> None:
    """With the times of a history that is sent, and with those of stored events.

    It takes seconds: the shared shop has no version that reads times, so one is trained here.
    """
    user_tower = 'tower.user={kind="transformer", times=true, history_length=10, blocks=1}'
    settings = ("tower.dimension=16", "training.epochs=1", "training.batch_size=512")
    bundles = trained(shop.data, tmp_path, "transformer", user_tower, *settings)
    data = shop.data
    expected = ranked_by_the_evaluator(Run.read(tmp_path / "run"), data, step=8)
    sent, without = [], []
    with serving(bundles) as client:
        for user, history in zip(expected.rows, expected.histories, strict=True):
            first, end = int(data.offsets[user]), int(data.splits[user, 1])
            times = [float(at) / 1000 for at in data.times[first:end]]
            at = float(data.times[end]) / 1000
            sent.append({"history": history, "history_times": times, "at": at})
            without.append({"history": history})
            events = [
                {"event_id": f"{user}-{n}", "user_id": user, "item_id": item, "time": time}
                for n, (item, time) in enumerate(zip(history, times, strict=True))
            ]
            assert client.post("/v1/events", json={"events": events}).status_code == 200
        assert answered(client, sent) == expected.ranked
        stored = [{"user_id": user, "at": body["at"]} for user, body in zip(expected.rows, sent, strict=True)]
        assert answered(client, stored) == expected.ranked
        plain = answered(client, without)
    changed = sum(one != other for one, other in zip(plain, expected.ranked, strict=True))
    assert changed > 15, "the times of the requests hardly matter"


def features(data: PreparedData, row: int) -> dict[str, Any]:
    """Those of an item that the model reads, as a shop would compute them from its own item."""
    released = date.fromisoformat(data.fields["released"][row])
    return {
        **{name: data.fields[name][row] for name in ("title", "genres", "price")},
        "released_days": (released - date(1970, 1, 1)).days,
        "released_month": str(released.month),
    }


def test_a_new_item_comes_near_the_one_whose_features_it_has(shop: TrainedShop, tmp_path: Path) -> None:
    """The most popular ones, of which most is learnt that their features don't say.

    Features of another item do not bring it near: the negative control.
    """
    copy = shop.copy(tmp_path / "shop")
    output("activate", "features", "--bundles", "bundles", folder=copy.folder)
    data = shop.data
    popular = np.argsort(-data.item_counts("train"), kind="stable")[:10].tolist()
    places = []
    with serving(copy.bundles) as client:
        for number, row in enumerate(popular):
            body = {"features": features(data, row), "fields": {"title": "New"}}
            assert client.put(f"/v1/items/new-{number}", json=body).json()["vector"] == "features"
            near = client.get(f"/v1/items/new-{number}/similar?k=1000").json()["items"]
            known = [item["id"] for item in near if not str(item["id"]).startswith("new-")]
            places.append(known.index(data.item_ids.id(row)))
            shown = client.get(f"/v1/items/new-{number}").json()
            assert (shown["fresh"], shown["features"]) == (True, body["features"])
    assert np.median(places) < 15, places  # of 300; by chance it is 150
    assert max(places) < 90, places
    bundle = Bundle.open(copy.bundles / "features")
    assert bundle.item_encoder is not None
    vectors = bundle.item_encoder.encode([features(data, row) for row in range(len(data.item_ids))])
    scores = vectors @ bundle.vectors.T
    own = (scores > np.diag(scores)[:, None]).sum(axis=1)
    others = (scores[::-1] > np.diag(scores[::-1])[:, None]).sum(axis=1)
    assert np.median(own) < 15 < 45 < np.median(others)
