"""Bundles that must not be served: the running service refuses them, counts that, and goes on as it was."""

import os
import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from tests.conftest import contents
from tests.support.bundle_damage import change_manifest, replace, rewrite
from tests.support.hostile_towers import dividing, growing, looping, peaked, thief
from tests.support.service_calls import activate
from tests.support.service_process import Process
from turret.tower.bundle.publish import publish
from turret.tower.format.listing import current
from turret.tower.format.manifest import DIGEST, MANIFEST

# One service for all of them: each costs the check of a version.
pytestmark = pytest.mark.process
QUESTION = {"history": [101, 102], "k": 5}


class Running:
    """A service that serves v1, and what of it must not change."""

    def __init__(self, root: Path, process: Process) -> None:
        self.root = root
        self.process = process
        self.before = self.answer()

    def answer(self) -> tuple[int, Any]:
        response = self.process.client.post("/v1/recommend", json=QUESTION)
        return response.status_code, response.json()

    def refusals(self) -> dict[str, float]:
        """Refused versions by reason."""
        lines = self.process.client.get("/metrics").text.splitlines()
        counted = (line for line in lines if line.startswith("turret_reload_failures_total{"))
        return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in counted}

    def refuses(self, version: str, words: str, reason: str) -> None:
        """Ask to activate a version; it is refused in these words, and nothing else happens."""
        counted = self.refusals().get(reason, 0.0)
        response = activate(self.process, self.root, version)
        assert response.status_code == 409
        message = response.json()["error"]["message"]
        assert words in message
        assert "version v1 stays live" in message
        assert self.refusals()[reason] == counted + 1
        assert self.process.client.get("/readyz").json() == {"status": "ready", "version": "v1"}
        assert self.answer() == self.before == (200, self.before[1])
        assert current(self.root) == "v1"


@pytest.fixture(scope="module")
def running(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = shutil.copytree(published, tmp_path_factory.mktemp("running") / "bundles")
    # What a publication that was killed leaves behind: the start of the service removes it.
    left = shutil.copytree(root / "v1", root / ".publishing-v2-0123")
    os.utime(left, (1e9, 1e9))
    process = Process(root)
    try:
        yield Running(root, process)
    finally:
        process.close()


@pytest.fixture
def version(running: Running) -> Iterator[Path]:
    """Another version beside the live one, of the same ids and sizes, to be damaged."""
    folder = publish(running.root, contents("v2", seed=1))
    yield folder
    shutil.rmtree(folder)


def cut_short(version: Path) -> None:
    replace(version / "item_vectors.npy", (version / "item_vectors.npy").read_bytes()[:-100])


def of_another_model(version: Path) -> None:
    rewrite(version, "golden.json", (version.parent / "v1" / "golden.json").read_bytes())


def not_finite(version: Path) -> None:
    content = BytesIO()
    np.save(content, np.full_like(np.load(version / "item_vectors.npy"), np.nan))
    rewrite(version, "item_vectors.npy", content.getvalue())


def of_terabytes(version: Path) -> None:
    """With checksums that agree: the reader itself has to see it."""
    header = BytesIO()
    npy.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 8)})
    rewrite(version, "item_vectors.npy", header.getvalue())
    change_manifest(version, item_count=2**40)


def not_there_yet(version: Path) -> None:
    """Its manifest is there before its files."""
    for path in version.iterdir():
        if path.name not in (MANIFEST, DIGEST):
            path.unlink()


Damage = Callable[[Path], object]


def with_tower(make: Callable[[], bytes]) -> Damage:
    return lambda version: rewrite(version, "user_tower.onnx", make())


DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "cut short": (cut_short, "item_vectors.npy is not the file that was published", "checksum"),
    "of another model": (of_another_model, "different models", "golden"),
    "not finite": (not_finite, "not finite in row 0", "soundness"),
    "of terabytes": (of_terabytes, "item_vectors.npy", "soundness"),
    "not there yet": (not_there_yet, "can't be read", "checksum"),
    "another format": (
        lambda folder: change_manifest(folder, format_version=3),
        "is of format 3",
        "checksum",
    ),
    # The working directory of a service under test is the repository; its own files do for a secret.
    "a thief": (with_tower(lambda: thief("pyproject.toml", 8)), "another file", "soundness"),
    "looping": (with_tower(looping), "a graph of its own", "soundness"),
    "growing": (with_tower(growing), "depends on the numbers", "soundness"),
    "dividing": (with_tower(dividing), "divides whole numbers", "soundness"),
    "peaked": (with_tower(peaked), "depends on the numbers", "soundness"),
}


@pytest.mark.fault(1, 3, 4, 5, 6, 34, 48)
@pytest.mark.parametrize(("damage", "words", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_running_service_refuses_a_damaged_version(
    running: Running, version: Path, damage: Damage, words: str, reason: str
) -> None:
    """Each of the towers answers the recorded queries as it should, and does something else when asked."""
    damage(version)
    running.refuses("v2", words, reason=reason)


@pytest.mark.fault(7)
def test_what_a_killed_publication_left_was_removed_when_the_service_started(running: Running) -> None:
    assert "version v1" in running.process.greeting
    assert not (running.root / ".publishing-v2-0123").exists()
