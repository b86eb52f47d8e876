from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.item_map import open_item_map, quantised


def test_points_span_a_square_around_the_middle_of_their_range() -> None:
    points = quantised("pca", np.array([[-1.0, 2.0], [3.0, 2.0], [1.0, 3.0]])).points
    assert points.dtype == np.uint16
    assert points[:2].tolist() == [[0, 24576], [65535, 24576]]
    assert points[2].tolist() == [32768, 40959]


@pytest.mark.parametrize("points", [np.zeros((1, 2)), np.full((3, 2), 7.5)])
def test_equal_points_are_in_the_middle(points: np.ndarray) -> None:
    assert (quantised("pca", points).points == 32768).all()


def test_a_bundle_keeps_its_map_and_one_without_has_none(
    tmp_path: Path, make_contents: Callable[..., BundleContents]
) -> None:
    item_map = quantised("umap", np.random.default_rng(0).standard_normal((60, 2)))
    publish(tmp_path, replace(make_contents("with"), item_map=item_map))
    publish(tmp_path, make_contents("without"))
    bundle = Bundle.open(tmp_path / "with")
    opened = open_item_map(bundle.folder, bundle.manifest)
    assert opened is not None
    assert opened.method == "umap"
    assert (opened.points == item_map.points).all()
    bare = Bundle.open(tmp_path / "without")
    assert open_item_map(bare.folder, bare.manifest) is None


def test_a_map_of_other_items_is_refused(
    tmp_path: Path, make_contents: Callable[..., BundleContents]
) -> None:
    publish(tmp_path, replace(make_contents(), item_map=quantised("pca", np.zeros((59, 2)))))
    bundle = Bundle.open(tmp_path / "v1")
    with pytest.raises(BundleError, match="of different models"):
        open_item_map(bundle.folder, bundle.manifest)
