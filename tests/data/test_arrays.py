import pickle
from pathlib import Path

import numpy as np
import pytest

from data.arrays import open_array, save_array
from data.errors import DataError


@pytest.mark.parametrize("values", [np.arange(6, dtype=np.int32), np.zeros(0, dtype=np.int32)])
def test_what_is_saved_is_opened_even_if_it_is_empty(tmp_path: Path, values: np.ndarray) -> None:
    save_array(tmp_path / "a.npy", values)
    opened = open_array(tmp_path / "a.npy", "int32")
    assert opened.tolist() == values.tolist()
    assert not opened.size or isinstance(opened, np.memmap)


def test_a_missing_array_and_another_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.npy is missing"):
        open_array(tmp_path / "a.npy", "int32")
    save_array(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(DataError, match="holds float64 where int32 is expected"):
        open_array(tmp_path / "a.npy", "int32")


@pytest.mark.parametrize("content", [b"", b"no array at all", pickle.dumps([1])])
def test_what_is_no_array_is_refused_and_never_unpickled(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"is not a \.npy array"):
        open_array(tmp_path / "a.npy", "int32")


def test_objects_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        save_array(tmp_path / "a.npy", np.array([{}], dtype=object))
