"""The lines of docs/recipes.md run: calls on a shop in the process, commands and trainings on small files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import polars as pl
import pytest
import scipy.sparse
from fastapi.testclient import TestClient

import turret
from benchmarks.processes import running_nginx
from tests.conftest import contents
from tests.end_to_end.test_questions import ANSWERS, PREFIXES, SMALL
from tests.support.command_line import calls, output
from tests.support.item_towers import with_item_tower
from tests.support.places import ROOT
from tests.support.service_app import KEY, serving
from tests.support.service_process import Start
from tests.support.tools import require
from tests.support.trained import trained_shop
from turret.client import Client
from turret.client.answers import RecommendAnswer
from turret.data.kinds import Kind
from turret.data.prepared import PreparedData
from turret.tower.bundle.publish import publish

PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
IDS = tuple(f"i{row:04}" for row in range(60))
KINDS = {"view": Kind(role="signal"), "cart": Kind(role="signal"), "purchase": Kind()}


def blocks(section: str, language: str) -> list[str]:
    """The fenced code of a section in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTIONS[section], re.MULTILINE | re.DOTALL)


def fields() -> dict[str, list[Any]]:
    """The fields of the shop: a fifth is out of stock, a third has a German title."""
    rows = range(len(IDS))
    return {
        "title": [f"Item {row}" for row in rows],
        "title_de": [None if row % 3 else f"Artikel {row}" for row in rows],
        "category": [("Books", "Shoes", "Lamps", "Local")[row % 4] for row in rows],
        "price": [float(row) for row in rows],
        "stock": [row % 5 for row in rows],
        "ends": [None] * len(rows),
        "age_days": [100 + row for row in rows],
    }


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TestClient]:
    """A shop with kinds of events and an item tower, where a user has viewed two items and bought one."""
    shop = contents(ids=IDS, kinds=KINDS, exclude_seen=None)
    publish(tmp_path, with_item_tower(replace(shop, fields=fields())))
    with serving(tmp_path) as client:
        stored = [
            {"event_id": f"e{number}", "user_id": "me", "item_id": item, "kind": kind}
            for number, (item, kind) in enumerate(
                (("i0001", "view"), ("i0002", "purchase"), ("i0003", "view"))
            )
        ]
        assert client.post("/v1/events", json={"events": stored}).json()["stored"] == 3
        yield client


def run(section: str, service: TestClient) -> dict[str, Any]:
    """The names that the Python of a section defines, with `client` for the service."""
    names: dict[str, Any] = {"client": Client("http://testserver", KEY, retries=0, http=service)}
    for block in blocks(section, "python"):
        exec(compile(block, section, "exec"), names)
    return names


def ids(answer: RecommendAnswer) -> list[Any]:
    return [item.id for item in answer.items]


def test_a_recipe_has_at_most_fifteen_lines_of_code() -> None:
    lengths = {
        section: max(len(code.splitlines()) for code in re.findall(r"```\w+\n(.*?)```", text, re.DOTALL))
        for section, text in SECTIONS.items()
    }
    assert len(lengths) == 12
    assert max(lengths.values()) <= 15


def test_home_page(service: TestClient) -> None:
    """The used items are in the second row alone, and a category has at most three places in the first."""
    names = run("Home page", service)
    assert sorted(ids(names["again"])) == ["i0001", "i0002", "i0003"]
    assert not {*ids(names["for_you"])} & {*ids(names["again"])}
    categories = [item.fields["category"] for item in names["for_you"].items]
    assert sorted(categories.count(one) for one in set(categories)) == [3, 3, 3, 3]


def test_product_page(service: TestClient) -> None:
    names = run("Product page", service)
    assert all(item.fields["stock"] > 0 for item in names["similar"].items)
    assert len(ids(names["similar"])) == len(ids(names["went_on_to"])) == 8
    assert "i0042" not in ids(names["similar"])


def test_cart(service: TestClient) -> None:
    answer = run("Cart", service)["additions"]
    assert len(answer.items) == 4
    assert not {"i0042", "i0007"} & {*ids(answer)}
    assert all(item.fields["price"] < 15 for item in answer.items)


def test_news_with_an_hours_life(service: TestClient) -> None:
    """Only the article that has not ended is shown, and none after it is withdrawn."""
    names = run("News with an hour's life", service)
    assert ids(names["front"]) == ["n1"]
    assert names["rising"].items == ()
    assert names["client"].recommend(user_id="me", filter=names["live"]).items == ()


def test_strangers(service: TestClient) -> None:
    """The visit has answers of its own, and its view is the user's after the login."""
    names = run("Strangers", service)
    assert {item.source for item in names["visitor"].items} == {"towers"}
    events = [(event.item_id, event.kind) for event in names["client"].user("me").events]
    assert events[-2:] == [("i0042", "view"), ("i0042", "purchase")]
    assert names["client"].user("session:c81f").events == ()


def test_new_items(service: TestClient) -> None:
    """The boost moves the new item up, and nothing else."""
    names = run("New items", service)
    plain = names["client"].recommend(user_id="me", k=100)
    raised = names["client"].recommend(user_id="me", boost=names["fresh"], k=100)
    before, after = (
        next(item.score for item in answer.items if item.id == "new-1") for answer in (plain, raised)
    )
    assert after == pytest.approx(before + 0.7)
    assert names["client"].item("new-1").fields["title"] == "The Late Train"
    others = [[item for item in ids(answer) if item != "new-1"] for answer in (plain, raised)]
    assert others[0] == others[1]


def test_two_languages(service: TestClient) -> None:
    names = run("Two languages", service)
    assert len(names["titles"]) == 10
    german = {f"i{row:04}" for row in range(0, 60, 3)}
    assert {*ids(names["in_german"])} <= german
    assert names["client"].item("i0042").fields["title_de"] == "Der späte Zug"


