"""Bundles that must not be served: the running service refuses them, counts that, and goes on as it was."""

import os
import shutil
from collections.abc import Callable, Iterator
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

    def refuses(self, version: str, *words: str, reason: str) -> None:
        """Ask to activate a version; it is refused in these words, and nothing else happens."""
        counted = self.refusals().get(reason, 0.0)
        response = activate(self.process, self.root, version)
        assert response.status_code == 409
        message = response.json()["error"]["message"]
        assert [word for word in words if word not in message] == [], message
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
def version(running: Running, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Another version beside the live one, of the same ids and sizes, to be damaged."""
    folder = publish(running.root, contents("v2", seed=1, **getattr(request, "param", {})))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.fault(1)
@pytest.mark.parametrize("name", ["item_vectors.npy", "user_tower.onnx"])
def test_a_file_that_was_cut_short_is_refused(running: Running, version: Path, name: str) -> None:
    replace(version / name, (version / name).read_bytes()[:-100])
    running.refuses("v2", name, "is not the file that was published", reason="checksum")


@pytest.mark.fault(3)
def test_headers_that_ask_for_terabytes_are_refused(running: Running, version: Path) -> None:
    """With checksums that agree: the readers themselves have to see it, and the process lives."""
    with (version.parent / "crafted").open("wb") as stream:
        npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 8)})
    crafted = (version.parent / "crafted").read_bytes()
    rewrite(version, "item_vectors.npy", crafted)
    running.refuses("v2", "item_vectors.npy", "where the manifest says", reason="soundness")
    change_manifest(version, item_count=2**40)
    running.refuses("v2", "item_vectors.npy", "cut short", reason="soundness")


@pytest.mark.fault(4)
@pytest.mark.parametrize(
    ("version", "name"),
    [
        ({}, "item_vectors.npy"),  # other weights only: ids and this tower are the same
        ({}, "golden.json"),
        ({"ids": [*range(101, 160), 100]}, "vocabulary.json"),
        ({"ids": [*range(101, 160), 100]}, "catalog.json"),
        ({"ids": range(100, 161)}, "popularity.npy"),
        ({"dimension": 9}, "user_tower.onnx"),
    ],
    ids=lambda given: given if isinstance(given, str) else "of other " + ("weights", *given)[-1],
    indirect=["version"],
)
def test_files_of_two_models_are_refused(running: Running, version: Path, name: str) -> None:
    """Even with checksums that agree: by shapes, by what belongs together, or by the recorded queries."""
    other = (running.root / "v1" / name).read_bytes()
    assert other != (version / name).read_bytes()
    rewrite(version, name, other)
    before = sum(running.refusals().values())
    response = activate(running.process, running.root, "v2")
    assert response.status_code == 409
    assert running.answer() == running.before
    assert sum(running.refusals().values()) == before + 1
    assert current(running.root) == "v1"


@pytest.mark.fault(5)
@pytest.mark.parametrize("value", [np.nan, 0.0, 1e30])
def test_vectors_that_are_no_numbers_are_refused(running: Running, version: Path, value: float) -> None:
    """With checksums that agree."""
    vectors = np.load(version / "item_vectors.npy")
    vectors[:] = value
    npy_path = version.parent / "new.npy"
    np.save(npy_path, vectors)
    rewrite(version, "item_vectors.npy", npy_path.read_bytes())
    words = "nothing but zeros" if value == 0.0 else "not finite in row 0"
    running.refuses("v2", words, reason="soundness")


@pytest.mark.fault(6)
def test_a_bundle_that_is_not_there_as_a_whole_is_refused(running: Running, version: Path) -> None:
    """A manifest before its files, files before their manifest: only the pointer makes a version live."""
    hidden = version.parent / ".publishing-v2-half"
    version.rename(hidden)
    version.mkdir()
    running.refuses("v2", "manifest.json can't be read", reason="checksum")
    for name in (MANIFEST, DIGEST):
        shutil.copy2(hidden / name, version / name)
    running.refuses("v2", "can't be read", reason="checksum")
    names = [one["version"] for one in running.process.client.get("/v1/versions").json()["versions"]]
    assert hidden.name not in names
    response = activate(running.process, running.root, hidden.name)
    assert response.status_code == 422, "what is hidden can't be named"
    shutil.rmtree(hidden)


@pytest.mark.fault(7)
def test_what_a_killed_publication_left_was_removed_when_the_service_started(running: Running) -> None:
    assert "version v1" in running.process.greeting
    assert not (running.root / ".publishing-v2-0123").exists()


@pytest.mark.fault(34)
def test_a_bundle_of_another_format_is_refused_in_words(running: Running, version: Path) -> None:
    change_manifest(version, format_version=3)
    running.refuses("v2", "it is of format 3; this release reads bundles of format 2", reason="checksum")


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    ("tower", "words"),
    [
        # The working directory of a service under test is the repository; its own files do for a secret.
        (lambda: thief("pyproject.toml", 8), "another file"),
        (looping, "a graph of its own"),
        (growing, "depends on the numbers"),
        (dividing, "divides whole numbers"),
        (peaked, "depends on the numbers"),
    ],
    ids=["thief", "looping", "growing", "dividing", "peaked"],
)
def test_a_tower_that_does_more_than_compute_is_refused(
    running: Running, version: Path, tower: Callable[[], bytes], words: str
) -> None:
    """Each answers the recorded queries as it should; what it does else, a history of five items asks for."""
    rewrite(version, "user_tower.onnx", tower())
    running.refuses("v2", "user_tower.onnx", words, reason="soundness")
