"""The main job with the commands that a user types, each in a process of its own."""

import csv
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from operator import ne
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from typer.testing import CliRunner

import turret.cli
from tests.support.command_line import Service, output, serving
from tests.support.service_process import plain_client
from turret.tower.bundle.bundle import Bundle
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.run import Run

pytestmark = pytest.mark.nightly

SMALL = ("--users", "400", "--items", "300", "--events-per-user", "20", "--seed", "3")
SHORT = ("--set", "shortest_history=4", "--set", "longest_history=50")
QUICK = ("--set", "training.batch_size=1024", "--set", "tower.dimension=32")
FEW = ("--set", "training.batch_size=64", "--set", "training.epochs=8")


@dataclass(frozen=True)
class Shop:
    """Where the commands ran, and what they printed, by their first words."""

    folder: Path
    said: dict[str, str]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A small shop on its whole way: three runs (ids alone, all features, absolute scores), each a bundle."""
    folder = tmp_path_factory.mktemp("pipeline")
    said = {
        "synth": output("data", "synth", "raw", *SMALL, *SHORT, folder=folder),
        "prepare": output("data", "prepare", "raw", "--to", "prepared", folder=folder),
        "describe": output("data", "describe", "prepared", folder=folder),
    }
    for name, experiment, epochs in (
        ("ids", "demo", 4),
        ("features", "dssm", 2),
        ("absolute", "absolute_softmax", 2),
    ):
        words = ("--data", "prepared", "--run", name, "-e", experiment, "--set", f"training.epochs={epochs}")
        said[f"train {name}"] = output("train", *words, *QUICK, folder=folder)
        if name == "ids":
            said["evaluate"] = output("evaluate", name, "--json", folder=folder)
        said[f"export {name}"] = output(
            "export", name, "--bundles", "bundles", "--version", name, folder=folder
        )
    said["versions"] = output("versions", "--bundles", "bundles", "--json", folder=folder)
    return Shop(folder, said)


@pytest.fixture(scope="module")
def service(shop: Shop) -> Iterator[Service]:
    """`turret serve` on the bundles, which begins with the first one."""
    with serving(shop.folder / "bundles") as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx2.Client]:
    with plain_client(service.url) as client:
        yield client


def test_each_command_says_what_it_did(shop: Shop) -> None:
    """Counts, measures and places, for people."""
    assert re.match(r"\d,\d{3} events of 400 users and 300 items, .* in raw$", shop.said["synth"])
    assert shop.said["describe"] in shop.said["prepare"]
    assert "400 users" in " ".join(shop.said["describe"].replace(",", "").split())
    assert re.search(r"epoch 1/4: loss .*validation ndcg@10 0\.\d+ \(best\)", shop.said["train ids"])
    assert shop.said["export ids"] == f"{Path('bundles') / 'ids'}\n"


def test_the_towers_beat_popularity_in_json_that_others_can_read(shop: Shop) -> None:
    report = json.loads(shop.said["evaluate"])
    assert report["users"] == 400
    assert report["towers"]["ndcg@10"]["low"] > report["popularity"]["ndcg@10"]["high"]


def test_the_first_bundle_is_current_and_carries_its_metrics(shop: Shop) -> None:
    first, *others = json.loads(shop.said["versions"])
    assert [(one["version"], one["is_current"]) for one in (first, *others)] == [
        ("ids", True),
        ("features", False),
        ("absolute", False),
    ]
    assert first["metrics"]["test"] == json.loads(shop.said["evaluate"])
    assert [one["metrics"] for one in others] == [{}, {}]


def test_a_bundle_can_not_be_written_to(shop: Shop) -> None:
    """What is served is what was exported."""
    files = list((shop.folder / "bundles" / "ids").iterdir())
    assert files
    assert not any(os.stat(path).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) for path in files)


def user_rows(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "raw" / "users.csv").open(encoding="utf-8", newline="") as file:
        return {row.pop("user_id"): row for row in csv.DictReader(file)}


@dataclass(frozen=True)
class Expected:
    """Of 200 users: the history before the test, and the ten items that the evaluator ranks first."""

    users: list[str]
    histories: list[list[Any]]
    ranked: list[list[Any]]


def ranked_by_the_evaluator(folder: Path, name: str) -> Expected:
    run = Run.read(folder / name)
    data = run.open_data()
    users = np.arange(0, 400, 2)
    scores_of = tower_scores(run.open_model(data), data, "test", data.item_counts("train"))
    (block,) = rank(scores_of, data, users, "test", 10, exclude_seen=True)
    return Expected(
        users=[str(data.users.id(user)) for user in users.tolist()],
        histories=[data.item_ids.ids(data.history(user, "test")) for user in users.tolist()],
        ranked=[data.item_ids.ids(rows) for rows in block.rows],
    )


def answered(client: httpx2.Client, version: str, asked: list[dict[str, Any]]) -> list[list[Any]]:
    """The ids of the answers, which are the same one by one and in batches of 100, all from one version."""
    asked = [{**body, "k": 10, "exclude_seen": True} for body in asked]
    answers = [client.post("/v1/recommend", json=body).json() for body in asked]
    for first in range(0, len(asked), 100):
        batch = client.post("/v1/recommend/batch", json={"requests": asked[first : first + 100]})
        assert list(map(ids, batch.json()["results"])) == list(map(ids, answers[first : first + 100]))
    assert {answer["version"] for answer in answers} == {version}
    return [ids(answer) for answer in answers]


def ids(answer: dict[str, Any]) -> list[Any]:
    assert {item["source"] for item in answer["items"]} == {"towers"}
    return [item["id"] for item in answer["items"]]


def test_the_service_answers_what_the_evaluator_ranks(shop: Shop, client: httpx2.Client) -> None:
    """For 200 users, the same ten items in the same order."""
    expected = ranked_by_the_evaluator(shop.folder, "ids")
    found = answered(client, "ids", [{"history": history} for history in expected.histories])
    assert len(found) == 200
    assert found == expected.ranked


def test_a_command_asks_the_service(shop: Shop, service: Service) -> None:
    """With a user's whole history from the prepared data; titles stand beside titles."""
    words = ("--data", "prepared", "--user", "u00007", "--url", service.url, "--wait", "10")
    answer = json.loads(output("recommend", *words, "-k", "3", "--json", folder=shop.folder))
    assert (answer["version"], len(ids(answer))) == ("ids", 3)
    table = output("recommend", *words, "-k", "3", folder=shop.folder)
    assert all(f"[{item}]" in table for item in ids(answer))
    (title,) = re.findall(
        r"u00007,(\w+),\d+\n(?![\s\S]*u00007,)", (shop.folder / "raw/events.csv").read_text()
    )
    assert f"[{title}]" in table, "the newest item of the history is not shown"