def test_out_of_stock(service: TestClient) -> None:
    """The rule holds for answers that name no rule."""
    names = run("Out of stock", service)
    every = names["client"].recommend(user_id="me", k=100)
    assert {item.fields["stock"] for item in every.items} == {1, 2, 3, 4}
    assert "i0042" not in ids(every)
    assert 0 in {
        item.fields["stock"] for item in names["client"].recommend(user_id="me", rules=[], k=100).items
    }


def test_a_mail_to_everyone(tmp_path: Path) -> None:
    """Each user has a list of six new items below the price, and each item the users to write to."""
    shop, log = trained_shop(), trained_shop().data
    (tmp_path / "var").mkdir()
    for name in ("bundles", "prepared"):
        (tmp_path / "var" / name).symlink_to(shop.folder / name)
    for words in calls("".join(blocks("A mail to everyone", "sh"))):
        output(*words, folder=tmp_path)
    lists = pl.read_parquet(tmp_path / "var" / "mail.parquet")
    assert lists["user_id"].n_unique() == len(log.users)
    assert lists.group_by("user_id").len()["len"].unique().to_list() == [6]
    assert pl.read_parquet(tmp_path / "var" / "who_to_mail.parquet")["rank"].max() == 50


@pytest.mark.process  # it starts none, but its training takes too long for `make test`
def test_search_box_and_faq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that nobody has asked before finds its answer."""
    pairs = [
        {"question": f"{prefix}{question}", "answer": answer}
        for answer, questions in ANSWERS.items()
        for prefix, question in product(PREFIXES, questions)
    ]
    pl.DataFrame(pairs).write_csv(tmp_path / "pairs.csv")
    monkeypatch.setattr(turret, "train", partial(turret.train, settings=SMALL))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec("".join(blocks("Search box and FAQ", "python")), names)
    assert names["answers"][0].id == "Send it back within thirty days"


# ---- A move


def test_the_atomic_files_of_recbole_are_read(tmp_path: Path) -> None:
    rows = [f"{user}\t{(7 * user + 3 * n) % 30}\t{10**9 + n}\n" for user in range(40) for n in range(8)]
    (tmp_path / "shop.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n" + "".join(rows))
    films = [f"{item}\tThe Film {item}\n" for item in range(30)]
    (tmp_path / "shop.item").write_text("item_id:token\tmovie_title:token_seq\n" + "".join(films))
    (words,) = calls("".join(blocks("A move from implicit, LightFM or RecBole", "sh")))
    output(*words, folder=tmp_path)
    data = PreparedData.open(tmp_path / "var" / "prepared")
    assert (len(data.users), len(data.item_ids), len(data.event_items)) == (40, 30, 320)
    assert [feature.name for feature in data.item_features.features] == ["movie_title:token_seq"]


def test_the_matrix_and_the_factors_of_implicit_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old model's factors have the metrics that its own ranking gives."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    matrix = scipy.sparse.csr_matrix((random.random((30, 40)) < 0.2).astype(np.float32))
    scipy.sparse.save_npz("user_items.npz", matrix)
    np.save("users.npy", [f"u{row}" for row in range(30)])
    np.save("items.npy", [f"i{column}" for column in range(40)])
    user_factors, item_factors = (random.normal(size=(size, 8)).astype(np.float32) for size in (30, 40))
    np.savez("als.npz", user_factors=user_factors, item_factors=item_factors)
    names: dict[str, Any] = {"turret": turret, "targets": [[row] for row in range(30)]}
    for code in blocks("A move from implicit, LightFM or RecBole", "python"):
        exec(code, names)
    assert len(names["data"].event_items) == matrix.nnz
    ranked = np.argsort(-(user_factors @ item_factors.T), axis=1)[:, :10]
    hits = [row in ranked[row] for row in range(30)]
    assert names["report"]["recall@10"]["mean"] == pytest.approx(np.mean(hits))


# ---- Two countries


@contextmanager
def nginx_of_the_page(folder: Path, ports: dict[str, int]) -> Iterator[httpx2.Client]:
    """A client of the server of the page, which listens on a socket and has other ports than there."""
    (server,) = blocks("Two countries", "nginx")
    listen = f"unix:{folder}/socket"
    text = server.replace("listen 8000", f"listen {listen}")
    for named, port in ports.items():
        text = text.replace(f"127.0.0.1:{named}/", f"127.0.0.1:{port}/")
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{name}_temp_path {folder}/{name};\n" for name in names)
    configuration = folder / "nginx.conf"
    configuration.write_text(f"pid {folder}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{places}{text}}}\n")
    with running_nginx(folder, configuration, listen):
        transport = httpx2.HTTPTransport(uds=f"{folder}/socket", verify=False)
        with httpx2.Client(transport=transport, trust_env=False) as client:
            yield client


@pytest.mark.process
def test_two_countries_behind_one_nginx(tmp_path: Path, start: Start, bundles: Path) -> None:
    """Each path has the catalog of its country, calls with bodies too."""
    require("nginx")
    publish(tmp_path / "de", contents(ids=range(200, 260)))
    dutch, german = start(bundles), start(tmp_path / "de")
    ports = {
        theirs: int(service.urls[0].rpartition(":")[2])
        for theirs, service in (("8100", dutch), ("8200", german))
    }
    with nginx_of_the_page(tmp_path, ports) as http:
        for country, first in (("nl", 100), ("de", 200)):
            client = Client(f"http://localhost/{country}", http=http, retries=0)
            answer = client.recommend(history=[first + 1], k=5)
            assert all(first <= int(item.id) < first + 60 for item in answer.items)
