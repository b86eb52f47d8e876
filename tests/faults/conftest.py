"""Running services of these tests, and what stands in front of them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import contents
from tests.support.service_calls import admin
from tests.support.service_process import Process
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


class SharedService(Process):
    """One service for a module's tests; `root` has the versions of `three`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root

    def reset(self) -> None:
        """Serve v1 to everybody again. Stored users stay: each test has its own."""
        if self.client.get("/v1/version").json()["version"] != "v1":
            admin(self, self.root, "activate", {"version": "v1"})
        admin(self, self.root, "routes", {"canary": None, "shadow": None})


@pytest.fixture(scope="module")
def running_service(
    published_three: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedService]:
    service = SharedService(shutil.copytree(published_three, tmp_path_factory.mktemp("shared") / "bundles"))
    yield service
    service.close()


@pytest.fixture
def service(running_service: SharedService) -> SharedService:
    """The service that a module's tests share, as it was in the beginning."""
    running_service.reset()
    return running_service
