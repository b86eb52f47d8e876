import json
from pathlib import Path
from typing import Any

import pytest

from data.manifest import hash_file
from tower.errors import BundleError
from tower.manifest import MANIFEST, check_files, read_manifest

# SHA-256 of "abc", from FIPS 180-2, appendix B.1.
SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def write(folder: Path, bundles: Path, **changes: Any) -> Path:
    stored = json.loads((bundles / "v1" / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**stored, **changes}))
    return folder


def test_a_file_is_described_by_size_and_checksum(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert hash_file(tmp_path / "file").model_dump() == {"sha256": SHA256_OF_ABC, "bytes": 3}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 2}, "format 1"),
        ({"format_version": 0}, "format 1"),
        ({"scoring": {"kind": "cosine", "temperature": 0}}, "temperature"),
        ({"scoring": {"kind": "euclidean", "temperature": 1}}, "kind"),
        ({"index": {"kind": "annoy"}}, "annoy"),
        ({"index": {"kind": "flat", "is_exact": False}}, "is_exact"),
        ({"index": {"kind": "hnsw", "is_exact": False}}, "efforts"),
        ({"item_count": 0}, "item_count"),
        ({"surprise": 1}, "surprise"),
        ({"files": {"../../etc/passwd": {"sha256": "", "bytes": 0}}}, "files"),
        ({"files": {"/etc/passwd": {"sha256": "", "bytes": 0}}}, "files"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, bundles: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BundleError, match=words):
        read_manifest(write(tmp_path, bundles, **changes))


def test_a_bundle_from_before_there_were_times_reads_none(tmp_path: Path, bundles: Path) -> None:
    stored = json.loads((bundles / "v1" / MANIFEST).read_text())
    del stored["reads_times"]
    (tmp_path / MANIFEST).write_text(json.dumps(stored))
    assert not read_manifest(tmp_path).reads_times


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(BundleError, match="format 1"):
        read_manifest(tmp_path)


def test_a_manifest_that_lists_too_little_is_refused(tmp_path: Path, bundles: Path) -> None:
    """Otherwise a file could be exchanged by leaving it out of the list."""
    folder = write(tmp_path, bundles, files={})
    with pytest.raises(BundleError, match=r"index\.faiss"):
        check_files(folder, read_manifest(folder))


def test_a_bundle_from_before_absolute_scores_has_signed_ones(tmp_path: Path, bundles: Path) -> None:
    """The field that it lacks has the value that was meant."""
    folder = write(tmp_path, bundles, scoring={"kind": "cosine", "temperature": 0.5})
    assert read_manifest(folder).scoring.absolute is False
