"""Files and folders that appear whole, locks, arrays on disk, and work in order."""

import errno
import fcntl
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.until import until
from turret.data.errors import DataError
from turret.data.files import (
    ArrayFile,
    locked,
    map_ordered,
    new_file,
    new_folder,
    open_array,
    sweep,
    tried_lock,
    try_lock,
)


def _interrupted(target: Path, overwrite: bool) -> None:
    with new_folder(target, overwrite) as fresh:
        (fresh / "file").write_text("new")
        raise KeyboardInterrupt


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_block_that_fails_leaves_everything_as_it_was(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "target"
    if overwrite:
        target.mkdir()
        (target / "file").write_text("old")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        _interrupted(target, overwrite)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_existing_folder_is_refused_or_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(DataError, match=r"target exists already; .*--overwrite"), new_folder(target):
        pass
    with new_folder(target, overwrite=True) as fresh:
        (fresh / "new").write_text("new")
    assert [path.name for path in target.iterdir()] == ["new"]
    other = tmp_path / "other"
    with (
        pytest.raises(DataError, match="other exists already"),
        new_folder(other),
        new_folder(other) as first,  # of another process, which ends before
    ):
        (first / "first").write_text("1")
    assert [path.name for path in other.iterdir()] == ["first"]
    other.rename(target / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_others_may_read_the_folder_as_the_umask_says(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with new_folder(tmp_path / "target"):
        pass
    assert (tmp_path / "target").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    """A living process holds the lock of its folder, however old that is; a killed one leaves it unlocked."""
    target = tmp_path / "target"
    with new_folder(target, overwrite=True) as living:
        left = tmp_path / f"{living.name[:-5]}other.new"
        left.mkdir()
        (left / "half").write_text("written")
        for folder in (living, left):
            os.utime(folder, (0, 0))
        with new_folder(target):
            assert living.exists()
            assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_folder_comes_back_that_was_being_replaced_when_its_process_died(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with new_folder(target) as fresh:
        (fresh / "file").write_text("old")
    target.rename(tmp_path / ".target.1.old")
    (tmp_path / ".target.1.new").mkdir()
    with pytest.raises(DataError, match="target exists already"), new_folder(target):
        pass
    assert (target / "file").read_text() == "old"
    (tmp_path / ".target.2.old").mkdir()
    with new_folder(target, overwrite=True) as fresh:
        (fresh / "file").write_text("new")
    assert (target / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with new_file(target, mode=0o600) as fresh:
        fresh.write_text("new")
        assert target.read_text() == "old"
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o600)
    with pytest.raises(IsADirectoryError), new_file(target) as fresh:
        tmp_path.write_text("newer")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_new_file_is_synced_before_the_rename_and_its_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss leaves an empty file under the name, or the old one after the caller was told."""
    target = tmp_path / "file"
    synced: list[tuple[Path, bool]] = []

    def fsync(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")), target.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with new_file(target) as fresh:
        fresh.write_text("new")
    assert synced == [(fresh, False), (tmp_path, True)]


def test_a_lock_has_one_holder_until_it_closes(tmp_path: Path) -> None:
    """Two descriptors stand for two processes: a lock belongs to the open folder."""
    with tried_lock(tmp_path) as first, tried_lock(tmp_path) as second:
        assert (first, second) == (True, False)
    with locked(tmp_path), tried_lock(tmp_path) as other:
        assert other is False
    with tried_lock(tmp_path) as third:
        assert third


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(OSError, match="link"), tried_lock(tmp_path / "link"):
        pass


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are replaced all the same, and leftovers are removed once nobody can still be writing them."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with tried_lock(tmp_path) as is_locked:
        assert is_locked is None
    with pytest.raises(OSError, match="No locks"), (tmp_path / "file").open("wb") as file:
        try_lock(file.fileno())
    with new_file(tmp_path / "file") as fresh:
        fresh.write_text("new")
    assert (tmp_path / "file").read_text() == "new"
    os.utime(tmp_path / "file", (now := time.time(), now))
    assert sweep(tmp_path, "file", 60.0, now + 3600) == []
    assert sweep(tmp_path, "file", 60.0, now + 100_000) == [tmp_path / "file"]


def test_a_missing_array_and_another_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.npy is missing"):
        open_array(tmp_path / "a.npy", "int32")
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(DataError, match="holds float64 where int32 is expected"):
        open_array(tmp_path / "a.npy", "int32")


@pytest.mark.parametrize("content", [b"", b"no array at all", pickle.dumps([1])])
def test_what_is_no_array_is_refused_and_never_unpickled(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"is not a \.npy array"):
        open_array(tmp_path / "a.npy", "int32")


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "int8"])
@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_an_array_written_in_pieces_is_the_file_that_numpy_writes(
    tmp_path: Path, dtype: str, count: int
) -> None:
    values = np.arange(count).astype(dtype)
    np.save(tmp_path / "whole.npy", values)
    array = ArrayFile(tmp_path / "pieces.npy", dtype)
    for first in range(0, count, 300):
        array.write(values[first : first + 300])
    array.close()
    array.close()
    assert (tmp_path / "pieces.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert array.read(count // 3, count).tolist() == values[count // 3 :].tolist()


def test_results_come_in_order_from_several_threads_that_are_never_far_ahead_of_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first piece is done only after the second one, which needs a second thread."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    asked: list[int] = []
    is_second_done = threading.Event()

    def pieces() -> Iterator[int]:
        for piece in range(50):
            asked.append(piece)
            yield piece

    def work(piece: int) -> int:
        if piece == 0:
            until(is_second_done.is_set, "another thread has done the second piece")
        if piece == 1:
            is_second_done.set()
        return piece * piece

    for place, result in enumerate(map_ordered(work, pieces())):
        assert result == place * place
        assert len(asked) <= place + 4
    assert len(asked) == 50
    assert list(map_ordered(work, [])) == []
