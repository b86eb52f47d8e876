import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import contents
from tests.support.item_towers import item_features, item_tower, with_item_tower
from turret.data.manifest import hash_file
from turret.tower.bundle.bundle import load
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.manifest import DIGEST, MANIFEST, digest_line


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of one shape with item towers: other vectors, and a tower that turns films further."""
    root = tmp_path_factory.mktemp("towers")
    publish(root, with_item_tower(contents("v1")))
    other = with_item_tower(contents("v2", seed=1))
    further = tuple(
        one.model_copy(update={"vector": tuple(np.array(one.vector) * (1 if place == 0 else -1))})
        for place, one in enumerate(other.recorded_items)
    )
    publish(root, replace(other, item_tower=item_tower(8, turn=1.0), recorded_items=further))
    return root


@pytest.fixture
def root(published: Path, tmp_path: Path) -> Path:
    return shutil.copytree(published, tmp_path / "root")


def take_over(root: Path, *names: str) -> None:
    """Put files of v2 into v1, and make the manifest agree: a mix that no checksum sees."""
    stored = json.loads((root / "v1" / MANIFEST).read_text())
    for name in names:
        (root / "v1" / name).chmod(0o644)
        shutil.copy(root / "v2" / name, root / "v1" / name)
        stored["files"][name] = hash_file(root / "v1" / name).model_dump()
    text = json.dumps(stored).encode()
    for name, content in ((MANIFEST, text), (DIGEST, digest_line(text))):
        (root / "v1" / name).chmod(0o644)
        (root / "v1" / name).write_bytes(content)


def test_a_whole_bundle_passes(root: Path) -> None:
    for version in ("v1", "v2"):
        encoder = load(root, version).item_encoder
        assert encoder is not None
        assert encoder.features == item_features(8)


def test_the_item_tower_of_another_model_is_refused(root: Path) -> None:
    take_over(root, "item_tower.onnx")
    with pytest.raises(BundleError, match="encodes item 101"):
        load(root, "v1")


def test_it_is_refused_with_its_own_recorded_items_too(root: Path) -> None:
    """They were recorded beside another catalog."""
    take_over(root, "item_tower.onnx", "golden_items.json")
    with pytest.raises(BundleError, match="differs from the recorded"):
        load(root, "v1")


def test_vectors_that_are_not_trainings_stop_the_publication(tmp_path: Path) -> None:
    made = with_item_tower(contents())
    with pytest.raises(BundleError, match="encodes item"):
        publish(tmp_path, replace(made, item_tower=item_tower(8, turn=0.5)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda one: one | {"items": []}, "holds no recorded items"),
        (lambda one: one | {"more": 1}, "holds no recorded items"),
        (lambda one: {"items": [one["items"][0] | {"vector": [1.0]}]}, "1 are expected"),
        (lambda one: {"items": [one["items"][0] | {"id": 9}]}, "no such item"),
        (lambda one: {"items": [one["items"][0] | {"features": {"n0": "x"}}]}, "features.n0"),
    ],
)
def test_damage_that_no_checksum_sees_is_refused(root: Path, damage: object, said: str) -> None:
    path = root / "v2" / "golden_items.json"
    path.chmod(0o644)
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))  # type: ignore[operator]
    take_over(root, "golden_items.json")
    take_over(root, "item_tower.onnx")
    with pytest.raises(BundleError, match=said):
        load(root, "v1")
