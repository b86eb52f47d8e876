"""Bundles are opened whole or refused, and answer as training did."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import USER_FEATURES, contents
from tests.support import bundle_damage
from tests.support.bundle_damage import rewrite
from tests.support.item_towers import item_features, item_tower, with_item_tower
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import GoldenQuery, difference, load
from turret.tower.bundle.publish import publish
from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.checksums import check_parts
from turret.tower.format.manifest import read_manifest
from turret.tower.retrieval import Ranking


def test_what_is_opened_is_what_was_published(tmp_path: Path) -> None:
    made = contents(ids=["a", "b", "c", "d"], features=USER_FEATURES)
    bundle = Bundle.open(publish(tmp_path, made))
    assert np.array_equal(bundle.vectors, made.item_vectors)
    assert np.array_equal(bundle.popularity, made.popularity)
    assert bundle.vocabulary.ids(range(4)) == ["a", "b", "c", "d"]
    assert bundle.catalog.of(3) == {"title": "Item d", "genres": ["drama"]}
    assert bundle.user_features == made.user_features
    assert made.card.model_dump().items() <= bundle.manifest.model_dump().items()


def test_a_bundle_may_have_a_map_of_its_items(tmp_path: Path) -> None:
    points = np.random.default_rng(0).integers(0, 65_536, (60, 2)).astype(np.uint16)
    bundle = Bundle.open(publish(tmp_path, replace(contents(), item_map=points)))
    mapped = bundle.item_map()
    assert mapped is not None
    assert mapped.tolist() == points.tolist()
    assert Bundle.open(publish(tmp_path, contents("v2"))).item_map() is None
    other = Bundle.open(publish(tmp_path, replace(contents("v3"), item_map=points[1:])))
    with pytest.raises(BundleError, match="of different models"):
        other.item_map()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v1 and v2 of one shape, with item towers that differ, and v3 of other items and users."""
    versions = tmp_path_factory.mktemp("models")
    publish(versions, with_item_tower(contents("v1")))
    other = with_item_tower(contents("v2", seed=1))
    items = tuple(
        one.model_copy(update={"vector": tuple(np.array(one.vector) * (1 if place == 0 else -1))})
        for place, one in enumerate(other.golden.items)
    )
    golden = other.golden.model_copy(update={"items": items})
    publish(versions, replace(other, item_tower=item_tower(8, turn=1.0), golden=golden))
    publish(versions, contents("v3", ids=[*range(101, 160), 7], features=USER_FEATURES, seed=5))
    return versions


@pytest.fixture
def versions(models: Path, tmp_path: Path) -> Path:
    return shutil.copytree(models, tmp_path / "versions")


def test_a_whole_bundle_passes(versions: Path) -> None:
    for version in ("v1", "v2", "v3"):
        bundle = load(versions, version)
        assert (bundle.item_encoder is None) is (version == "v3")
        if bundle.item_encoder:
            assert bundle.item_encoder.features == item_features(8)


# Each changes files of v1, those of the other versions beside it.
Damage = Callable[[Path], object]


def manifest(**changes: object) -> Damage:
    return lambda root: bundle_damage.change_manifest(root / "v1", **changes)


def taken(version: str, name: str) -> Damage:
    """A file of another model, and a manifest that agrees: a mix that no checksum sees."""
    return lambda versions: rewrite(versions / "v1", name, (versions / version / name).read_bytes())


def golden(change: Callable[[Any], object]) -> Damage:
    """Other recorded queries, which `change` gives or makes in place, and a manifest that agrees."""

    def edit(versions: Path) -> None:
        stored = json.loads((versions / "v1" / "golden.json").read_text())
        changed = change(stored)
        rewrite(versions / "v1", "golden.json", json.dumps(stored if changed is None else changed).encode())

    return edit


def query(**changes: object) -> Damage:
    """Of the second recorded query."""
    return golden(lambda stored: stored["queries"][1].update(changes))


def item(**changes: object) -> Damage:
    """Of the first recorded item."""
    return golden(lambda stored: stored["items"][0].update(changes))


def array(name: str, place: int | slice, value: float) -> Damage:
    def change(versions: Path) -> None:
        path, content = versions / "v1" / name, BytesIO()
        numbers = np.load(path)
        numbers[place] = value
        np.save(content, numbers)
        rewrite(versions / "v1", name, content.getvalue())

    return change


def renamed(versions: Path) -> None:
    shutil.rmtree(versions / "v1")
    (versions / "v2").rename(versions / "v1")


