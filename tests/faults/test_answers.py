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
def test_a_cursor_that_was_made_up_leads_behind_the_last_item(client: TestClient) -> None:
    for cursor in ("v1~0~fffffff~fffffff~ff7fffff", "v1~0~fffffff~0~ff7fffff"):
        for history in ([101], []):
            answer = recommended(client, history=history, cursor=cursor, k=1000)
            assert (answer["items"], answer["exhausted"]) == ([], True)
    ahead = recommended(client, history=[101], k=1000, cursor="v1~0~fffffff~0~7f7fffff")
    assert ids(ahead) == ids(recommended(client, history=[101], k=1000))
