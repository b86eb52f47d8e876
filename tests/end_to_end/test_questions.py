"""Questions in words: from pairs to answers over HTTP, in one process."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from fastapi.testclient import TestClient

import turret
from tests.support.service_app import ids, serving
from tests.support.trained import trained_shop
from turret.data.features.texts import grams
from turret.data.prepared import PreparedData
from turret.service.ranking import explaining
from turret.tower.errors import BundleError
from turret.tower.layers.packed import PackedHistories
from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.run import build_model

ANSWERS = {
    "Track your parcel with the number in the mail": ("where is my parcel", "parcel not here", "track it"),
    "Send it back within thirty days": ("send it back", "return the shoes", "can I return it"),
    "We take cards and invoices": ("pay by card", "pay an invoice", "how can I pay"),
    "Reset the password on the login page": ("forgot my password", "can't log in", "login is broken"),
}
PREFIXES = ("", "hello ", "please: ", "quick one, ", "hi, ", "again: ")
SMALL = {
    "tower.dimension": 64,
    "tower.user.feature_width": 64,
    "tower.item.feature_width": 64,
    "training.epochs": 3,
    "training.batch_size": 16,
    "training.learning_rate": 1e-3,
    "evaluation.k": [1, 3],
    "training.metric": "mrr@3",
}


def prepared(folder: Path) -> PreparedData:
    """Questions with their answers."""
    rows = [
        {"question": f"{prefix}{question}", "answer": answer}
        for answer, questions in ANSWERS.items()
        for prefix, question in product(PREFIXES, questions)
    ]
    return turret.prepare(None, folder / "prepared", queries=pl.DataFrame(rows))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles of a model of the questions, which is better than popularity."""
    folder = tmp_path_factory.mktemp("questions")
    run = turret.train(prepared(folder), folder / "run", experiment="questions", settings=SMALL)
    report = run.evaluate()
    assert report["towers"]["mrr@3"]["mean"] > 0.8
    assert {"popularity", "bm25"} <= report["differences"].keys()
    run.export(folder / "bundles", "v1")
    return folder / "bundles"


@pytest.fixture(scope="module")
def client(bundles: Path) -> Iterator[TestClient]:
    with serving(bundles) as service:
        yield service