UNASKED = {"history": [101], "items": [], "scores": []}
DAMAGES: dict[str, tuple[Damage, str]] = {
    "other queries": (taken("v3", "golden.json"), "not in the vocabulary"),
    "other vectors": (taken("v3", "item_vectors.npy"), "of different models"),
    "other features": (taken("v3", "user_features.json"), "its bundle gives .*feature_age"),
    "another tower": (taken("v3", "user_tower.onnx"), "reads .*feature_age"),
    "too many items": (manifest(item_count=61), "61"),
    "too wide": (manifest(dimension=9), "shape"),
    "no files": (manifest(files={}), "lists no"),
    "renamed": (renamed, "rename"),
    # In a file that is never read: only its checksum tells.
    "other bytes": (
        lambda root: bundle_damage.replace(root / "v1" / "model.safetensors", b"tensorssafe"),
        "not the file that was published: SHA-256",
    ),
    **{
        f"a vector of {value}": (array("item_vectors.npy", 5, value), "row 5") for value in (np.nan, 0.0, 3.0)
    },
    "no vectors": (array("item_vectors.npy", slice(None), 0.0), "nothing but zeros"),
    "a negative count": (array("popularity.npy", 2, -1), "negative"),
    "golden of another model": (taken("v2", "golden.json"), "different models"),
    "a score changed": (query(scores=[1.0] * 20), "recorded query 1: the score at position 1 is"),
    "an unknown feature": (query(features={"age": 1}), "recorded query 1: features.age"),
    "no queries": (golden(lambda it: {"k": 20, "queries": []}), "no recorded queries"),
    "an item tower of another model": (taken("v2", "item_tower.onnx"), "recorded item 101: its vector is"),
    "no recorded items": (golden(lambda it: it | {"items": []}), "recorded items: there are none"),
    "a narrow item": (item(vector=[1.0]), "1 are expected"),
    "an item of no number": (item(features={"n0": "x"}), "features.n0"),
    # Recorded queries are bounded before they are answered.
    "many queries": (golden(lambda it: it | {"queries": [UNASKED] * 1025}), "at most 1024"),
    "a long history": (query(**UNASKED | {"history": [101] * 100_001}), "at most 100000"),
    "many answers": (query(**UNASKED | {"items": [1] * 1001}), "at most 1000"),
    "a large k": (golden(lambda it: it | {"k": 1001}), "less than or equal to 1000"),
    "many bytes": (golden(lambda it: it | {"note": " " * 16_000_000}), "larger than the limit of 16000000"),
}


@pytest.mark.fault(50)
@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_refused_in_words(versions: Path, damage: Damage, words: str) -> None:
    damage(versions)
    with pytest.raises(BundleError, match=words):
        load(versions, "v1")


def test_a_bias_beside_the_cosine_is_free(bundles: Path) -> None:
    """It is the numbers before the last that are of length 1."""
    scoring = ScoringConfig(kind="cosine", temperature=1.0, item_bias=True)
    biased = read_manifest(bundles / "v1").model_copy(update={"scoring": scoring})
    popularity = np.ones(60, np.int64)
    vectors: NDArray[np.float32] = np.eye(60, 8, dtype=np.float32)
    vectors[7:, 0], vectors[:, 7] = 1, np.linspace(-2, 2, 60)
    check_parts(biased, vectors, popularity, popularity, np.zeros(60, np.float32), 60)
    vectors[1] *= 2
    with pytest.raises(BundleError, match="row 1 is 1 away"):
        check_parts(biased, vectors, popularity, popularity, np.zeros(60, np.float32), 60)


def ranking(rows: list[int], scores: list[float]) -> Ranking:
    return Ranking(np.array(rows, np.int64), np.array(scores, np.float32))


@pytest.mark.parametrize(
    ("rows", "scores", "is_same"),
    [
        ([4, 2, 7], [10.0005, 4.9996, 1.0], True),
        ([4, 2, 9], [10.0, 5.0, 1.0005], True),  # a near tie at the end
        ([4, 2], [10.0, 5.0], False),
        ([4, 2, 7], [10.0, 5.0, 1.1], False),
        ([2, 4, 7], [10.0, 5.0, 1.0], False),
        ([4, 2, 7], [10.0, 5.0, float("nan")], False),
    ],
)
def test_rounding_alone_is_no_difference(rows: list[int], scores: list[float], is_same: bool) -> None:
    assert (difference(ranking([4, 2, 7], [10.0, 5.0, 1.0]), ranking(rows, scores)) is None) is is_same
    assert difference(ranking([1, 2], [3.0, 3.0001]), ranking([2, 1], [3.0001, 3.0])) is None


def test_a_recorded_query_has_a_time_and_a_kind_for_each_item() -> None:
    """And is read with them if the question's own is there, too."""
    answer: dict[str, Any] = {"items": (), "scores": ()}
    assert GoldenQuery(history=(1,), **answer).times is None
    times = GoldenQuery(history=(1, 2), history_times=(5, 7.5), at=9, **answer).times
    assert times is not None
    assert (times.events.tolist(), times.request) == ([5.0, 7.5], 9.0)
    for beside, words in (({"history_times": (5,)}, "1 times"), ({"history_kinds": ("view",)}, "1 kinds")):
        with pytest.raises(ValueError, match=f"{words} for 2 items"):
            GoldenQuery.model_validate({"history": (1, 2), **beside, **answer})
