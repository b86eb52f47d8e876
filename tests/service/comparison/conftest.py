from collections.abc import Callable
from pathlib import Path

import pytest

from turret.service.comparison.side import Side
from turret.service.models.loaded_model import open_live
from turret.service.overlay.apply_changes import empty_overlay
from turret.tower.bundle.publish import BundleContents, publish

MakeSide = Callable[..., Side]


@pytest.fixture
def make_side(tmp_path: Path, make_contents: Callable[..., BundleContents]) -> MakeSide:
    """Publish a version and open it."""

    def make(version: str, **contents: object) -> Side:
        publish(tmp_path / "published", make_contents(version, **contents))
        model = open_live(tmp_path / "published", version)
        return Side(model, empty_overlay(model.bundle))

    return make