def search(client: TestClient, status: int = 200, **body: Any) -> dict[str, Any]:
    """Ask a question that has this status."""
    answer = client.post("/v1/search", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_service_answers_as_the_model_does(client: TestClient, bundles: Path) -> None:
    model = turret.load(bundles)
    answer = search(client, query="can I return it?", k=2)
    expected = model.search("can I return it?", 2)
    assert ids(answer) == [one.id for one in expected]
    assert [item["score"] for item in answer["items"]] == pytest.approx([one.score for one in expected])
    assert answer["items"][0]["fields"]["answer"].startswith("Send it back")
    assert answer["items"][0]["source"] == "towers"


def test_an_item_that_is_put_is_found_by_its_text(client: TestClient) -> None:
    text = "Cards and invoices: how can I pay?"
    put = client.put("/v1/items/new", json={"features": {"answer": text}})
    assert put.status_code == 200, put.text
    found = search(client, query="how can I pay", k=2)["items"]
    assert ("new", "fresh") in [(item["id"], item["source"]) for item in found]
    assert client.delete("/v1/items/new").status_code == 200
    assert "new" not in ids(search(client, query="how can I pay", k=4))


def test_an_explanation_names_the_shared_words(client: TestClient) -> None:
    answer = search(client, query="my parcel, my number", k=1, explain=True)
    (item,) = answer["explanation"]["items"]
    assert {*item["matched"][:2]} == {"=parcel", "=number"}
    assert "par" in item["matched"]


def test_an_explanation_reads_the_query_once_for_all_items(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query may be long, and the items many."""
    read: list[str] = []

    def noted(text: str, words: bool) -> list[str]:
        read.append(text)
        return list(grams(text, words))

    monkeypatch.setattr(explaining, "grams", noted)
    query = "my parcel, my number"
    assert len(search(client, query=query, k=4, explain=True)["explanation"]["items"]) == 4
    assert read.count(query) == 1


@pytest.mark.parametrize("query", ["zzz qqq", "包裹在哪里", "?!", " "])
def test_a_text_without_a_known_part_has_no_answer(client: TestClient, bundles: Path, query: str) -> None:
    """A count of events would stand above every score of the towers."""
    fresh = client.put("/v1/items/new", json={"features": {"answer": "Cards and invoices"}})
    assert fresh.status_code == 200, fresh.text
    answer = search(client, query=query, explain=True)
    assert answer["items"] == []
    assert answer["exhausted"]
    assert client.post("/v1/recommend", json={"features": {"query": query}}).json()["items"] == []
    assert turret.load(bundles).search(query) == []
    assert client.delete("/v1/items/new").status_code == 200


@pytest.mark.parametrize(
    ("body", "field", "sentence"),
    [
        ({"query": ""}, "query", "not empty"),
        ({"query": "a" * 100_000}, "query", "at most 2,000 characters"),
        ({}, "body", "send a query in words, or its features"),
        ({"query": "a", "features": {"colour": 1}}, "features.colour", "reads query"),
        ({"query": "a", "user_id": 1}, "user_id", "unknown field"),
    ],
)
def test_a_wrong_question_is_told(
    client: TestClient, body: dict[str, Any], field: str, sentence: str
) -> None:
    error = search(client, 422, **body)["error"]
    assert error["field"] == field
    assert sentence in error["message"]


def test_versions_say_whom_they_answer(client: TestClient, tmp_path: Path) -> None:
    shop_bundles = trained_shop().copy(tmp_path / "shop").bundles
    refused = client.post("/v1/recommend", json={"user_id": "u1"})
    assert refused.status_code == 409
    assert "POST /v1/search" in refused.json()["error"]["message"]
    with serving(shop_bundles) as of_users:
        refused = of_users.post("/v1/search", json={"query": "shoes"})
        assert refused.status_code == 409
        assert "POST /v1/recommend" in refused.json()["error"]["message"]
    with pytest.raises(BundleError, match="recommends for users"):
        turret.load(shop_bundles).search("shoes")


def test_the_training_names_the_tower_that_fits(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    with pytest.raises(TrainingError, match=r"holds queries, .* such as questions"):
        turret.train(data, tmp_path / "run", experiment="youtubednn")


def test_towers_begin_with_the_cosines_of_tf_idf(tmp_path: Path) -> None:
    """Random projections keep them up to about 1 / sqrt(D)."""
    data = prepared(tmp_path)
    wide = {name: 4096 for name in SMALL if name.startswith("tower.")}
    model = build_model(load_experiment("questions", wide), data).eval()
    some = torch.arange(len(data.users))
    nothing = torch.zeros_like(some)
    histories = PackedHistories(nothing[:0], nothing, nothing, some, torch.zeros(len(some)))
    with torch.no_grad():
        scores = model.user_vectors(histories, torch.empty(0, 4096)) @ model.catalog_vectors().T
    counts = {row: Counter(grams(text, True)) for row, text in enumerate(data.fields["answer"])}
    holders = Counter(gram for found in counts.values() for gram in found)
    weights = {gram: math.log1p((4 - held + 0.5) / (held + 0.5)) for gram, held in holders.items()}
    unseen = math.log1p(4.5 / 0.5)
    known = set(data.user_features.features[0].values)
    for row, text in enumerate(map(str, data.users.ids(range(len(data.users))))):
        asked_counts = Counter(gram for gram in grams(text, True) if gram in known)
        asked = {gram: n * weights.get(gram, unseen) for gram, n in asked_counts.items()}
        for item, found in counts.items():
            held = {gram: n * weights[gram] for gram, n in found.items()}
            product_ = sum(value * held.get(gram, 0.0) for gram, value in asked.items())
            norms = math.sqrt(sum(v * v for v in asked.values()) * sum(v * v for v in held.values()))
            assert float(scores[row, item]) == pytest.approx(product_ / norms, abs=0.08)


def test_the_history_of_a_query_decides_between_answers(tmp_path: Path) -> None:
    """One text, two kinds of histories, two answers."""
    groups = {"shoes": ["boots", "laces", "soles"], "tea": ["cups", "leaves", "kettle"]}
    rows = [
        {"query": f"more like it {n}", "item": answer, "history": [seen[n % 3], seen[(n + 1) % 3]]}
        for answer, seen in groups.items()
        for n in range(40)
    ]
    settings = {"queries.context": ["history"]}
    data = turret.prepare(None, tmp_path / "prepared", queries=pl.DataFrame(rows), settings=settings)
    learning = {"training.epochs": 20, "training.learning_rate": 1e-2}
    run = turret.train(data, tmp_path / "run", experiment="questions", settings={**SMALL, **learning})
    model = turret.load(run.export(tmp_path / "bundles", "v1").parent)
    for answer, seen in groups.items():
        found = model.search("more like it", k=1, features={"history": seen[:2]})
        assert [one.id for one in found] == [answer]
