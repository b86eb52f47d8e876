import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.places import ROOT
from turret.data.files.locks import tried_lock
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.atomic_publish import atomic_folder, remove_stale_dirs
from turret.tower.format.pointer import current

# A publication that dies in the middle: with its files there, before it is renamed.
DIES = """
import os, sys
from pathlib import Path
from tests.conftest import contents
from turret.tower.bundle import publish as publishing
publishing.check_golden = lambda bundle: os.kill(os.getpid(), 9)
publishing.publish(Path(sys.argv[1]), contents("v2", seed=4))
"""


def aged(path: Path, seconds: float = 3600.0) -> Path:
    path.mkdir(exist_ok=True)
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def test_what_a_dead_writer_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    dead, living = aged(tmp_path / ".publishing-v1-dead"), aged(tmp_path / ".publishing-v1-alive")
    (dead / "file").write_text("half")
    aged(dead)
    with tried_lock(living):
        assert remove_stale_dirs(tmp_path) == [dead]
        assert living.is_dir()
    assert remove_stale_dirs(tmp_path) == [living]


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    aged(tmp_path / "v1")
    aged(tmp_path / "elsewhere")
    (tmp_path / ".publishing-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".publishing-file").write_text("")
    aged(tmp_path / ".publishing-v2-young", 5.0)
    assert remove_stale_dirs(tmp_path) == []
    assert remove_stale_dirs(tmp_path / "missing") == []
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.fault(7)
def test_a_publication_that_was_killed_leaves_the_pointer_and_is_cleared_away(
    bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", DIES, str(bundles)], cwd=ROOT, env=environment, check=False)
    assert run.returncode == -9
    (left,) = bundles.glob(".publishing-*")
    assert list(left.iterdir())
    assert current(bundles) == "v1"
    assert remove_stale_dirs(bundles) == [], "too young to be told from one that begins"
    assert remove_stale_dirs(bundles, time.time() + 61) == [left]
    publish(bundles, make_contents("v2"))


def test_a_folder_appears_as_a_whole_and_read_only(tmp_path: Path) -> None:
    target = tmp_path / "new" / "v1"
    with atomic_folder(target) as folder:
        (folder / "file").write_text("whole")
        assert not target.exists()
        assert folder.parent == target.parent
        assert remove_stale_dirs(folder.parent, 2e9) == [], "its writer is alive"
    assert (target / "file").read_text() == "whole"
    assert (target / "file").stat().st_mode & 0o777 == 0o444
    assert list(target.parent.iterdir()) == [target]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "v1") as folder:
            (folder / "file").write_text("half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten_and_what_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    with pytest.raises(BundleError, match="choose another version"), atomic_folder(tmp_path / "v1"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="can't be written"), atomic_folder(tmp_path / "file" / "v1"):
        pass


def test_files_are_synced_before_the_rename_and_the_root_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "v1"
    synced: list[tuple[Path, bool]] = []

    def fsync(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")), target.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_folder(target) as folder:
        (folder / "file").write_text("1")
    assert synced[:2] == [(folder / "file", False), (folder, False)]
    assert synced[-1] == (tmp_path, True)
