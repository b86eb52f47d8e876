"""Publication of bundles, and new versions of them with another index."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import USER_FEATURES, contents, plain_ranking
from turret.data.features import Feature
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.bundle.publish import QUERY_VECTORS, check_queries, publish, query_vectors, reindex
from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.listing import current
from turret.tower.format.manifest import DIGEST, MANIFEST, REQUIRED_FILES, read_manifest
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.index import ExactIndex
from turret.tower.retrieval import Retriever
from turret.tower.tuning.choice import IndexRequest
from turret.tower.tuning.search_params import _FACTORS

ITEMS = 3000


def test_what_is_published_is_whole_and_read_only(tmp_path: Path) -> None:
    folder = publish(tmp_path / "new" / "root", contents())
    assert {path.name for path in folder.iterdir()} == {*REQUIRED_FILES, MANIFEST, DIGEST}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
    assert [path.name for path in sorted(folder.parent.iterdir())] == ["current", "v1"]


def test_a_bundle_holds_what_training_goes_on_from(tmp_path: Path) -> None:
    """If it is given; the files are checked as all others are, and a service has no use for them."""
    made = replace(contents(), experiment={"training": {"epochs": 3}}, item_features=USER_FEATURES)
    folder = publish(tmp_path, made)
    names = {path.name for path in folder.iterdir()}
    assert names == {*REQUIRED_FILES, MANIFEST, DIGEST, "experiment.json", "item_features.json"}
    assert json.loads((folder / "experiment.json").read_text()) == {"training": {"epochs": 3}}
    stored = json.loads((folder / "item_features.json").read_text())
    assert [Feature.model_validate(one) for one in stored] == list(USER_FEATURES)
    (folder / "experiment.json").chmod(0o644)
    (folder / "experiment.json").write_text("{}")
    with pytest.raises(BundleError, match=r"experiment\.json is not the file that was published"):
        Bundle.open(folder)


def test_only_the_first_bundle_becomes_current_by_itself(tmp_path: Path) -> None:
    publish(tmp_path, contents("v1"))
    publish(tmp_path, contents("v2", seed=1))
    assert current(tmp_path) == "v1"


@pytest.mark.parametrize("part", ["item_vectors", "scoring", "expected"])
def test_an_answer_that_is_not_trainings_stops_the_publication(tmp_path: Path, part: str) -> None:
    made = contents()
    changes: dict[str, Any] = {
        "item_vectors": np.roll(made.item_vectors, 1, axis=0),
        "scoring": ScoringConfig(kind="cosine", temperature=0.6),
        "expected": [(rows[::-1], scores) for rows, scores in made.expected],
    }
    with pytest.raises(BundleError, match="recorded query 0"):
        publish(tmp_path, replace(made, **{part: changes[part]}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "../v1"},
        {"recorded": [], "expected": []},
        {"expected": []},
        {"recorded": [{"history": [1]}] * 3},
        {"vocabulary": Vocabulary([100, 101])},
        {"fields": {"title": ["only one"]}},
        {"user_tower": b"nonsense"},
    ],
    ids=["version", "no queries", "no answers", "unknown items", "vocabulary", "fields", "tower"],
)
def test_contents_that_do_not_fit_leave_nothing_behind(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(BundleError):
        publish(tmp_path, replace(contents(), **changes))
    assert list(tmp_path.iterdir()) == []


def queries(count: int = 200) -> NDArray[np.float32]:
    vectors = np.random.default_rng(5).standard_normal((count, 8))
    unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit.astype(np.float32)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One bundle, v1, of 3,000 items, with 200 user vectors."""
    root = tmp_path_factory.mktemp("shop")
    made = contents(ids=tuple(range(ITEMS)))
    publish(root, replace(made, query_vectors=queries()))
    return root


