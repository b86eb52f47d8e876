import os
from io import BufferedReader
from pathlib import Path

import pytest

from tests.support.bundle_damage import replace
from turret.tower.errors import BundleError
from turret.tower.format.checksums import check_files, check_sizes
from turret.tower.format.manifest import REQUIRED_FILES, read_manifest
from turret.tower.format.safe_open import Identity, identity_of


def test_every_listed_file_is_looked_at(bundles: Path) -> None:
    folder = bundles / "v1"
    found = check_files(folder, read_manifest(folder))
    assert set(found) == REQUIRED_FILES
    assert found == check_sizes(folder, read_manifest(folder))
    status = os.lstat(folder / "index.faiss")
    assert found["index.faiss"][1:3] == (status.st_ino, status.st_size)


def test_a_file_of_the_same_size_is_told_by_its_checksum(bundles: Path) -> None:
    path = bundles / "v1" / "index.faiss"
    replace(path, path.read_bytes()[:-1] + b"\x07")
    manifest = read_manifest(bundles / "v1")
    check_sizes(bundles / "v1", manifest)
    with pytest.raises(BundleError, match=r"index\.faiss is not the file .* SHA-256") as caught:
        check_files(bundles / "v1", manifest)
    assert caught.value.reason == "checksum"


def test_a_manifest_that_lists_too_little_is_refused(bundles: Path) -> None:
    """Otherwise a file could be exchanged by leaving it out of the list."""
    manifest = read_manifest(bundles / "v1").model_copy(update={"files": {}})
    with pytest.raises(BundleError, match=r"index\.faiss"):
        check_files(bundles / "v1", manifest)


def test_a_file_written_to_while_it_is_read_is_refused(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is still the published one, but later bytes may have been read before they changed."""
    folder = bundles / "v1"

    def touched(stream: BufferedReader) -> Identity:
        os.utime(stream.fileno())
        return identity_of(stream)

    monkeypatch.setattr("turret.tower.format.checksums.identity_of", touched)
    with pytest.raises(BundleError, match="was written to while it was read") as caught:
        check_files(folder, read_manifest(folder))
    assert caught.value.reason == "checksum"
