"""Answers of a version with a repeat term: items of the history are scored exactly, with what they gain."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.support.repeats import ranking, repeating
from tests.support.service_app import ids, post_events, recommended, serving
from turret.service.overlay.fresh import FreshItems
from turret.service.ranking.answers import ids_of, recommend
from turret.service.ranking.query import NO_HISTORY, make_query
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.holder import LoadedModel
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.retrieval import Retriever

NOW = 1_700_000_000
HISTORY = [159, 102, 130, 101, 102, 108, 108]
TIMES = [NOW - days * 86_400 for days in (60, 40, 30, 20, 10, 3, 3)]
ASKED: dict[str, Any] = {"history": HISTORY, "history_times": TIMES, "at": NOW}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = tmp_path_factory.mktemp("repeats")
    publish(root, repeating())
    with serving(root) as client:
        yield client


def expected(times: list[float] | None = None, asked: float = 0.0) -> list[int]:
    rows, _ = ranking(repeating(), [item - 100 for item in HISTORY], times, asked)
    return [100 + row for row in rows.tolist()]


TIMED = expected([float(time) for time in TIMES], NOW)


def test_used_items_are_ranked_by_times_where_they_are_known(client: TestClient) -> None:
    assert ids(recommended(client, **ASKED, k=60)) == TIMED
    assert ids(recommended(client, history=HISTORY, k=60)) == expected() != TIMED


def test_stored_events_are_ranked_as_given_ones(client: TestClient) -> None:
    events = [
        {"event_id": place, "user_id": 7, "item_id": item, "time": time}
        for place, (item, time) in enumerate(zip(HISTORY, TIMES, strict=True))
    ]
    post_events(client, *events)
    assert ids(recommended(client, user_id=7, at=NOW, k=60)) == TIMED
    batch = {"requests": [{**ASKED, "k": 60}, {"user_id": 7, "at": NOW, "k": 5}, {"history": [101]}]}
    first, second, _ = client.post("/v1/recommend/batch", json=batch).json()["results"]
    assert (ids(first), ids(second)) == (TIMED, TIMED[:5])


def test_conditions_apply_to_used_items(client: TestClient) -> None:
    out = [108, 130, TIMED[0]]
    assert ids(recommended(client, **ASKED, exclude=out, k=60)) == [one for one in TIMED if one not in out]
    unseen = recommended(client, **ASKED, exclude_seen=True, k=60)
    assert ids(unseen) == [one for one in TIMED if one not in HISTORY]
    allowed = {"title": {"any_of": [f"Item {one}" for one in (101, 102, 108, 140, 141)]}}
    some = recommended(client, **ASKED, filter=allowed, k=60)
    assert ids(some) == [one for one in TIMED if one in (101, 102, 108, 140, 141)]
    least = recommended(client, **ASKED, k=60)["items"][6]["score"]
    assert ids(recommended(client, **ASKED, min_score=least, k=60)) == TIMED[:7]
    assert len(ids(recommended(client, **ASKED, cap={"genres": 2}, k=5))) == 2


def test_an_explanation_says_what_a_used_item_gains(client: TestClient) -> None:
    answer = recommended(client, **ASKED, k=20, explain=True)
    parts = [item["score_parts"] for item in answer["explanation"]["items"]]
    assert {item["id"] for item, one in zip(answer["items"], parts, strict=True) if "repeat" in one} == {
        one for one in TIMED[:20] if one in HISTORY
    }
    for item, one in zip(answer["items"], parts, strict=True):
        by_towers = one["inner_product"] / one["temperature"]
        assert item["score"] == pytest.approx(by_towers + one.get("repeat", 0.0), rel=1e-5, abs=1e-5)


def test_an_item_that_was_put_after_the_export_gains_too(tmp_path: Path) -> None:
    contents = repeating()
    bundle = Bundle.open(publish(tmp_path, contents))
    new = np.array([[0.6, 0.8, *[0.0] * 6]], dtype=np.float32)
    fresh = FreshItems(bundle.vocabulary, new, ids=("999",), features=(b"{}",), positions={"999": 0})
    history = [999, 105, 999, 107]
    query = make_query(RecommendRequest(history=history, k=61), NO_HISTORY, (), NOW * 1000)
    model = LoadedModel(bundle, Retriever(bundle), datetime.now(UTC))
    (answer,) = recommend(model, replace(fresh, added=fresh.added.changed({0: b"{}"})), [query])
    both = replace(contents, item_vectors=np.vstack([contents.item_vectors, new]))
    rows, _ = ranking(both, [60, 5, 60, 7])
    assert ids_of(answer) == [999 if row == 60 else 100 + row for row in rows.tolist()]
