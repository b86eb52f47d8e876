"""Files of indexes: their content, and the refused ones."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.full_disk import small_files
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import FlatSettings, IvfSettings, SearchParams
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import faiss
from turret.tower.index.index import ExactIndex, open_index

VECTORS = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)

EFFORTS = (SearchParams(k=10, breadth=20, candidates=20),)

LISTS = IvfSettings(efforts=EFFORTS, lists=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.faiss"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"IxFI" + b"\xff" * 60])
def test_a_file_that_is_no_index_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BundleError, match="not a FAISS index"):
        open_index(path, VECTORS, LISTS)


def test_another_kind_of_index_is_refused(path: Path) -> None:
    faiss.write_index(faiss.IndexFlatL2(4), str(path))
    with pytest.raises(BundleError, match="IndexFlatL2"):
        open_index(path, VECTORS, LISTS)


def test_an_index_that_the_disk_can_not_take_is_refused(path: Path) -> None:
    """FAISS raises a plain RuntimeError."""
    index = ApproximateIndex.build(VECTORS, LISTS)
    with small_files(2000), pytest.raises(BundleError, match=rf"^{path}: the index can't be written .*room"):
        index.save(path)


def test_other_lists_than_the_manifest_says_are_refused(path: Path) -> None:
    ApproximateIndex.build(VECTORS, LISTS).save(path)
    with pytest.raises(BundleError, match=r"8, 10\) where .* 8, 11\)"):
        open_index(path, VECTORS, LISTS.model_copy(update={"lists": 11}))


def test_a_size_that_the_file_does_not_hold_is_refused(path: Path) -> None:
    """FAISS would allocate up to a terabyte before it looks whether the bytes are there."""
    ApproximateIndex.build(VECTORS, LISTS).save(path)
    content = bytearray(path.read_bytes())
    place = content.index(len(VECTORS[0]).to_bytes(4, "little"))
    content[place : place + 8] = (2**40).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"index\.faiss"):
        open_index(path, VECTORS, LISTS)


def test_a_flat_index_has_no_file_and_searches_where_the_vectors_lie(path: Path) -> None:
    ExactIndex(VECTORS).save(path)
    assert not path.exists()
    index = open_index(path, VECTORS, FlatSettings())
    assert isinstance(index, ExactIndex)
    assert np.shares_memory(index.vectors(), VECTORS)


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