def test_the_next_run_is_activated_without_a_restart(
    shop: Shop, service: Service, client: httpx2.Client
) -> None:
    """The same process answers as the evaluator ranks by the other run, which reads users' features."""
    before = client.get("/v1/version").json()["version"]
    said = output("activate", "features", "--bundles", "bundles", "--url", service.admin, folder=shop.folder)
    assert said == f"{service.admin} serves features now (before: ids).\n"
    assert (before, client.get("/v1/version").json()["version"]) == ("ids", "features")
    assert service.process.poll() is None
    expected, features = ranked_by_the_evaluator(shop.folder, "features"), user_rows(shop.folder)
    plain: list[dict[str, Any]] = [{"history": history} for history in expected.histories]
    full = [{**body, "features": features[user]} for user, body in zip(expected.users, plain, strict=True)]
    assert answered(client, "features", full) == expected.ranked
    changed = sum(map(ne, answered(client, "features", plain), expected.ranked))
    assert changed > 100, "the features of the requests hardly matter"
    listed = json.loads(output("versions", "--bundles", "bundles", "--json", folder=shop.folder))
    assert [one["version"] for one in listed if one["is_current"]] == ["features"]


def test_a_model_without_signs_is_served_as_it_is_evaluated(
    shop: Shop, service: Service, client: httpx2.Client
) -> None:
    """Near items and opposite ones in one ranking, for users and for similar items alike.

    A search for the user vector alone, without the one for its opposite, would answer most users otherwise.
    """
    output("activate", "absolute", "--bundles", "bundles", "--url", service.admin, folder=shop.folder)
    expected = ranked_by_the_evaluator(shop.folder, "absolute")
    bodies: list[dict[str, Any]] = [{"history": history} for history in expected.histories]
    assert answered(client, "absolute", bodies) == expected.ranked
    bundle = Bundle.open(shop.folder / "bundles" / "absolute")
    rows = [bundle.vocabulary.known_rows(history)[0] for history in expected.histories]
    users = bundle.encoder.encode(rows, [{}] * len(rows))
    best = [bundle.vocabulary.known_rows(ids)[0] for ids in expected.ranked]
    opposite = sum(
        bool((bundle.vectors[mine] @ user < 0).any()) for user, mine in zip(users, best, strict=True)
    )
    assert opposite > 100, "hardly anybody's best items lie on the far side"
    row = max(
        range(len(bundle.vectors)), key=lambda row: float(-(bundle.vectors @ bundle.vectors[row]).min())
    )
    found = client.get(f"/v1/items/{bundle.vocabulary.id(row)}/similar", params={"k": 10}).json()["items"]
    sizes = np.abs(bundle.vectors.astype(np.float64) @ bundle.vectors[row].astype(np.float64))
    nearest = [other for other in np.argsort(-sizes, kind="stable").tolist() if other != row][:10]
    assert [item["id"] for item in found] == bundle.vocabulary.ids(nearest)
    assert (bundle.vectors[nearest] @ bundle.vectors[row]).min() < 0 < min(item["score"] for item in found)


