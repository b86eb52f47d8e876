"""Bundles are opened whole or refused: damage, recorded queries, and the time of towers."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import USER_FEATURES, contents
from tests.support import bundle_damage
from tests.support.bundle_damage import rewrite
from tests.support.item_towers import item_features, item_tower, with_item_tower
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.bundle.golden import RecordedQuery, difference
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.retrieval import Ranking


def test_what_is_opened_is_what_was_published(tmp_path: Path) -> None:
    made = contents(ids=["a", "b", "c", "d"], features=USER_FEATURES)
    bundle = Bundle.open(publish(tmp_path, made))
    assert np.array_equal(bundle.vectors, made.item_vectors)
    assert np.array_equal(bundle.popularity, made.popularity)
    assert bundle.vocabulary.ids(range(4)) == ["a", "b", "c", "d"]
    assert (bundle.catalog.fields, bundle.user_features) == (made.fields, made.user_features)
    assert bundle.manifest.metrics == {"recall@10": 0.5}
    assert (bundle.manifest.version, bundle.manifest.history_length) == ("v1", 5)


def test_an_unknown_version_is_answered_with_the_known_ones(bundles: Path) -> None:
    with pytest.raises(BundleError, match="there are: v1"):
        load(bundles, "v9")


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from turret.tower.bundle.bundle import load
status = Path("/proc/self/status").read_text()
taken = int(status.split("VmSize:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (taken + 512_000_000,) * 2)
load(Path(sys.argv[1]), "v1")
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="the system tells and limits this otherwise")
def test_a_small_bundle_is_opened_where_little_memory_may_be_asked_for(bundles: Path) -> None:
    """Under `ulimit -v`: what is asked for counts, also where it is never used."""
    subprocess.run([sys.executable, "-c", LITTLE_MEMORY, bundles], check=True, timeout=60)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """v1 and v2 of one shape, with item towers that differ, and v3 of other items and users."""
    versions = tmp_path_factory.mktemp("models")
    publish(versions, with_item_tower(contents("v1")))
    other = with_item_tower(contents("v2", seed=1))
    further = tuple(
        one.model_copy(update={"vector": tuple(np.array(one.vector) * (1 if place == 0 else -1))})
        for place, one in enumerate(other.recorded_items)
    )
    publish(versions, replace(other, item_tower=item_tower(8, turn=1.0), recorded_items=further))
    publish(versions, contents("v3", ids=[*range(101, 160), 7], features=USER_FEATURES, seed=5))
    return versions


@pytest.fixture
def versions(models: Path, tmp_path: Path) -> Path:
    return shutil.copytree(models, tmp_path / "versions")


def test_a_whole_bundle_passes(versions: Path) -> None:
    for version in ("v1", "v2", "v3"):
        load(versions, version)
    encoder = load(versions, "v2").item_encoder
    assert encoder is not None
    assert encoder.features == item_features(8)


# Each changes files of v1, those of the other versions beside it.
Damage = Callable[[Path], object]


def manifest(**changes: object) -> Damage:
    return lambda root: bundle_damage.change_manifest(root / "v1", **changes)


def taken(version: str, *names: str) -> Damage:
    """Files of another model, and a manifest that agrees: a mix that no checksum sees."""

    def take(versions: Path) -> None:
        for name in names:
            rewrite(versions / "v1", name, (versions / version / name).read_bytes())

    return take


def edited(name: str, change: Callable[[Any], object]) -> Damage:
    """Another content of a JSON file, which `change` gives or makes in place, and a manifest that agrees."""

    def edit(versions: Path) -> None:
        stored = json.loads((versions / "v1" / name).read_text())
        changed = change(stored)
        rewrite(versions / "v1", name, json.dumps(stored if changed is None else changed).encode())

    return edit


def renamed(versions: Path) -> None:
    shutil.rmtree(versions / "v1")
    (versions / "v2").rename(versions / "v1")


def other_byte(versions: Path) -> None:
    """In a file that is never read: only its checksum tells."""
    path = versions / "v1" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


def vectors(value: float) -> Damage:
    def change(versions: Path) -> None:
        path, content = versions / "v1" / "item_vectors.npy", BytesIO()
        numbers = np.load(path)
        numbers[5] = value
        np.save(content, numbers)
        rewrite(versions / "v1", path.name, content.getvalue())

    return change


def query(**changes: object) -> Damage:
    """Of the second recorded query."""
    return edited("golden.json", lambda stored: stored["queries"][1].update(changes))


def item(**changes: object) -> Damage:
    """One recorded item alone, with these changes."""
    return edited("golden_items.json", lambda stored: {"items": [stored["items"][0] | changes]})


UNASKED = {"history": [101], "items": [], "scores": []}
DAMAGES: dict[str, tuple[Damage, str]] = {
    "other queries": (taken("v3", "golden.json"), "not in the vocabulary"),
    "other vectors": (taken("v3", "item_vectors.npy"), "of different models"),
    "other features": (taken("v3", "user_features.json"), "its bundle gives .*feature_age"),
    "another tower": (taken("v3", "user_tower.onnx"), "reads .*feature_age"),
    "another vocabulary": (taken("v3", "vocabulary.json"), "belongs to another vocabulary"),
    "another format": (manifest(format_version=3), "format 3"),
    "too many items": (manifest(item_count=61), "61"),
    "too wide": (manifest(dimension=9), "shape"),
    "no files": (manifest(files={}), "list"),
    "an unknown entry": (manifest(unknown=1), "unknown"),
    "no version": (manifest(version=None), "version"),
    "renamed": (renamed, "rename"),
    "another byte": (other_byte, "not the file that was published: SHA-256"),
    **{f"a vector of {value}": (vectors(value), "row 5") for value in (np.nan, np.inf, 0.0, 3.0)},
    "golden of another model": (taken("v2", "golden.json"), "different models"),
    "items swapped": (
        edited("golden.json", lambda it: it["queries"][1].update(items=it["queries"][1]["items"][::-1])),
        "recorded query",
    ),
    "a score changed": (query(scores=[1.0] * 20), "recorded query"),
    "a history of others": (query(history=[12345]), "recorded query"),
    "an unknown feature": (query(features={"age": 1}), "recorded query"),
    "no queries": (edited("golden.json", lambda it: {"k": 20, "queries": []}), "no recorded queries"),
    "no object": (edited("golden.json", lambda it: []), "no recorded queries"),
    "an item tower of another model": (taken("v2", "item_tower.onnx"), "encodes item"),
    "no recorded items": (edited("golden_items.json", lambda it: {"items": []}), "holds no recorded items"),
    "more than items": (edited("golden_items.json", lambda it: it | {"more": 1}), "holds no recorded items"),
    "a narrow item": (item(vector=[1.0]), "1 are expected"),
    "an item of no number": (item(features={"n0": "x"}), "features.n0"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_refused_in_words(versions: Path, damage: Damage, words: str) -> None:
    damage(versions)
    with pytest.raises(BundleError, match=words):
        load(versions, "v1")


@pytest.mark.fault(50)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queries": [UNASKED] * 1025}, "at most 1024"),
        ({"queries": [UNASKED | {"history": [101] * 100_001}]}, "at most 100000"),
        ({"queries": [UNASKED | {"items": [1] * 1001}]}, "at most 1000"),
        ({"k": 1001}, "less than or equal to 1000"),
        ({"note": " " * 16_000_000}, "larger than the limit of 16000000 bytes"),
    ],
    ids=["queries", "history", "items", "k", "bytes"],
)
def test_recorded_queries_are_bounded_before_they_are_answered(
    versions: Path, changes: dict[str, Any], words: str
) -> None:
    edited("golden.json", lambda stored: stored | changes)(versions)
    with pytest.raises(BundleError, match=words):
        load(versions, "v1")


def test_vectors_that_are_not_trainings_stop_the_publication(tmp_path: Path) -> None:
    made = with_item_tower(contents())
    with pytest.raises(BundleError, match="encodes item"):
        publish(tmp_path, replace(made, item_tower=item_tower(8, turn=0.5)))
    assert list(tmp_path.iterdir()) == []


def ranking(rows: list[int], scores: list[float]) -> Ranking:
    return Ranking(np.array(rows, np.int64), np.array(scores, np.float32))


EXPECTED = ranking([4, 2, 7], [10.0, 5.0, 1.0])


@pytest.mark.parametrize(
    ("rows", "scores", "is_same"),
    [
        ([4, 2, 7], [10.0005, 4.9996, 1.0], True),
        ([4, 2, 9], [10.0, 5.0, 1.0005], True),  # a near tie at the end
        ([4, 2], [10.0, 5.0], False),
        ([4, 2, 7], [10.0, 5.0, 1.1], False),
        ([2, 4, 7], [10.0, 5.0, 1.0], False),
        ([4, 3, 7], [10.0, 5.0, 1.0], False),
        ([4, 2, 7], [10.0, 5.0, float("nan")], False),
    ],
)
def test_rounding_alone_is_no_difference(rows: list[int], scores: list[float], is_same: bool) -> None:
    assert (difference(EXPECTED, ranking(rows, scores)) is None) is is_same
    assert difference(ranking([1, 2], [3.0, 3.0001]), ranking([2, 1], [3.0001, 3.0])) is None


def test_a_recorded_query_has_a_time_for_each_item() -> None:
    """And is read with them if the question's own is there, too."""
    with pytest.raises(ValueError, match="1 times for 2 items"):
        RecordedQuery.model_validate({"history": [1, 2], "history_times": [5.0]})
    assert RecordedQuery.model_validate({"history": [1]}).times is None
    times = RecordedQuery.model_validate({"history": [1, 2], "history_times": [5, 7.5], "at": 9}).times
    assert times is not None
    assert (times.events.tolist(), times.asked) == ([5.0, 7.5], 9.0)
    with pytest.raises(ValueError, match="1 kinds for 2 items"):
        RecordedQuery.model_validate({"history": [1, 2], "history_kinds": ["view"]})
