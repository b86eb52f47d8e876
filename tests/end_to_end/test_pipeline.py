"""From a log to answers: the service ranks what the evaluator ranks, and the next version goes live."""

import csv
import json
import os
import re
import stat
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.end_to_end.conftest import ADMIN, answering
from tests.support.command_line import output, serving
from tests.support.service_process import plain_client
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
        ranked=[data.item_ids.ids(rows[rows >= 0]) for rows in block.rows],
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


def test_each_command_says_what_it_did(shop: TrainedShop) -> None:
    """Counts, measures and places, for people."""
    assert re.match(r"\d,\d{3} events of 400 users and 300 items, .* in raw$", shop.said["synth"])
    assert "400 users" in " ".join(shop.said["prepare"].replace(",", "").split())
    assert re.search(r"epoch 1/4: loss .*validation ndcg@10 0\.\d+ \(best\)", shop.said["train ids"])
    assert shop.said["export ids"] == f"{Path('bundles') / 'ids'}\n"


def test_the_first_bundle_is_current_and_none_can_be_written_to(shop: TrainedShop) -> None:
    """What is served is what was exported, with its metrics."""
    listed = json.loads(output("versions", "--bundles", "bundles", "--json", folder=shop.folder))
    assert [(one["version"], one["is_current"]) for one in listed] == [("ids", True), ("features", False)]
    assert [one["metrics"]["test"] for one in listed] == [
        json.loads(shop.said[f"evaluate {name}"]) for name in ("ids", "features")
    ]
    files = list((shop.bundles / "ids").iterdir())
    assert files
    assert not any(os.stat(path).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) for path in files)


def test_the_service_answers_what_the_evaluator_ranks(shop: TrainedShop, tmp_path: Path) -> None:
    """For 200 users the same ten items in order; then by a version that reads features of users, too."""
    expected = ranked_by_the_evaluator(shop.run("ids"), shop.data)
    plain: list[dict[str, Any]] = [{"history": history} for history in expected.histories]
    with (shop.folder / "raw" / "users.csv").open(encoding="utf-8", newline="") as file:
        features = {row.pop("user_id"): row for row in csv.DictReader(file)}
    with answering(shop.copy(tmp_path / "shop").bundles) as client:
        assert answered(client, plain) == expected.ranked
        assert client.post("/admin/activate", json={"version": "features"}, headers=ADMIN).json() == {
            "version": "features",
            "previous": "ids",
        }
        expected = ranked_by_the_evaluator(shop.run("features"), shop.data)
        users = [str(shop.data.users.id(row)) for row in expected.rows]
        full = [{**body, "features": features[user]} for user, body in zip(users, plain, strict=True)]
        assert answered(client, full) == expected.ranked
        without = answered(client, plain)
    changed = sum(one != other for one, other in zip(without, expected.ranked, strict=True))
    assert changed > 100, "the features of the requests hardly matter"


@pytest.mark.process
def test_commands_ask_a_running_service_and_activate_its_next_version(
    shop: TrainedShop, tmp_path: Path
) -> None:
    """With a user's whole history from the prepared data; titles stand beside titles."""
    copy = shop.copy(tmp_path / "shop")
    with serving(copy.bundles) as service, plain_client(service.url) as client:
        words = ("--data", "prepared", "--user", "u00007", "--url", service.url, "--wait", "10", "-k", "3")
        answer = json.loads(output("recommend", *words, "--json", folder=copy.folder))
        assert (answer["version"], len(ids(answer))) == ("ids", 3)
        table = output("recommend", *words, folder=copy.folder)
        assert all(f"[{item}]" in table for item in ids(answer))
        newest = re.findall(r"^u00007,(\w+),", (copy.folder / "raw/events.csv").read_text(), re.M)[-1]
        assert f"[{newest}]" in table, "the newest item of the history is not shown"
        place = ("--bundles", "bundles", "--url", service.admin)
        said = output("activate", "features", *place, folder=copy.folder)
        assert said == f"{service.admin} serves features now (before: ids).\n"
        assert client.get("/v1/version").json()["version"] == "features"
        assert service.stop()[0] == 0


@pytest.mark.nightly
def test_a_model_without_signs_is_served_as_it_is_evaluated(shop: TrainedShop, tmp_path: Path) -> None:
    """Near items and opposite ones in one ranking, for users and for similar items alike.

    A search for the user vector alone, without the one for its opposite, would answer most users otherwise.
    """
    settings = ("training.epochs=2", "training.batch_size=1024", "tower.dimension=32")
    bundles = trained(shop.data, tmp_path, "absolute_softmax", *settings)
    expected = ranked_by_the_evaluator(Run.read(tmp_path / "run"), shop.data)
    bundle = Bundle.open(bundles / "absolute_softmax")
    row = max(
        range(len(bundle.vectors)), key=lambda row: float(-(bundle.vectors @ bundle.vectors[row]).min())
    )
    with answering(bundles) as client:
        assert answered(client, [{"history": history} for history in expected.histories]) == expected.ranked
        found = client.get(f"/v1/items/{bundle.vocabulary.id(row)}/similar?k=10").json()["items"]
    rows = [bundle.vocabulary.known_rows(history)[0] for history in expected.histories]
    users = bundle.encoder.encode(rows, [{}] * len(rows))
    best = [bundle.vocabulary.known_rows(ids)[0] for ids in expected.ranked]
    opposite = sum(
        bool((bundle.vectors[mine] @ user < 0).any()) for user, mine in zip(users, best, strict=True)
    )
    assert opposite > 100, "hardly anybody's best items lie on the far side"
    sizes = np.abs(bundle.vectors.astype(np.float64) @ bundle.vectors[row].astype(np.float64))
    nearest = [other for other in np.argsort(-sizes, kind="stable").tolist() if other != row][:10]
    assert [item["id"] for item in found] == bundle.vocabulary.ids(nearest)
    assert (bundle.vectors[nearest] @ bundle.vectors[row]).min() < 0 < min(item["score"] for item in found)


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
    with answering(bundles) as client:
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
    with answering(copy.bundles) as client:
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


