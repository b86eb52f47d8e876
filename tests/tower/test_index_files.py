"""Files of indexes: their content, and the refused ones."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.full_disk import small_files
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import (
    ApproximateSettings,
    FlatSettings,
    HnswSettings,
    IvfPqSettings,
    IvfSettings,
    RabitqSettings,
    ScalarSettings,
    SearchParams,
)
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import faiss
from turret.tower.index.index import ExactIndex, open_index

VECTORS = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)

EFFORTS = (SearchParams(k=10, breadth=20, candidates=20),)

GRAPH = HnswSettings(efforts=EFFORTS, links=4, ef_construction=40)

LISTS = IvfSettings(efforts=EFFORTS, lists=10)

SCALAR = ScalarSettings(efforts=EFFORTS)

EVERY: list[ApproximateSettings] = [
    GRAPH,
    LISTS,
    ScalarSettings(efforts=EFFORTS),
    IvfPqSettings(efforts=EFFORTS, lists=10, parts=8),
    IvfPqSettings(efforts=EFFORTS, lists=1, parts=8),
    IvfPqSettings(efforts=EFFORTS, lists=1, parts=8, rotated=True),
    RabitqSettings(efforts=EFFORTS, lists=10),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.faiss"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"IxFI" + b"\xff" * 60])
def test_a_file_that_is_no_index_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BundleError, match="not a FAISS index"):
        open_index(path, VECTORS, SCALAR)


def test_another_kind_of_index_is_refused(path: Path) -> None:
    faiss.write_index(faiss.IndexFlatL2(4), str(path))
    with pytest.raises(BundleError, match="IndexFlatL2"):
        open_index(path, VECTORS, SCALAR)


def test_an_index_that_the_disk_can_not_take_is_refused(path: Path) -> None:
    """FAISS raises a plain RuntimeError."""
    index = ApproximateIndex.build(VECTORS, SCALAR)
    with (
        small_files(2000),
        pytest.raises(BundleError, match=rf"^{path}: the index can't be written .*room"),
    ):
        index.save(path)


@pytest.mark.parametrize("row", [500, 2**30, -2])
def test_a_link_out_of_the_catalog_is_refused(path: Path, row: int) -> None:
    """FAISS would follow it into memory that isn't the index's."""
    index = ApproximateIndex.build(VECTORS, GRAPH)
    index.save(path)
    content = bytearray(path.read_bytes())
    links = faiss.vector_to_array(index._proposing.hnsw.neighbors)[:8].tobytes()
    place = content.index(links)
    content[place : place + 4] = row.to_bytes(4, "little", signed=True)
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"index\.faiss"):
        open_index(path, VECTORS, GRAPH)


def test_an_entrance_out_of_the_catalog_is_refused(path: Path) -> None:
    index = ApproximateIndex.build(VECTORS, GRAPH)
    index._proposing.hnsw.entry_point = 500
    index.save(path)
    with pytest.raises(BundleError, match=r"index\.faiss"):
        open_index(path, VECTORS, GRAPH)


def test_a_row_that_stands_in_two_lists_is_refused(path: Path) -> None:
    index = ApproximateIndex.build(VECTORS, LISTS)
    lists = index._proposing.invlists
    rows = faiss.rev_swig_ptr(lists.get_ids(0), lists.list_size(0))
    for wrong in (int(rows[1]), 500, -1):
        was = int(rows[0])
        rows[0] = wrong
        index.save(path)
        rows[0] = was
        with pytest.raises(BundleError, match="each of 500 rows once"):
            open_index(path, VECTORS, LISTS)


def test_other_lists_than_the_manifest_says_are_refused(path: Path) -> None:
    ApproximateIndex.build(VECTORS, LISTS).save(path)
    with pytest.raises(BundleError, match="10 lists where the manifest says 11"):
        open_index(path, VECTORS, LISTS.model_copy(update={"lists": 11}))


@pytest.mark.parametrize("settings", EVERY, ids=[one.kind for one in EVERY])
def test_a_cut_file_is_refused_wherever_it_is_cut(path: Path, settings: ApproximateSettings) -> None:
    ApproximateIndex.build(VECTORS, settings).save(path)
    content = path.read_bytes()
    # Of a few bytes at the end, only the size and the checksum in the manifest see that they are gone.
    for length in np.linspace(0, len(content) - 8, 60).astype(int):
        path.write_bytes(content[:length])
        with pytest.raises(BundleError, match=r"index\.faiss"):
            open_index(path, VECTORS, settings)


@pytest.mark.parametrize("settings", EVERY, ids=[one.kind for one in EVERY])
def test_lengths_that_the_file_does_not_hold_are_refused(path: Path, settings: ApproximateSettings) -> None:
    """Any eight bytes of the head set to 2^40: none takes the process down, and some are no such index.

    FAISS would allocate up to a terabyte before it looks whether the bytes are there.
    """
    ApproximateIndex.build(VECTORS, settings).save(path)
    content = path.read_bytes()
    refused = 0
    for place in range(0, 160, 4):
        changed = bytearray(content)
        changed[place : place + 8] = (2**40).to_bytes(8, "little")
        path.write_bytes(changed)
        try:
            open_index(path, VECTORS, settings)
        except BundleError:
            refused += 1
    assert refused >= 5


def test_a_flat_index_has_no_file_and_searches_where_the_vectors_lie(path: Path) -> None:
    ExactIndex(VECTORS).save(path)
    assert not path.exists()
    index = open_index(path, VECTORS, FlatSettings())
    assert isinstance(index, ExactIndex)
    assert np.shares_memory(index.vectors(), VECTORS)


def test_the_graph_reads_the_vectors_where_they_are_mapped(path: Path, tmp_path: Path) -> None:
    """No second copy: on disk the file holds links alone, and in memory the vectors are the mapped ones."""
    ApproximateIndex.build(VECTORS, GRAPH).save(path)
    np.save(tmp_path / "vectors.npy", VECTORS)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    opened = open_index(path, mapped, GRAPH)
    assert isinstance(opened, ApproximateIndex)
    flat = faiss.downcast_index(opened._proposing.storage)
    stored = faiss.rev_swig_ptr(flat.get_xb(), VECTORS.size)
    assert stored.ctypes.data == mapped.ctypes.data
    assert os.path.getsize(path) < VECTORS.nbytes + 40 * 500


@pytest.mark.fault(49)
def test_lists_in_another_file_are_refused_before_it_is_opened(path: Path, tmp_path: Path) -> None:
    """Their numbers would be those of whatever file the index names."""
    code = ApproximateIndex.build(VECTORS, LISTS)._proposing
    lists = faiss.OnDiskInvertedLists(10, code.code_size, str(tmp_path / "other"))
    lists.merge_from_1(code.invlists)
    own, code.own_invlists = code.invlists, False
    code.replace_invlists(lists)
    faiss.write_index(code, str(path))
    code.replace_invlists(own)
    (tmp_path / "other").unlink()
    with pytest.raises(BundleError, match="keeps its lists in another file"):
        open_index(path, VECTORS, LISTS)
