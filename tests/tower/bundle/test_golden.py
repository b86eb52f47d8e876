import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.bundle_damage import rewrite
from turret.tower.bundle import golden
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import (
    Golden,
    GoldenQuery,
    RecordedQuery,
    check_golden,
    difference,
    load_golden,
    recorded_queries,
    replay,
    save_golden,
)
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.retrieval.retriever import Ranking


def ranking(rows: list[int], scores: list[float]) -> Ranking:
    return Ranking(np.array(rows, np.int64), np.array(scores, np.float32))


EXPECTED = ranking([4, 2, 7], [10.0, 5.0, 1.0])


@pytest.mark.parametrize(
    "served",
    [
        ranking([4, 2, 7], [10.0, 5.0, 1.0]),
        ranking([4, 2, 7], [10.0005, 4.9996, 1.0]),
        ranking([4, 2, 9], [10.0, 5.0, 1.0005]),
    ],
    ids=["the same", "rounding", "a near tie at the end"],
)
def test_rounding_is_no_difference(served: Ranking) -> None:
    assert difference(EXPECTED, served) is None


def test_near_ties_may_change_places() -> None:
    assert difference(ranking([1, 2], [3.0, 3.0001]), ranking([2, 1], [3.0001, 3.0])) is None


@pytest.mark.parametrize(
    "served",
    [
        ranking([4, 2], [10.0, 5.0]),
        ranking([4, 2, 7], [10.0, 5.0, 1.1]),
        ranking([2, 4, 7], [10.0, 5.0, 1.0]),
        ranking([4, 3, 7], [10.0, 5.0, 1.0]),
        ranking([4, 2, 7], [10.0, 5.0, float("nan")]),
    ],
    ids=["shorter", "another score", "swapped", "another item", "not a number"],
)
def test_everything_else_is_a_difference(served: Ranking) -> None:
    assert difference(EXPECTED, served) is not None


def test_two_empty_answers_are_equal() -> None:
    assert difference(ranking([], []), ranking([], [])) is None


def test_a_bundle_answers_its_own_recorded_queries(bundles: Path) -> None:
    check_golden(Bundle.open(bundles / "v1"))


@pytest.mark.parametrize("fault", ["item", "score", "history", "feature"])
def test_a_changed_recording_is_noticed(bundles: Path, fault: str) -> None:
    path = bundles / "v1" / "golden.json"
    golden = json.loads(path.read_text())
    query = golden["queries"][1]
    if fault == "item":
        query["items"][0], query["items"][-1] = query["items"][-1], query["items"][0]
    elif fault == "score":
        query["scores"][3] += 0.1
    elif fault == "history":
        query["history"] = [12345]
    else:
        query["features"] = {"age": 1}
    rewrite(bundles / "v1", "golden.json", json.dumps(golden).encode())
    with pytest.raises(BundleError, match="recorded query") as caught:
        check_golden(Bundle.open(bundles / "v1"))
    assert caught.value.reason == "answers"


@pytest.mark.parametrize("text", ["", "[]", '{"k": 20, "queries": []}'])
def test_a_file_without_queries_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "golden.json"
    path.write_text(text)
    with pytest.raises(BundleError, match="no recorded queries"):
        load_golden(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="can't be read"):
        load_golden(tmp_path / "golden.json")


def test_a_recorded_query_has_a_time_for_each_item() -> None:
    """And is read with them if the question's own is there, too."""
    with pytest.raises(ValueError, match="1 times for 2 items"):
        RecordedQuery.model_validate({"history": [1, 2], "history_times": [5.0]})
    assert RecordedQuery.model_validate({"history": [1]}).times is None
    times = RecordedQuery.model_validate({"history": [1, 2], "history_times": [5, 7.5], "at": 9}).times
    assert times is not None
    assert (times.events.tolist(), times.asked) == ([5.0, 7.5], 9.0)


def golden_of(**changes: object) -> bytes:
    query = {"history": [101], "items": [], "scores": []}
    return json.dumps({"k": 20, "queries": [query], **changes}).encode()


@pytest.mark.fault(50)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (golden_of(queries=[{"history": [101], "items": [], "scores": []}] * 1025), "at most 1024"),
        (golden_of(queries=[{"history": [101] * 100_001, "items": [], "scores": []}]), "at most 100000"),
        (golden_of(queries=[{"history": [101], "items": [1] * 1001, "scores": []}]), "at most 1000"),
        (golden_of(k=1001), "less than or equal to 1000"),
        (golden_of(note=" " * 16_000_000), "larger than the limit of 16000000 bytes"),
    ],
    ids=["queries", "history", "items", "k", "bytes"],
)
def test_recorded_queries_are_bounded_before_they_are_answered(
    bundles: Path, content: bytes, words: str
) -> None:
    rewrite(bundles / "v1", "golden.json", content)
    with pytest.raises(BundleError, match=words):
        check_golden(Bundle.open(bundles / "v1"))


def test_more_than_can_be_checked_at_every_opening_is_not_published(
    tmp_path: Path, make_contents: Callable[..., BundleContents]
) -> None:
    contents = make_contents()
    for recorded, words in (
        ([{"history": [101]}] * 1025, "1024 is the most"),
        ([{"history": [101] * 100_001}], "recorded query 0.history"),
        ([{"history": [101], "features": {"text": "x" * 16_000_000}}], "can't be read|16000000 is the most"),
    ):
        queries = replace(contents, recorded=recorded, expected=[contents.expected[0]] * len(recorded))
        with pytest.raises(BundleError):
            publish(tmp_path, queries)
        with pytest.raises(BundleError, match=words):
            save_golden(tmp_path / "it", Golden(k=20, queries=as_golden(recorded_queries(recorded))))
    assert list(tmp_path.iterdir()) == []


def as_golden(queries: list[RecordedQuery]) -> tuple[GoldenQuery, ...]:
    return tuple(GoldenQuery(**query.model_dump(), items=(), scores=()) for query in queries)


def test_long_histories_are_encoded_a_few_at_a_time(bundles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Bundle.open(bundles / "v1")
    queries = [RecordedQuery(history=(100 + place,) * (1 + place % 5)) for place in range(20)]
    whole = replay(bundle, queries, 5)
    monkeypatch.setattr(golden, "_STEPS_AT_ONCE", 12)
    sizes: list[int] = []
    run = bundle.encoder._session.run

    def noted(inputs: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.float32]:
        sizes.append(shape[0])
        return run(inputs, shape)

    monkeypatch.setattr(bundle.encoder._session, "run", noted)
    assert [answer.rows.tolist() for answer in replay(bundle, queries, 5)] == [
        answer.rows.tolist() for answer in whole
    ]
    assert sum(sizes) == 20
    assert max(sizes) <= 4
    with pytest.raises(BundleError, match="recorded query 19: features"):
        replay(bundle, [*queries[:19], RecordedQuery(history=(101,), features={"shoe": 43})], 5)