NEW = "i-new"


def a_day_passes(raw: Path, folder: Path) -> str:
    """Write the shop of a day later into `folder`, and give the time at which that day began.

    There is a twin of the newest item, which a quarter of the users take, and then three older items: the
    last two of these are held out.
    """
    folder.mkdir()
    tables = {}
    for name in ("events", "items", "users"):
        with (raw / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            tables[name] = list(csv.DictReader(file))
    last = tables["events"][-1]
    (twin,) = (row for row in tables["items"] if row["item_id"] == last["item_id"])
    tables["items"].append({**twin, "item_id": NEW})
    begin = int(last["timestamp"]) + 60
    older = [row["item_id"] for row in tables["items"][:3]]
    tables["events"] += [
        {"user_id": row["user_id"], "item_id": item, "timestamp": str(begin + hour)}
        for row in tables["users"][::4]
        for hour, item in enumerate([NEW, *older])
    ]
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return datetime.fromtimestamp(begin, UTC).isoformat()


def test_a_day_of_events_becomes_the_next_version(shop: TrainedShop, tmp_path: Path) -> None:
    """It begins at what is served, goes live in the running service, and knows the item that is new.

    It takes seconds: the served model is trained on the new day.
    """
    since = a_day_passes(shop.folder / "raw", tmp_path / "later")
    bundles = shop.copy(tmp_path / "shop").bundles
    output("data", "prepare", "later", "--to", "second", folder=tmp_path)
    with answering(bundles) as client:
        assert client.get(f"/v1/items/{NEW}/similar").status_code == 404
        words = ("--from", bundles, "--data", "second", "--run", "two", "--set", "training.epochs=1")
        said = output("train", *words, "--set", f"training.since={since}", folder=tmp_path)
        output("export", "two", "--bundles", bundles, "--version", "two", folder=tmp_path)
        assert client.post("/admin/activate", json={"version": "two"}, headers=ADMIN).status_code == 200
        assert len(client.get(f"/v1/items/{NEW}/similar?k=5").json()["items"]) == 5
    kept, new, gone = map(int, re.findall(r"(\d+) (?:items keep|are new|are gone)", said.splitlines()[0]))
    one, two = (Bundle.open(bundles / name) for name in ("ids", "two"))
    assert (kept + new, kept + gone) == (len(two.vocabulary), len(one.vocabulary))
    assert new >= 1
    assert two.manifest.fingerprints["origin"] == "ids"
    rows = [bundle.vocabulary.known_rows(one.vocabulary.ids(range(100)))[0] for bundle in (one, two)]
    stayed = float(np.mean(np.sum(one.vectors[rows[0]] * two.vectors[rows[1]], axis=1)))
    assert stayed > 0.7, "known items are not where they were"


TITLES = ["Amélie (2001)", "Léon (1994)", "Cité des enfants perdus, La (1995)", "Señorita (1997)"]


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Sixty films and forty users as GroupLens ships them: numbers, tabs, bars and latin-1.

    Everybody sees films one after the other, so what comes next can be learnt.
    """
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    titles = [TITLES[n] if n < 4 else f"Film {n} (19{n % 100:02d})" for n in range(60)]
    content = {
        "u.data": [
            f"{user}\t{100 + (user * 7 + step) % 60}\t{1 + (user + step) % 5}\t{881250949 + 60 * step}"
            for step in range(20)
            for user in range(1, 41)
        ],
        "u.item": [
            f"{100 + n}|{title}|01-Jan-1995||http://x|0|{n % 2}|{1 - n % 2}" for n, title in enumerate(titles)
        ],
        "u.user": [f"{user}|{20 + user}|{'MF'[user % 2]}|artist|{user:05d}" for user in range(1, 41)],
        "u.genre": [f"{name}|{number}" for number, name in enumerate(["unknown", "Action", "Drama"])],
    }
    for name, lines in content.items():
        (folder / name).write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
    return folder


@pytest.mark.nightly
def test_films_come_back_by_their_titles_and_numbers(films: Path, tmp_path: Path) -> None:
    """From files in latin-1 to a title with its accent; ids that were integers are integers in JSON."""
    output("data", "prepare", films, "--to", "prepared", folder=tmp_path)
    settings = ("training.batch_size=64", "training.epochs=8", "tower.dimension=32")
    bundles = trained(PreparedData.open(tmp_path / "prepared"), tmp_path, "demo", *settings)
    with answering(bundles) as client:
        answer = client.post("/v1/recommend", json={"history": [157, 158, 159], "k": 10}).json()
    found = ids(answer)
    assert all(type(item) is int for item in found)
    assert found[0] == 100, "after films 157, 158 and 159 everybody sees film 100"
    assert answer["items"][0]["fields"]["title"] == "Amélie (2001)"
