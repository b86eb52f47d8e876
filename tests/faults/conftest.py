"""The folder of versions of these tests."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import contents
from turret.tower.bundle.publish import publish


@pytest.fixture(scope="session")
def published_three(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = shutil.copytree(published, tmp_path_factory.mktemp("three") / "bundles")
    publish(root, contents("v2", ids=range(200, 240), seed=1))
    publish(root, contents("v3", ids=range(300, 320), seed=2))
    return root


@pytest.fixture
def three(published_three: Path, bundles: Path) -> Path:
    """Versions with disjoint items: 100-159 (current), 200-239 and 300-319."""
    shutil.rmtree(bundles)
    return shutil.copytree(published_three, bundles)
