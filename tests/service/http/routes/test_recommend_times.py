"""Recommendations of a version whose user tower reads times."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish

HOUR = 3600
MONDAY = 4 * 24 * HOUR  # of the first week of 1970, which began on a Thursday


@pytest.fixture
def timed(tmp_path: Path, make_contents: Callable[..., BundleContents]) -> Iterator[TestClient]:
    """A service whose tower adds hours of gaps to the first coordinate, and of clocks to the second."""
    publish(tmp_path / "timed", make_contents(times=True))
    app = create_app(Settings(bundles=tmp_path / "timed", store="memory://"))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def asked(client: TestClient, **body: Any) -> list[tuple[int, Any]]:
    answer = client.post("/v1/recommend", json={"k": 5, **body})
    assert answer.status_code == 200, answer.text
    return [(item["id"], item["score"]) for item in answer.json()["items"]]


def expected(contents: BundleContents, rows: list[int], gaps: float, clocks: float) -> list[tuple[int, Any]]:
    """The five best items outside the history for these sums of hours."""
    state = contents.item_vectors[rows].astype(np.float64).mean(axis=0)
    state[:2] += gaps, clocks
    scores = contents.item_vectors @ state / np.linalg.norm(state) / 0.5
    best = [row for row in np.argsort(-scores, kind="stable").tolist() if row not in rows][:5]
    return [(100 + row, pytest.approx(float(scores[row]), rel=1e-4)) for row in best]


def test_the_times_of_a_history_and_of_the_request_are_read(
    timed: TestClient, make_contents: Callable[..., BundleContents]
) -> None:
    """As seconds or as text: an hour until the second item, half an hour until the request."""
    moments = [MONDAY, MONDAY + HOUR]
    wanted = expected(make_contents(), [1, 2], 1.5, (MONDAY * 2 + 2.5 * HOUR) / HOUR)
    body = {"history": [101, 102], "history_times": moments}
    assert asked(timed, **body, at=MONDAY + 1.5 * HOUR) == wanted
    texts = {"history": [101, 102], "history_times": ["1970-01-05T00:00Z", "1970-01-05T01:00Z"]}
    assert asked(timed, **texts, at="1970-01-05T01:30:00") == wanted


def test_without_times_they_are_unknown(
    timed: TestClient, make_contents: Callable[..., BundleContents]
) -> None:
    """Also where the request has a time: nobody knows how long ago anything was."""
    wanted = expected(make_contents(), [1, 2], 0.0, 0.0)
    assert asked(timed, history=[101, 102]) == wanted
    assert asked(timed, history=[101, 102], at=MONDAY) == wanted
    assert asked(timed, history=[101, 102], history_times=None) == wanted


def test_stored_events_bring_their_times(
    timed: TestClient, make_contents: Callable[..., BundleContents]
) -> None:
    events = [
        {"event_id": number, "user_id": 7, "item_id": item, "time": MONDAY + at}
        for number, (item, at) in enumerate([(101, 0), (999, 10), (102, HOUR)])
    ]
    assert timed.post("/v1/events", json={"events": events}).status_code == 200
    wanted = expected(make_contents(), [1, 2], 3.0, (MONDAY * 2 + 4 * HOUR) / HOUR)
    assert asked(timed, user_id=7, at=MONDAY + 3 * HOUR) == wanted, "the unknown item 999 is skipped"


def test_the_request_comes_now_if_it_does_not_say_when(timed: TestClient) -> None:
    """And an event that another clock puts into the future is just over."""
    now = time.time()
    body: dict[str, Any] = {"history": [101, 102], "history_times": [now - 7200, now - 3600]}
    by_now = dict(asked(timed, **body))
    assert by_now == pytest.approx(dict(asked(timed, **body, at=now)), rel=0.01)
    assert by_now != pytest.approx(dict(asked(timed, **body, at=now + 90 * 86_400)), rel=0.01)
    late = {"history": [101], "history_times": [now + 5]}
    assert timed.post("/v1/recommend", json=late).status_code == 200


def test_a_batch_reads_the_times_of_each_request(timed: TestClient) -> None:
    bodies: list[dict[str, Any]] = [
        {"history": [101, 102], "history_times": [0, HOUR], "at": 2 * HOUR, "k": 5},
        {"history": [], "k": 5},
        {"history": [103], "k": 5},
        {"history": [104, 105, 106], "history_times": [HOUR, 2 * HOUR, 2 * HOUR], "at": MONDAY, "k": 5},
    ]
    results = timed.post("/v1/recommend/batch", json={"requests": bodies}).json()["results"]
    for body, result in zip(bodies, results, strict=True):
        alone = asked(timed, **body)
        found = [(item["id"], pytest.approx(item["score"], rel=1e-5)) for item in result["items"]]
        assert alone == found


def test_a_version_that_reads_no_times_leaves_them_alone(fresh_client: TestClient) -> None:
    """So that a client may send them whatever is live."""
    body = {"history": [101, 102], "history_times": [0, HOUR], "at": MONDAY}
    assert asked(fresh_client, **body) == asked(fresh_client, history=[101, 102])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"history_times": [1]}, "send both"),
        ({"history": [101], "history_times": [1, 2]}, "2 times for 1 items"),
        (
            {"history": [101, 102, 103], "history_times": [1, 5, 2]},
            "entry 2 (counted from 0) is earlier than the previous one",
        ),
        ({"history": [101], "history_times": [9], "at": 8}, "1970-01-01T00:00:09"),
    ],
)
def test_a_refusal_says_what_is_wrong(fresh_client: TestClient, body: dict[str, Any], words: str) -> None:
    answer = fresh_client.post("/v1/recommend", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]