@pytest.mark.parametrize("kind", ["ivf", "ivf_pq"])
def test_a_new_version_has_the_index_that_was_asked_for(shop: Path, kind: str) -> None:
    """Beside the old one, which stays as it was and current; it passes every check that a service makes."""
    before = {path.name: path.read_bytes() for path in (shop / "v1").iterdir()}
    target = reindex(shop / "v1", IndexRequest(kind, 0.9))
    assert target == shop / f"v1-{kind}"
    assert current(shop) == "v1"
    assert {path.name: path.read_bytes() for path in (shop / "v1").iterdir()} == before
    bundle = load(shop, target.name)
    assert isinstance(bundle.index, ApproximateIndex)
    manifest = bundle.manifest
    assert (manifest.version, manifest.index.kind, manifest.index.is_exact) == (target.name, kind, False)
    assert {(one.k, one.selectivity) for one in manifest.recall} == {
        (10, 1.0),
        (100, 1.0),
        (1000, 1.0),
        (10, 0.1),
        (100, 0.1),
        (10, 0.01),
    }
    assert min(one.recall for one in manifest.recall) >= 0.9
    assert manifest.index_choice is not None
    assert (manifest.index_choice.asked, manifest.index_choice.recall) == (kind, 0.9)
    assert manifest.fingerprints["reindexed"] == "v1"
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o444}
    assert all(path.stat().st_nlink == 1 for path in target.iterdir()), "damage of one would damage the other"
    (ranking,) = Retriever(bundle).recommend([np.array([1, 2, 3])], [{}], 10, [np.array([1, 2, 3])])
    rows, scores = plain_ranking(np.array(bundle.vectors), [1, 2, 3], 0.5, 10)
    assert len(set(ranking.rows.tolist()) & set(rows.tolist())) >= 6
    assert ranking.scores[0] == pytest.approx(scores[0], rel=0.1)


def test_a_bundle_can_be_reindexed_again_and_back(shop: Path) -> None:
    first = reindex(shop / "v1", IndexRequest("ivf", 0.9), "there")
    back = reindex(first, IndexRequest("flat"), "back")
    exported = read_manifest(shop / "v1").created
    assert [read_manifest(folder).exported for folder in (first, back)] == [exported, exported]
    assert isinstance(load(shop, "back").index, ExactIndex)
    old, new = (json.loads((folder / "golden.json").read_text()) for folder in (shop / "v1", back))
    assert [query["items"] for query in old["queries"]] == [query["items"] for query in new["queries"]]


def test_an_index_that_misses_the_recall_leaves_nothing(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_FACTORS, "ivf_pq", (1,))
    before = sorted(path.name for path in shop.iterdir())
    with pytest.raises(BundleError, match=r"of the true best .* nothing was published"):
        reindex(shop / "v1", IndexRequest("ivf_pq", 0.999), "missing")
    assert sorted(path.name for path in shop.iterdir()) == before


@pytest.mark.parametrize(
    ("version", "words"), [("v1", "name another --version"), ("../v1", "can't name a version")]
)
def test_a_version_is_neither_overwritten_nor_put_elsewhere(shop: Path, version: str, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        reindex(shop / "v1", IndexRequest("flat"), version)


QUERIES = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)


def test_user_vectors_are_kept_in_the_bundle(tmp_path: Path) -> None:
    bundle = Bundle.open(publish(tmp_path, replace(contents(), query_vectors=QUERIES)))
    assert QUERY_VECTORS in bundle.manifest.files
    assert np.array_equal(query_vectors(bundle), QUERIES)


def test_without_them_the_recorded_queries_are_encoded(bundles: Path) -> None:
    bundle = Bundle.open(bundles / "v1")
    found = query_vectors(bundle)
    assert found.shape == (3, 8)
    assert found[0] == pytest.approx(bundle.vectors[0], abs=1e-6)  # the mean of a history of one


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (QUERIES[:, :7], "shape"),
        (QUERIES[:0], "shape"),
        (QUERIES[0], "shape"),
        (np.where(QUERIES > 1, np.float32(np.nan), QUERIES), "not finite"),
    ],
)
def test_what_can_not_be_asked_is_refused(tmp_path: Path, vectors: NDArray[Any], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        check_queries(vectors, 8)
    with pytest.raises(BundleError, match=message):
        publish(tmp_path, replace(contents(), query_vectors=vectors))
    assert list(tmp_path.iterdir()) == []
