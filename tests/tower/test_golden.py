import json
from pathlib import Path

import numpy as np
import pytest

from tests.bundle_damage import rewrite
from tower.bundle import Bundle
from tower.errors import BundleError
from tower.golden import RecordedQuery, check_golden, difference, load_golden
from tower.retriever import Ranking


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
