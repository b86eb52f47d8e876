"""The files of a bundle: manifest, pointer, safe opening, sections and arrays."""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from tests.support.bundle_damage import change_manifest
from tests.support.bundle_damage import replace as put
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.format.listing import current, is_version, point
from turret.tower.format.manifest import DIGEST, MANIFEST, digest_line, read_manifest
from turret.tower.format.safe_open import open_regular, size_of
from turret.tower.format.sections import Section, Sections, map_array


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 5}, "is of format 5; this release reads bundles of format 4"),
        ({"scoring": {"kind": "cosine", "temperature": 0}}, "temperature"),
        ({"index": {"kind": "annoy"}}, "index: .*'annoy'.*export the bundle again"),
        ({"surprise": 1}, "surprise"),
        ({"files": {"../../etc/passwd": {"sha256": "", "bytes": 0}}}, "files"),
    ],
)
def test_what_does_not_fit_in_a_manifest_is_named(bundles: Path, changes: dict[str, Any], words: str) -> None:
    change_manifest(bundles / "v1", **changes)
    with pytest.raises(BundleError, match=words):
        read_manifest(bundles / "v1")


def test_a_manifest_that_was_written_to_or_has_no_checksum_is_refused(tmp_path: Path, bundles: Path) -> None:
    """Every bit of it, also those that leave it a sound one: the metrics, the name, the spaces."""
    text = (bundles / "v1" / MANIFEST).read_bytes()
    (tmp_path / DIGEST).write_bytes(digest_line(text))
    for place in range(0, len(text), 7):
        changed = bytearray(text)
        changed[place] ^= 1 << (place % 8)
        (tmp_path / MANIFEST).write_bytes(changed)
        with pytest.raises(BundleError):
            read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_bytes(text)
    assert read_manifest(tmp_path).version == "v1"
    (tmp_path / DIGEST).unlink()
    with pytest.raises(BundleError, match=r"manifest\.sha256 can't be read"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "name", ["", ".hidden", "a/b", "a" * 65, "current", "admin.key", "v1\n", "é", "../v1"]
)
def test_a_name_that_is_no_version_is_not_pointed_at(tmp_path: Path, name: str) -> None:
    assert not is_version(name)
    with pytest.raises(BundleError, match="can't name a version"):
        point(tmp_path, name)


def test_the_pointer_is_replaced_without_leaving_anything(tmp_path: Path) -> None:
    assert current(tmp_path) is None
    point(tmp_path, "v1")
    point(tmp_path, "v2")
    assert current(tmp_path) == "v2"
    assert [path.name for path in tmp_path.iterdir()] == ["current"]
    with pytest.raises(BundleError, match="can't be written"):
        point(tmp_path / "missing", "v1")


@pytest.mark.parametrize("content", [b"", b"../../etc", b"\xff\xfe", b"x" * 5000])
def test_a_damaged_pointer_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "current").write_bytes(content)
    with pytest.raises(BundleError, match=r"current (names no version but holds|is larger) .* activate"):
        current(tmp_path)


@pytest.mark.fault(51)
def test_a_pointer_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """What it showed of a file that names no version would be that file's."""
    (tmp_path / "secret").write_text("a password")
    (tmp_path / "current").symlink_to("secret")
    with pytest.raises(BundleError, match=r"no regular file; delete it, and activate") as caught:
        current(tmp_path)
    assert "password" not in str(caught.value)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to(__file__),
    "dangling": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_is_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "it")
    for path in (tmp_path / "it", Path("/dev/zero")):
        for look in (size_of, open_regular):
            with pytest.raises(BundleError, match="copy it again"):
                look(path)


@pytest.mark.parametrize(("offset", "length"), [(0, 10**6), (64, 10**6), (1, 1), (2**48, 0)])
def test_a_section_outside_its_file_is_refused(offset: int, length: int) -> None:
    with pytest.raises(BundleError, match="lies outside"):
        Sections({"a": Section(dtype="int64", offset=offset, length=length)}, bytes(1000), "here")


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
HUGE = BytesIO()
npy.write_array_header_1_0(HUGE, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 64)})


def test_an_array_is_mapped_read_only_if_it_is_as_expected(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    values = map_array(tmp_path / "a.npy", "float32", (2, 3))
    assert np.array_equal(values, VALUES)
    with pytest.raises(ValueError, match="read-only"):
        values[0, 0] = 1
    for other in (VALUES[:1], VALUES.T, VALUES.astype(">f4"), VALUES.astype(np.float64)):
        np.save(tmp_path / "b.npy", other)
        with pytest.raises(BundleError, match="shape"):
            map_array(tmp_path / "b.npy", "float32", (2, 3))


@pytest.mark.fault(3)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: b"", "not a whole"),
        (lambda content: content[:-1], "not a whole"),
        (lambda content: content + b"more", "longer than its array"),
        (lambda content: HUGE.getvalue() + content, "not a whole"),
        (lambda content: b"\x93NUMPY\x01\x00\xff\x7f" + b"(" * 0x7FFF, "not a whole"),
    ],
    ids=["empty", "cut", "more", "terabytes", "brackets"],
)
def test_a_file_of_another_length_is_refused_without_an_allocation(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    path = tmp_path / "a.npy"
    np.save(path, VALUES)
    put(path, change(path.read_bytes()))
    with pytest.raises(BundleError, match=words):
        map_array(path, "float32", (2, 3))


def test_between_two_measured_numbers_of_rows_the_larger_effort_holds() -> None:
    """A graph that needs more for fewer rows; where one failed, or is missing, the search is exact."""
    measured = {(1000, 10): 40, (1000, 50): 90, (300, 10): 60, (300, 50): 200}
    failed = {(100, 10): None, (100, 50): 400, (10, 10): 10}
    efforts = tuple(
        EngineEffort(rows=rows, k=k, breadth=breadth, recall=0.99)
        for (rows, k), breadth in {**measured, **failed}.items()
    )
    engine = EngineSettings(engine="redis", collection="turret_items", efforts=efforts)
    asked = [(1000, 11), (999, 10), (300, 50), (299, 10), (100, 10), (10, 10), (1000, 51)]
    found = [engine.breadth(rows, k) for rows, k in asked]
    assert found == [90, 60, 200, None, None, 10, None]
