"""The files of a bundle: manifest, pointer, checksums, sections, arrays and their parts."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy
from numpy.typing import NDArray

from tests.conftest import contents
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.config import ScoringConfig
from turret.tower.errors import BundleError
from turret.tower.format.checksums import check_parts
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.format.item_map import open_item_map, quantised
from turret.tower.format.listing import current, is_version, point
from turret.tower.format.manifest import DIGEST, MANIFEST, Manifest, digest_line, read_manifest
from turret.tower.format.safe_open import open_regular, read_regular, size_of
from turret.tower.format.sections import ALIGNMENT, Section, Sections, map_array, pack


def seal(folder: Path, text: bytes) -> None:
    (folder / MANIFEST).write_bytes(text)
    (folder / DIGEST).write_bytes(digest_line(text))


def write(folder: Path, bundles: Path, **changes: Any) -> Path:
    stored = json.loads((bundles / "v1" / MANIFEST).read_text())
    seal(folder, json.dumps({**stored, **changes}).encode())
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 3}, "is of format 3; this release reads bundles of format 2"),
        ({"format_version": 1}, "is of format 1; this release reads"),
        ({"scoring": {"kind": "cosine", "temperature": 0}}, "temperature"),
        ({"scoring": {"kind": "euclidean", "temperature": 1}}, "kind"),
        ({"index": {"kind": "annoy"}}, "index: .*'annoy'.*export the bundle again"),
        ({"index": {"kind": "flat", "is_exact": False}}, "is_exact"),
        ({"index": {"kind": "ivf", "is_exact": False}}, "efforts"),
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


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(BundleError, match="format 2"):
        read_manifest(tmp_path)


def test_a_manifest_that_was_written_to_is_refused(tmp_path: Path, bundles: Path) -> None:
    """Every bit of it, also those that leave it a sound one: the metrics, the name, the spaces."""
    text = (bundles / "v1" / MANIFEST).read_bytes()
    seal(tmp_path, text)
    read_manifest(tmp_path)
    for place in range(0, len(text), 7):
        changed = bytearray(text)
        changed[place] ^= 1 << (place % 8)
        (tmp_path / MANIFEST).write_bytes(changed)
        with pytest.raises(BundleError):
            read_manifest(tmp_path)


def test_a_manifest_without_its_checksum_is_refused(tmp_path: Path, bundles: Path) -> None:
    write(tmp_path, bundles)
    (tmp_path / DIGEST).unlink()
    with pytest.raises(BundleError, match=r"manifest\.sha256 can't be read"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "a" * 65, "current", "admin.key", "v1\n", "é", "../v1"]
)
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    assert not is_version(name)
    with pytest.raises(BundleError, match="can't name a version"):
        point(tmp_path, name)


def test_the_pointer_is_replaced_without_leaving_anything(tmp_path: Path) -> None:
    assert current(tmp_path) is None
    point(tmp_path, "v1")
    point(tmp_path, "v2")
    assert current(tmp_path) == "v2"
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


@pytest.mark.parametrize("content", [b"", b"../../etc", b"\xff\xfe", b"x" * 5000])
def test_a_damaged_pointer_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "current").write_bytes(content)
    with pytest.raises(
        BundleError, match=r"current (names no version but holds .* activate|is larger .* activate)"
    ):
        current(tmp_path)


def test_a_folder_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="can't be written"):
        point(tmp_path / "missing", "v1")


@pytest.mark.fault(51)
def test_a_pointer_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """What it showed of a file that names no version would be that file's."""
    (tmp_path / "secret").write_text("a password")
    (tmp_path / "current").symlink_to("secret")
    with pytest.raises(BundleError, match=r"no regular file; delete it, and activate") as caught:
        current(tmp_path)
    assert "password" not in str(caught.value)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_regular(path, 3) == b"abc"
    assert size_of(path) == 3
    with pytest.raises(BundleError, match="larger than the limit of 2 bytes"):
        read_regular(path, 2)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "link", "dangling", "device"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    (tmp_path / "file").write_bytes(b"abc")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("link", "dangling"):
        path.symlink_to(tmp_path / ("file" if kind == "link" else "nowhere"))
    elif kind == "device":
        path = Path("/dev/zero")
    for look in (size_of, open_regular):
        with pytest.raises(BundleError, match="copy it again"):
            look(path)


VECTORS = np.eye(60, 8, dtype=np.float32) + np.eye(60, 8, -8, dtype=np.float32)

VECTORS[16:, 0] = 1


@pytest.fixture
def manifest(bundles: Path) -> Manifest:
    """Of 60 items and 8 columns."""
    return read_manifest(bundles / "v1")


