"""Questions that leave little to answer with, and filters; against answers found by sorting all items."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.faults.big_shop import ASKED, COUNT, FIRST, SEED, SHARES, Shop, publish_shop
from tests.support.service_app import ids, recommended, serving

# An index as it is published, and one whose filters all go through it.
SERVED: dict[str, tuple[str, int | None]] = {
    "exact": ("flat", None),
    "graph, no subsets": ("hnsw", 0),
}
POPULAR = list(range(100, 160))
HISTORIES = [
    (FIRST + np.random.default_rng(seed).choice(COUNT, 1 + seed % 5, replace=False)).tolist()
    for seed in range(SEED, SEED + 8)
]


@dataclass(frozen=True)
class Served:
    shop: Shop
    client: TestClient

    def ask(self, **body: Any) -> dict[str, Any]:
        return recommended(self.client, **body)

    def is_exact(self, allowed: int) -> bool:
        """Whether so many items are scored one by one."""
        index = self.shop.manifest.index
        return index.is_exact or allowed <= getattr(index, "subset_rows", 0)


@pytest.fixture(scope="module", params=SERVED)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    kind, subset_rows = SERVED[request.param]
    shop = publish_shop(tmp_path_factory.mktemp("big") / "bundles", kind, subset_rows)
    with serving(shop.root) as client:
        yield Served(shop, client)


@pytest.fixture(scope="module")
def client(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """60 items from 100."""
    with serving(shutil.copytree(published, tmp_path_factory.mktemp("small") / "bundles")) as client:
        yield client


def check(served: Served, answer: dict[str, Any], history: Sequence[int], allowed: set[int], k: int) -> float:
    """Check all that holds of any answer; gives the share of the true best that it has."""
    found, best = ids(answer), served.shop.best(history, allowed)
    assert len(found) == len(set(found)) == min(k, len(allowed))
    assert set(found) <= allowed
    assert answer.get("exhausted", False) is (len(allowed) < k)
    scores = [item["score"] for item in answer["items"]]
    assert scores == sorted(scores, reverse=True)
    right = dict(best)
    assert scores == pytest.approx([right[one] for one in found], rel=1e-4, abs=1e-5)
    if served.is_exact(len(allowed)):
        assert scores == pytest.approx([score for _, score in best[:k]], rel=1e-4, abs=1e-5)
    return len(set(found) & {one for one, _ in best[:k]}) / min(k, len(allowed)) if allowed else 1.0


@pytest.mark.fault(22)
@pytest.mark.parametrize("share", SHARES)
def test_answers_are_right_at_every_share_of_the_catalog(served: Served, share: str) -> None:
    """Items that are named, seen or filtered out are not there; all others are, the best first."""
    recalls = []
    for history in HISTORIES:
        allowed = served.shop.ids(share)
        named = sorted(allowed)[:3] if len(allowed) > 10 else []
        for k in (1, 10, 100):
            body = {"history": history, "exclude": named, "filter": {"share": {"any_of": [share]}}, "k": k}
            recalls.append(check(served, served.ask(**body), history, allowed - {*history, *named}, k))
            seen = served.ask(**body, exclude_seen=False)
            check(served, seen, history, allowed - set(named), k)
    # A mean of some users is not the mean of all; it is off by less than this at 10 items each.
    assert np.mean(recalls) >= ASKED - 0.1


@pytest.mark.fault(22)
def test_a_filter_of_one_item_gives_it_and_of_none_nothing(served: Served) -> None:
    (only,) = served.shop.ids("one")
    for wanted, expected in (
        ({"share": {"equals": "one"}}, [only]),
        ({"place": {"equals": 0}}, [only]),
        ({"place": {"lt": 0}}, []),
        ({"place": {"gt": 10, "lt": 5}}, []),
        ({"share": {"equals": "one", "none_of": ["one"]}}, []),
        ({"share": {"any_of": []}}, []),
        ({"all": [{"place": {"lt": 5}}, {"not": {"place": {"lt": 5}}}]}, []),
        ({"any": []}, []),
    ):
        for more in ({"history": HISTORIES[0]}, {}, {"history": HISTORIES[0], "diversity": 0.5}):
            answer = served.ask(**more, filter=wanted, k=10, exclude_seen=False)
            assert ids(answer) == expected
            assert answer["exhausted"] is True
            assert "cursor" not in answer
    answer = served.ask(history=[only], filter={"share": {"equals": "one"}})
    assert ids(answer) == []


@pytest.mark.fault(22)
@pytest.mark.parametrize("share", ["whole", "tenth", "some", "two"])
def test_pages_of_a_filtered_answer_have_no_item_twice_and_miss_few(served: Served, share: str) -> None:
    """Up to 600 items by pages of 60, in order; of an index that misses some, no more than it may."""
    history, k = HISTORIES[1], 60
    allowed = served.shop.ids(share) - set(history)
    body = {"history": history, "filter": {"share": {"equals": share}}, "k": k}
    pages: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    for _ in range(10):
        pages.append(served.ask(**body, **cursor))
        if "cursor" not in pages[-1]:
            break
        cursor = {"cursor": pages[-1]["cursor"]}
    found = [one for page in pages for one in ids(page)]
    scores = [item["score"] for page in pages for item in page["items"]]
    assert len(found) == len(set(found))
    assert set(found) <= allowed
    assert scores == sorted(scores, reverse=True)
    best = [one for one, _ in served.shop.best(history, allowed)][: len(found)]
    missed = set(best) - set(found)
    if served.is_exact(len(allowed)):
        assert found == best
    assert len(missed) <= (1 - ASKED + 0.1) * len(best)
    assert len(found) >= min(600, len(allowed)) - len(missed)


@pytest.mark.fault(22)
@pytest.mark.fault(30)
def test_withdrawn_items_are_in_no_filtered_answer(served: Served) -> None:
    history = HISTORIES[2]
    allowed = served.shop.ids("some") - set(history)
    withdrawn = [one for one, _ in served.shop.best(history, allowed)][:5]
    client = served.client
    try:
        for one in withdrawn:
            assert client.delete(f"/v1/items/{one}").status_code == 200
        for share in ("some", "tenth", "whole"):
            left = served.shop.ids(share) - {*history, *withdrawn}
            answer = served.ask(history=history, filter={"share": {"equals": share}}, k=100)
            check(served, answer, history, left, 100)
    finally:
        for one in withdrawn:
            back = {"features": {}, "fields": served.shop.fields(one)}
            assert client.put(f"/v1/items/{one}", json=back).status_code == 200
    answer = served.ask(history=history, filter={"share": {"equals": "some"}}, k=100)
    assert ids(answer)[:5] == withdrawn


@pytest.mark.fault(20)
def test_no_offset_leads_anywhere_else(client: TestClient) -> None:
    """There are none to name; a cursor that was made up is refused, or leads behind the last item."""
    unknown: tuple[dict[str, Any], ...] = ({"offset": -1}, {"offset": 10**9}, {"history": [101], "page": 2})
    for body in unknown:
        answer = client.post("/v1/recommend", json=body)
        assert answer.status_code == 422
        assert "unknown field" in answer.json()["error"]["message"]
    for cursor in ("v1~0~-1~0~3f800000", "v1~0~fffffffff~0~3f800000", "v1~0~1~1~7f800000", "10", "-1"):
        answer = client.post("/v1/recommend", json={"history": [101], "cursor": cursor})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "cursor")
    for cursor in ("v1~0~fffffff~fffffff~ff7fffff", "v1~0~fffffff~0~ff7fffff"):
        for history in ([101], []):
            asked = {"history": history, "cursor": cursor, "k": 1000}
            answer = client.post("/v1/recommend", json=asked)
            assert answer.json()["items"] == []
            assert answer.json()["exhausted"] is True
    whole = client.post("/v1/recommend", json={"history": [101], "k": 1000}).json()
    ahead = client.post(
        "/v1/recommend", json={"history": [101], "k": 1000, "cursor": "v1~0~fffffff~0~7f7fffff"}
    ).json()
    assert ids(ahead) == ids(whole)


@pytest.mark.fault(21)
def test_whoever_is_unknown_gets_something_and_is_told_where_it_comes_from(client: TestClient) -> None:
    """Towers where anything is known, else what is popular; nothing is left only when all was seen."""

    def ask(**body: Any) -> dict[str, Any]:
        return recommended(client, **{"k": 5, **body})

    def sources(answer: dict[str, Any]) -> set[str]:
        return {item["source"] for item in answer["items"]}

    nobody: tuple[dict[str, Any], ...] = ({}, {"user_id": "nobody"}, {"history": []})
    for body in nobody:
        assert ids(ask(**body)) == POPULAR[:5]
        assert sources(ask(**body)) == {"popular"}
    unknown = ask(history=["gone", 99999])
    assert (ids(unknown), unknown["unknown_items"]) == (POPULAR[:5], ["gone", 99999])
    assert sources(unknown) == {"popular"}
    partly = ask(history=["gone", 101])
    assert (sources(partly), partly["unknown_items"]) == ({"towers"}, ["gone"])
    assert ids(partly) == ids(ask(history=[101]))
    all_seen = ask(history=POPULAR)
    assert (all_seen["items"], all_seen["exhausted"]) == ([], True)
    again = ask(history=POPULAR, exclude_seen=False)
    assert (len(ids(again)), sources(again)) == (5, {"towers"})
    all_left_out = ask(exclude=POPULAR)
    assert (all_left_out["items"], all_left_out["exhausted"]) == ([], True)


@pytest.mark.fault(21)
def test_a_stored_user_who_has_seen_all_or_nothing_known(client: TestClient) -> None:
    events = [{"event_id": n, "user_id": "all", "item_id": item} for n, item in enumerate(POPULAR)]
    events += [{"event_id": f"x{n}", "user_id": "none", "item_id": f"gone {n}"} for n in range(3)]
    assert client.post("/v1/events", json={"events": events}).json()["stored"] == len(events)
    seen = client.post("/v1/recommend", json={"user_id": "all"}).json()
    assert (seen["items"], seen["exhausted"]) == ([], True)
    unknown = client.post("/v1/recommend", json={"user_id": "none", "k": 3}).json()
    assert ids(unknown) == POPULAR[:3]
    assert unknown["unknown_items"] == ["gone 0", "gone 1", "gone 2"]
    assert {item["source"] for item in unknown["items"]} == {"popular"}
    answers = client.post(
        "/v1/recommend/batch", json={"requests": [{"user_id": one, "k": 3} for one in ("all", "none", "new")]}
    ).json()["results"]
    assert [len(one["items"]) for one in answers] == [0, 3, 3]


@pytest.mark.fault(20)
@pytest.mark.parametrize("k", [59, 60, 61, 1000])
def test_fewer_items_come_where_there_are_no_more_and_that_is_said(client: TestClient, k: int) -> None:
    """The catalog has 60, one of them seen: every other one comes, once, and none of another world."""
    for history, exclude in (([101], []), ([], []), ([101], POPULAR[:50])):
        body = {"history": history, "exclude": exclude, "k": k}
        answer = client.post("/v1/recommend", json=body).json()
        left = set(POPULAR) - {*history, *exclude}
        assert len(ids(answer)) == len(set(ids(answer))) == min(k, len(left))
        assert set(ids(answer)) <= left
        assert answer.get("exhausted", False) is (len(left) < k)
    assert len(set(ids(client.get(f"/v1/items/101/similar?k={k}").json()))) == min(k, 59)
