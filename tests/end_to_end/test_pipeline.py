"""From a log to answers: the service ranks what the evaluator ranks, and the next version goes live."""

import csv
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

import turret
from tests.support.service_app import activate, ids, post_events, recommended, serving
from tests.support.trained import TrainedShop, trained_shop
from turret.data.prepared import PreparedData
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.run import Run


@pytest.fixture
def shop() -> TrainedShop:
    return trained_shop()


def ranked_by_the_evaluator(
    run: Run, data: PreparedData, step: int = 2
) -> tuple[list[int], list[list[Any]], list[list[Any]]]:
    """Some users, their histories before the test, and the ten items that the evaluator ranks first."""
    users = np.arange(0, len(data.users), step)
    scores_of = tower_scores(run.open_model(data), data, "test", data.item_counts("train"))
    (block,) = rank(scores_of, data, users, "test", 10, exclude_seen=True)
    histories = [data.item_ids.ids(data.history(user, "test")) for user in users.tolist()]
    return users.tolist(), histories, [data.item_ids.ids(rows[rows >= 0]) for rows in block["all"]]


def answered(client: TestClient, asked: list[dict[str, Any]]) -> list[list[Any]]:
    """The ids of the answers, which are the same one by one and in batches of 100."""
    asked = [{**body, "k": 10, "exclude_seen": True} for body in asked]
    answers = [recommended(client, **body) for body in asked]
    for first in range(0, len(asked), 100):
        batch = client.post("/v1/recommend/batch", json={"requests": asked[first : first + 100]})
        assert [*map(ids, batch.json()["results"])] == [*map(ids, answers[first : first + 100])]
    assert {item["source"] for answer in answers for item in answer["items"]} == {"towers"}
    return [*map(ids, answers)]


def test_the_towers_beat_popularity_in_json_that_others_can_read(shop: TrainedShop) -> None:
    report = json.loads(shop.said["evaluate ids"])
    assert report["users"] == 400
    assert report["towers"]["ndcg@10"]["low"] > report["popularity"]["ndcg@10"]["high"]


def test_the_service_answers_what_the_evaluator_ranks(shop: TrainedShop, tmp_path: Path) -> None:
    """For 200 users the same ten items in order; then by a version that reads features of users, too."""
    rows, histories, expected = ranked_by_the_evaluator(shop.run("ids"), shop.data)
    plain: list[dict[str, Any]] = [{"history": history} for history in histories]
    with (shop.folder / "raw" / "users.csv").open(encoding="utf-8", newline="") as file:
        features = {row.pop("user_id"): row for row in csv.DictReader(file)}
    with serving(shop.copy(tmp_path / "shop").bundles) as client:
        assert answered(client, plain) == expected
        assert activate(client, "features", force=True).json() == {"version": "features", "previous": "ids"}
        _, _, expected = ranked_by_the_evaluator(shop.run("features"), shop.data)
        users = map(str, shop.data.users.ids(rows))
        plain = [{**body, "exclude": shop.data.cold_items().ids} for body in plain]  # in no evaluation
        full = [{**body, "features": features[user]} for user, body in zip(users, plain, strict=True)]
        assert answered(client, full) == expected
        without = answered(client, plain)
    changed = sum(one != other for one, other in zip(without, expected, strict=True))
    assert changed > 100, "the features of the requests hardly matter"


def test_a_tower_of_times_answers_at_a_time_what_the_evaluator_ranks_then(
    shop: TrainedShop, tmp_path: Path
) -> None:
    """With the times of a history that is sent, and with those of stored events."""
    data = shop.data
    settings = {
        "tower.user": {"kind": "transformer", "times": True, "history_length": 10, "blocks": 1},
        "tower.dimension": 16,
        "training.epochs": 1,
        "training.batch_size": 512,
    }
    trained = turret.train(data, tmp_path / "run", experiment="transformer", settings=settings)
    trained.export(tmp_path / "bundles", "v1")
    users, histories, expected = ranked_by_the_evaluator(trained.run, data, step=8)
    sent = []
    with serving(tmp_path / "bundles") as client:
        for user, history in zip(users, histories, strict=True):
            first, end = int(data.offsets[user]), int(data.splits[user, 1])
            times = [float(at) / 1000 for at in data.times[first:end]]
            at = float(data.times[end]) / 1000
            sent.append({"history": history, "history_times": times, "at": at})
            events: list[dict[str, Any]] = [
                {"event_id": f"{user}-{n}", "user_id": user, "item_id": item, "time": time}
                for n, (item, time) in enumerate(zip(history, times, strict=True))
            ]
            post_events(client, *events)
        assert answered(client, sent) == expected
        stored = [{"user_id": user, "at": body["at"]} for user, body in zip(users, sent, strict=True)]
        assert answered(client, stored) == expected
        plain = answered(client, [{"history": history} for history in histories])
    changed = sum(one != other for one, other in zip(plain, expected, strict=True))
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
    data = shop.data
    popular = np.argsort(-data.item_counts("train"), kind="stable")[:10].tolist()
    places, others = [], []
    with serving(shop.copy(tmp_path / "shop").bundles) as client:
        activate(client, "features", force=True)
        for number, row in enumerate(popular):
            body = {"features": features(data, row), "fields": {"title": "New"}}
            assert client.put(f"/v1/items/new-{number}", json=body).json()["vector"] == "features"
            near = client.get(f"/v1/items/new-{number}/similar?k=1000").json()["items"]
            known = [item["id"] for item in near if not str(item["id"]).startswith("new-")]
            places.append(known.index(data.item_ids.id(row)))
            others.append(known.index(data.item_ids.id(popular[number - 1])))
            shown = client.get(f"/v1/items/new-{number}").json()
            assert (shown["fresh"], shown["features"]) == (True, body["features"])
    assert np.median(places) < 15 < 45 < np.median(others), (places, others)  # of 300; by chance it is 150
    assert max(places) < 90, places