def check(manifest: Manifest, **changes: Any) -> None:
    parts: dict[str, Any] = {"vectors": VECTORS, "popularity": np.ones(60, np.int64), "length": 60, **changes}
    check_parts(manifest, parts["vectors"], parts["popularity"], parts["length"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vectors": VECTORS * 1.01}, "length 1.01"),
        ({"vectors": VECTORS * 0}, "nothing but zeros"),
        ({"vectors": np.where(VECTORS == 1, np.float32(np.nan), VECTORS)}, "not finite"),
        ({"popularity": -np.ones(60, np.int64)}, "negative"),
        ({"length": 61}, "vocabulary.json has 61 ids"),
    ],
)
def test_a_part_that_does_not_fit_is_named(manifest: Manifest, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        check(manifest, **changes)


def test_a_bias_beside_the_cosine_is_free(manifest: Manifest) -> None:
    """It is the numbers before the last that are of length 1."""
    scoring = ScoringConfig(kind="cosine", temperature=1.0, item_bias=True)
    biased = manifest.model_copy(update={"scoring": scoring})
    vectors = np.concatenate([VECTORS[:, :7], np.linspace(-2, 2, 60, dtype=np.float32)[:, None]], axis=1)
    vectors[:, :7] /= np.maximum(np.linalg.norm(vectors[:, :7], axis=1, keepdims=True), 1e-6)
    vectors[~vectors[:, :7].any(axis=1), 0] = 1
    check(biased, vectors=vectors)
    with pytest.raises(BundleError, match="row 1 has length 2 instead"):
        check(biased, vectors=np.where(np.arange(60)[:, None] == 1, 2 * vectors, vectors))


ARRAYS: dict[str, NDArray[Any]] = {
    "a": np.arange(3, dtype=np.uint8),
    "b": np.array([0, 2, 2, 5], dtype=np.int64),
    "c": np.array([], dtype=np.int32),
    "d": np.array([0.5, np.nan]),
}


def test_arrays_come_back_aligned_and_read_only() -> None:
    places, body = pack(ARRAYS)
    sections = Sections(places, body, "here")
    for name, values in ARRAYS.items():
        found = sections.array(name, values.dtype.name, len(values))
        assert np.array_equal(found, values, equal_nan=values.dtype == np.float64)
        assert places[name].offset % ALIGNMENT == 0
        assert not found.flags.writeable


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 10**6), (64, 10**6), (1, 1), (2**48, 0)], ids=["long", "far", "odd", "end"]
)
def test_a_section_outside_the_file_is_refused(offset: int, length: int) -> None:
    with pytest.raises(BundleError, match="lies outside"):
        Sections({"a": Section(dtype="int64", offset=offset, length=length)}, bytes(1000), "here")


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(path: Path, values: NDArray[Any]) -> Path:
    np.save(path, values)
    return path


def test_an_array_is_mapped_read_only(tmp_path: Path) -> None:
    values = map_array(saved(tmp_path / "a.npy", VALUES), "float32", (2, 3))
    assert np.array_equal(values, VALUES)
    with pytest.raises(ValueError, match="read-only"):
        values[0, 0] = 1


@pytest.mark.parametrize("values", [VALUES[:1], VALUES.T, VALUES.astype(">f4"), VALUES.astype(np.float64)])
def test_another_array_is_refused(tmp_path: Path, values: NDArray[Any]) -> None:
    with pytest.raises(BundleError, match="shape"):
        map_array(saved(tmp_path / "a.npy", values), "float32", (2, 3))


HUGE = BytesIO()
npy.write_array_header_1_0(HUGE, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 64)})


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
    path = saved(tmp_path / "a.npy", VALUES)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BundleError, match=words):
        map_array(path, "float32", (2, 3))


def test_points_span_a_square_around_the_middle_of_their_range() -> None:
    points = quantised(np.array([[-1.0, 2.0], [3.0, 2.0], [1.0, 3.0]]))
    assert points.dtype == np.uint16
    assert points[:2].tolist() == [[0, 24576], [65535, 24576]]
    assert points[2].tolist() == [32768, 40959]


def test_a_bundle_keeps_its_map_and_one_without_has_none(tmp_path: Path) -> None:
    item_map = quantised(np.random.default_rng(0).standard_normal((60, 2)))
    publish(tmp_path, replace(contents("with"), item_map=item_map))
    publish(tmp_path, contents("without"))
    bundle = Bundle.open(tmp_path / "with")
    opened = open_item_map(bundle.folder, bundle.manifest)
    assert opened is not None
    assert (opened == item_map).all()
    bare = Bundle.open(tmp_path / "without")
    assert open_item_map(bare.folder, bare.manifest) is None


def test_a_map_of_other_items_is_refused(tmp_path: Path) -> None:
    publish(tmp_path, replace(contents(), item_map=quantised(np.zeros((59, 2)))))
    bundle = Bundle.open(tmp_path / "v1")
    with pytest.raises(BundleError, match="of different models"):
        open_item_map(bundle.folder, bundle.manifest)


# A graph that needs more effort for fewer rows, fails at 100, and scores all of 10.
MEASURED: dict[int, dict[int, int | None]] = {
    1000: {10: 40, 50: 90},
    300: {10: 60, 50: 200},
    100: {10: None, 50: 400},
    10: {10: 10},
}

ENGINE = EngineSettings(
    engine="redis",
    url="redis://engine",
    collection="turret_items",
    efforts=tuple(
        EngineEffort(rows=rows, k=k, breadth=breadth, recall=0.99 if breadth else 0.5)
        for rows, by_k in MEASURED.items()
        for k, breadth in by_k.items()
    ),
)


@pytest.mark.parametrize(
    ("rows", "k", "breadth"),
    [
        (1000, 11, 90),
        (999, 10, 60),
        (300, 50, 200),
        (299, 10, None),
        (100, 10, None),
        (10, 10, 10),
        (1000, 51, None),
    ],
)
def test_between_two_measured_numbers_of_rows_the_larger_effort_holds(
    rows: int, k: int, breadth: int | None
) -> None:
    """Where one of the two failed, or is missing, the search is exact."""
    assert ENGINE.breadth(rows, k) == breadth
