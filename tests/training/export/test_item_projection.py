import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from turret.tower.format.manifest import Scoring
from turret.training.export import item_projection
from turret.training.export.item_projection import principal_components, project_items

COSINE = Scoring(kind="cosine", temperature=1.0)


@pytest.mark.parametrize("block", [64, 16_384])
def test_the_plane_is_that_of_the_largest_variance(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the singular value decomposition of the centred vectors."""
    monkeypatch.setattr(item_projection, "_BLOCK", block)
    vectors = np.random.default_rng(0).standard_normal((200, 6)) * [1, 5, 1, 3, 1, 1]
    points = principal_components(vectors)
    left, sizes, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    expected = left[:, :2] * sizes[:2]
    signs = np.sign((expected * points).sum(axis=0))
    np.testing.assert_allclose(points, expected * signs, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 4), (5, 1), (2, 2)])
def test_few_items_and_dimensions_have_points_too(shape: tuple[int, int]) -> None:
    assert principal_components(np.ones(shape)).shape == (shape[0], 2)
    assert len(project_items(np.ones(shape, np.float32), COSINE).points) == shape[0]


def test_the_map_is_the_same_each_time_and_leaves_out_a_bias() -> None:
    vectors = np.random.default_rng(1).standard_normal((80, 5)).astype(np.float32)
    with_bias = np.hstack([vectors, np.full((80, 1), 100.0, np.float32) * np.arange(80)[:, None]])
    scoring = COSINE.model_copy(update={"item_bias": True})
    plain = project_items(vectors, COSINE)
    assert plain.method == "pca"
    assert (project_items(with_bias.astype(np.float32), scoring).points == plain.points).all()


def test_umap_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in: it would install numba and scikit-learn with it."""
    asked: list[dict[str, Any]] = []

    class Umap:
        def __init__(self, **options: Any) -> None:
            asked.append(options)

        def fit_transform(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
            return vectors[:, :2]

    module = ModuleType("umap")
    module.__spec__ = ModuleSpec("umap", None)
    module.UMAP = Umap  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "umap", module)
    vectors = np.random.default_rng(1).standard_normal((60, 5)).astype(np.float32)
    assert project_items(vectors, COSINE).method == "umap"
    assert asked == [{"metric": "cosine", "random_state": 0, "n_jobs": 1}]
    assert project_items(vectors[:40], COSINE).method == "pca"
    monkeypatch.setattr(item_projection, "UMAP_ITEMS", 50)
    assert project_items(vectors, COSINE).method == "pca"


def test_a_umap_that_can_not_be_imported_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "umap.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "umap", raising=False)
    vectors = np.random.default_rng(1).standard_normal((60, 5)).astype(np.float32)
    assert project_items(vectors, COSINE).method == "pca"
    assert "the map of the items is made by PCA" in caplog.text