TITLES = ["Amélie (2001)", "Léon (1994)", "Cité des enfants perdus, La (1995)", "Señorita (1997)"]


def write_movielens(folder: Path) -> None:
    """Sixty films and forty users as GroupLens ships them: numbers, tabs, bars and latin-1.

    Everybody sees films one after the other, so what comes next can be learnt.
    """
    folder.mkdir()
    genres = ["unknown", "Action", "Drama"]
    films = [f"{TITLES[n % 4]}" if n < 4 else f"Film {n} (19{n % 100:02d})" for n in range(60)]
    ratings = [
        f"{user}\t{100 + (user * 7 + step) % 60}\t{1 + (user + step) % 5}\t{881250949 + 60 * step}"
        for step in range(20)
        for user in range(1, 41)
    ]
    items = [
        f"{100 + n}|{title}|01-Jan-1995||http://x|0|{n % 2}|{1 - n % 2}" for n, title in enumerate(films)
    ]
    users = [
        f"{user}|{20 + user}|{'MF'[user % 2]}|{'artist' if user % 3 else 'other'}|{user:05d}"
        for user in range(1, 41)
    ]
    content = {
        "u.data": ratings,
        "u.item": items,
        "u.user": users,
        "u.genre": [f"{name}|{number}" for number, name in enumerate(genres)],
    }
    for name, lines in content.items():
        (folder / name).write_bytes(("\n".join(lines) + "\n").encode("latin-1"))


def test_films_come_back_by_their_titles_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From files in latin-1 to a title with its accent; ids that were integers are integers in JSON."""
    write_movielens(tmp_path / "ml-100k")
    output("data", "prepare", "ml-100k", "--to", "prepared", folder=tmp_path)
    train = ("train", "--data", "prepared", "--run", "run", "-e", "demo", *QUICK, *FEW)
    monkeypatch.chdir(tmp_path)  # where torch is loaded already, these two need seconds less
    for words in (train, ("export", "run", "--bundles", "bundles", "--version", "films")):
        done = CliRunner().invoke(turret.cli.app, words)
        assert done.exit_code == 0, done.exception or done.stderr
    with serving(tmp_path / "bundles") as service:
        ask = ("recommend", "--url", service.url, "--history", "157", "--history", "158", "--history", "159")
        answer = json.loads(output(*ask, "--json", folder=tmp_path))
        table = output(*ask, folder=tmp_path)
        whole = output(
            "recommend", "--url", service.url, "--data", "prepared", "--user", "3", folder=tmp_path
        )
        raw = httpx2.post(
            f"{service.url}/v1/recommend", json={"history": [157, 158, 159], "k": 10}, trust_env=False
        )
    found = ids(answer)
    assert all(type(item) is int for item in found)
    assert ids(raw.json()) == found
    assert found[0] == 100, "after films 157, 158 and 159 everybody sees film 100"
    assert answer["items"][0]["fields"]["title"] == "Amélie (2001)"
    assert "Amélie (2001) (Drama) [100]" in table
    assert f"[{100 + (3 * 7 + 19) % 60}]" in whole
