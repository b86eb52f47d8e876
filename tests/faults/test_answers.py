"""Filters that leave little to answer with, against answers found by sorting all items."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from tests.conftest import contents
from tests.support.service_app import ids, recommended, serving
from turret.tower.bundle.publish import publish, reindex
from turret.tower.format.listing import point
from turret.tower.format.manifest import MANIFEST, read_manifest, write_manifest
from turret.tower.tuning.choice import IndexRequest

COUNT, FIRST, WIDTH, TEMPERATURE = 2_500, 100, 16, 0.5
ASKED = 0.8  # recall: low, so that an index that misses nothing by accident is no approximate one
# Shares of the catalog by value of the field `share`; an item has those of its place in a random order.
SHARES = {"whole": COUNT, "half": COUNT // 2, "tenth": COUNT // 10, "some": 80, "two": 2, "one": 1}
PLACES = np.random.default_rng(5).permutation(COUNT)
HISTORIES = [
    (FIRST + np.random.default_rng(seed).choice(COUNT, 1 + seed % 5, replace=False)).tolist()
    for seed in range(5, 13)
]


@dataclass(frozen=True)
class Served:
    """A service of the catalog, and what is needed to know its right answers."""

    client: TestClient
    vectors: NDArray[np.float32]
    is_exact: bool

    def ask(self, **body: Any) -> dict[str, Any]:
        return recommended(self.client, **body)

    def best(self, history: Sequence[int], allowed: set[int]) -> list[tuple[int, float]]:
        """Allowed items with their scores, best first: in float64, one after another, by sorting."""
        rows = np.array(sorted(allowed), dtype=np.int64) - FIRST
        user = self.vectors[np.array(history) - FIRST].astype(np.float64).mean(axis=0)
        scores = self.vectors[rows].astype(np.float64) @ (user / np.linalg.norm(user)) / TEMPERATURE
        order = np.lexsort((rows, -scores))
        return list(zip((rows[order] + FIRST).tolist(), scores[order].tolist(), strict=True))

    def check(self, answer: dict[str, Any], history: Sequence[int], allowed: set[int], k: int) -> float:
        """Check all that holds of any answer; gives the share of the true best that it has."""
        found, best = ids(answer), self.best(history, allowed)
        assert len(found) == len(set(found)) == min(k, len(allowed))
        assert set(found) <= allowed
        assert answer.get("exhausted", False) is (len(allowed) < k)
        scores = [item["score"] for item in answer["items"]]
        assert scores == sorted(scores, reverse=True)
        right = dict(best)
        assert scores == pytest.approx([right[one] for one in found], rel=1e-4, abs=1e-5)
        if self.is_exact:
            assert scores == pytest.approx([score for _, score in best[:k]], rel=1e-4, abs=1e-5)
        return len(set(found) & {one for one, _ in best[:k]}) / min(k, len(allowed)) if allowed else 1.0


@pytest.fixture(scope="module", params=["flat", "hnsw"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An exact index, and a graph through which all filters go, however few items they leave."""
    root = tmp_path_factory.mktemp("big") / "bundles"
    plain = contents("v1", ids=tuple(range(FIRST, FIRST + COUNT)), dimension=WIDTH)
    users = np.random.default_rng(6).standard_normal((64, WIDTH)).astype(np.float32)
    users /= np.linalg.norm(users, axis=1, keepdims=True)
    shares = [[name for name, size in SHARES.items() if place < size] for place in PLACES]
    fields = {"share": shares, "place": PLACES.tolist()}
    publish(root, replace(plain, fields=fields, query_vectors=users))
    if request.param == "hnsw":
        folder = reindex(root / "v1", IndexRequest("hnsw", ASKED), "v2")
        manifest = read_manifest(folder)
        index = manifest.index.model_copy(update={"subset_rows": 0})
        (folder / MANIFEST).unlink()  # it is read-only
        write_manifest(folder, manifest.model_copy(update={"index": index}))
        point(root, "v2")
    with serving(root) as client:
        yield Served(client, plain.item_vectors, request.param == "flat")


@pytest.mark.fault(22)
@pytest.mark.parametrize("share", SHARES)
def test_answers_are_right_at_every_share_of_the_catalog(served: Served, share: str) -> None:
    """Items that are named, seen or filtered out are not there; all others are, the best first."""
    recalls = []
    for history in HISTORIES:
        allowed = set((FIRST + np.flatnonzero(SHARES[share] > PLACES)).tolist())
        named = sorted(allowed)[:3] if len(allowed) > 10 else []
        for k in (1, 10, 100):
            body = {"history": history, "exclude": named, "filter": {"share": {"any_of": [share]}}, "k": k}
            recalls.append(served.check(served.ask(**body), history, allowed - {*history, *named}, k))
            seen = served.ask(**body, exclude_seen=False)
            served.check(seen, history, allowed - set(named), k)
    # A mean of some users is not the mean of all; it is off by less than this at 10 items each.
    assert np.mean(recalls) >= ASKED - 0.1


@pytest.mark.fault(22)
def test_a_filter_of_one_item_gives_it_and_of_none_nothing(served: Served) -> None:
    only = FIRST + int(np.flatnonzero(PLACES == 0)[0])
    for wanted, expected in (
        ({"share": {"equals": "one"}}, [only]),
        ({"place": {"equals": 0}}, [only]),
        ({"place": {"gt": 10, "lt": 5}}, []),
        ({"share": {"equals": "one", "none_of": ["one"]}}, []),
        ({"share": {"any_of": []}}, []),
        ({"all": [{"place": {"lt": 5}}, {"not": {"place": {"lt": 5}}}]}, []),
        ({"any": []}, []),
    ):
        for more in ({"history": HISTORIES[0]}, {}, {"history": HISTORIES[0], "diversity": 0.5}):
            answer = served.ask(**more, filter=wanted, k=10, exclude_seen=False)
            assert (ids(answer), answer["exhausted"], "cursor" in answer) == (expected, True, False)
    assert ids(served.ask(history=[only], filter={"share": {"equals": "one"}})) == []
