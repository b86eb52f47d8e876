from collections.abc import Callable

import pytest

from turret.service.comparison.measured_overlap import (
    measure_overlap,
    queries_of_golden,
    queries_of_users,
)
from turret.service.comparison.side import Side
from turret.service.errors import ConflictError
from turret.service.stores.contract import History

MakeSide = Callable[..., Side]
HISTORIES = [History((100 + user, 101 + user), (1000, 2000)) for user in range(40)]


def nothing() -> None:
    pass


def test_a_version_agrees_with_itself(make_side: MakeSide) -> None:
    side = make_side("v1")
    found = measure_overlap(side, side, queries_of_users(HISTORIES, 10, 5000), nothing)
    assert found == {
        "histories": 40,
        "overlap_mean": 1.0,
        "overlap_histogram": [0] * 9 + [40],
        "changed_first": 0.0,
    }


def test_versions_of_other_items_have_nothing_in_common(make_side: MakeSide) -> None:
    live, other = make_side("v1"), make_side("v2", ids=range(200, 260))
    found = measure_overlap(live, other, queries_of_users(HISTORIES, 10, 5000), nothing)
    assert found["overlap_histogram"] == [40] + [0] * 9
    assert (found["overlap_mean"], found["changed_first"]) == (0.0, 1.0)


def test_the_histogram_has_each_mean_in_its_tenth(make_side: MakeSide) -> None:
    live, other = make_side("v1"), make_side("v2", seed=1)
    for k in (1, 3, 7, 10):
        found = measure_overlap(live, other, queries_of_users(HISTORIES, k, 5000), nothing)
        counts = found["overlap_histogram"]
        least = sum(tenth * count for tenth, count in enumerate(counts)) / 10 / 40
        assert least <= found["overlap_mean"] + 1e-9 <= least + 0.1 + 2e-9


def test_it_ends_in_time_with_what_was_measured(make_side: MakeSide) -> None:
    side = make_side("v1")
    assert measure_overlap(side, side, queries_of_users(HISTORIES, 10, 5000), nothing, 0)["histories"] == 1


def test_the_recorded_queries_are_those_of_the_bundle(make_side: MakeSide) -> None:
    side = make_side("v1", times=True)
    queries = queries_of_golden(side.model.bundle, 5, 5000)
    assert queries
    assert all(query.request.k == 5 and query.history for query in queries)
    found = measure_overlap(side, side, queries, nothing)
    assert found["overlap_mean"] == 1.0


def test_queries_that_cannot_be_read_are_refused_with_a_remedy(make_side: MakeSide) -> None:
    side = make_side("v1")
    (side.model.bundle.folder / "golden.json").unlink()
    with pytest.raises(ConflictError, match="store events first"):
        queries_of_golden(side.model.bundle, 5, 5000)
