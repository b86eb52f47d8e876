"""What can't be answered as usual: nobody known, nothing left, nothing allowed. By the real process."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.conftest import contents
from tests.service_process import Process
from tower.publishing import publish

IDS = list(range(100, 400))
YEARS = [2000 + place % 7 for place in range(len(IDS))]
GENRES = [["drama"] if place % 3 else ["noir", "drama"] for place in range(len(IDS))]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """300 items with a year, genres, a price that one item alone has, and a shelf that a few have."""
    root = tmp_path_factory.mktemp("answers") / "bundles"
    prices = [None] * len(IDS)
    fields = {
        "year": YEARS,
        "genres": GENRES,
        "price": [*prices[:-1], 9.5],
        "shelf": [place if place % 100 == 0 else None for place in range(len(IDS))],
    }
    publish(root, replace(contents(ids=IDS), fields=fields))
    process = Process(root)
    yield process
    process.close()


def ask(service: Process, **body: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/recommend", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ids(answer: dict[str, Any]) -> list[int]:
    return [item["id"] for item in answer["items"]]


@pytest.mark.fault(21)
@pytest.mark.parametrize(
    "body",
    [{}, {"user_id": "nobody"}, {"history": []}, {"history": ["none", 7]}, {"user_id": 7, "history": []}],
    ids=["nobody", "unknown user", "empty history", "unknown items", "both"],
)
def test_who_is_not_known_gets_what_is_popular_and_is_told_so(service: Process, body: dict[str, Any]) -> None:
    answer = ask(service, **body, k=5)
    assert ids(answer) == IDS[:5]  # the bundle's order of popularity
    assert {item["source"] for item in answer["items"]} == {"popular"}
    assert answer.get("unknown_items", []) == [one for one in body.get("history", ()) if one not in IDS]


@pytest.mark.fault(21)
def test_one_known_item_among_unknown_ones_is_enough(service: Process) -> None:
    answer = ask(service, history=["none", 101, 7], k=5)
    assert {item["source"] for item in answer["items"]} == {"towers"}
    assert ids(answer) == ids(ask(service, history=[101], k=5))
    assert answer["unknown_items"] == ["none", 7]


@pytest.mark.fault(21)
def test_who_has_seen_everything_gets_an_empty_answer_unless_seen_items_count(service: Process) -> None:
    seen = ask(service, history=IDS, k=10)
    assert (seen["items"], seen["exhausted"]) == ([], True)
    assert len(ask(service, history=IDS, k=10, exclude_seen=False)["items"]) == 10
    left = ask(service, history=IDS[1:], k=10)
    assert (ids(left), left["exhausted"]) == ([IDS[0]], True)


@pytest.mark.fault(22)
@pytest.mark.parametrize(
    "wanted",
    [
        {"year": {"gt": 2005, "lt": 2001}},
        {"year": {"equals": 1990}},
        {"all": [{"year": {"equals": 2001}}, {"not": {"year": {"equals": 2001}}}]},
        {"any": []},
        {"genres": {"any_of": []}},
    ],
)
def test_a_filter_that_allows_nothing_gets_an_empty_answer(service: Process, wanted: dict[str, Any]) -> None:
    for body in ({"history": [101]}, {}):
        answer = ask(service, **body, filter=wanted)
        assert (answer["items"], answer["exhausted"]) == ([], True)


@pytest.mark.fault(22)
@pytest.mark.parametrize(
    "wanted",
    [
        {"price": {"not_null": True}},
        {"shelf": {"not_null": True}},
        {"year": {"equals": 2003}},
        {"genres": {"any_of": ["noir"]}, "year": {"gte": 2001, "lt": 2004}},
        {"not": {"genres": {"equals": "noir"}}},
        {},
    ],
    ids=["one item", "a hundredth", "a seventh", "two fields", "most", "all"],
)
def test_a_filter_of_any_share_gives_the_best_of_what_it_allows(
    service: Process, wanted: dict[str, Any]
) -> None:
    """As many as there are, in the order of the whole ranking, which a long answer shows."""
    every = ask(service, history=[101], k=1000)
    assert len(every["items"]) == len(IDS) - 1
    allowed = {IDS[place] for place in range(len(IDS)) if is_allowed(place, wanted)}
    expected = [one for one in ids(every) if one in allowed]
    for k in (1, 10, 1000):
        answer = ask(service, history=[101], filter=wanted, k=k)
        assert ids(answer) == expected[:k]
        assert answer.get("exhausted", False) == (len(expected) < k)


def is_allowed(place: int, wanted: dict[str, Any]) -> bool:
    """The filters of the test above, told once more by hand."""
    match [*wanted]:
        case ["price"]:
            return place == len(IDS) - 1
        case ["shelf"]:
            return place % 100 == 0
        case ["year"]:
            return YEARS[place] == 2003
        case ["genres", "year"]:
            return "noir" in GENRES[place] and 2001 <= YEARS[place] < 2004
        case ["not"]:
            return "noir" not in GENRES[place]
    return True


@pytest.mark.fault(22)
@pytest.mark.parametrize(
    ("wanted", "named", "remedy"),
    [
        ({"colour": {"equals": "red"}}, "filter.colour", "year, genres, price, shelf"),
        ({"year": {"around": 2000}}, "filter.year.around", "equals"),
        ({"year": {"gt": "y2k"}}, "filter.year.gt", "number"),
        ({"not": {"colour": {"equals": "red"}}}, "filter.not.colour", "year, genres, price, shelf"),
    ],
)
def test_a_filter_that_names_what_there_is_not_is_refused_with_what_there_is(
    service: Process, wanted: dict[str, Any], named: str, remedy: str
) -> None:
    answer = service.client.post("/v1/recommend", json={"filter": wanted})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["field"] == named
    assert remedy in error["message"]


@pytest.mark.fault(22)
def test_pages_of_a_filter_hold_everything_that_it_allows_once(service: Process) -> None:
    wanted = {"year": {"any_of": [2002, 2005]}}
    whole = ids(ask(service, history=[101], filter=wanted, k=1000))
    pages: list[int] = []
    body: dict[str, Any] = {"history": [101], "filter": wanted, "k": 13}
    while True:
        answer = ask(service, **body)
        pages += ids(answer)
        if "cursor" not in answer:
            break
        body["cursor"] = answer["cursor"]
    assert pages == whole
    assert len(whole) == np.isin(YEARS, [2002, 2005]).sum() - (YEARS[1] in (2002, 2005))
