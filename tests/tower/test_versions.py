"""Folders of versions: they appear as a whole, and a replaced one is noticed."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.conftest import contents
from turret.data.files import tried_lock
from turret.tower.bundle import bundle as bundles_module
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.checksums import check_files
from turret.tower.format.listing import atomic_folder, remove_stale_dirs, version_folder, versions
from turret.tower.format.manifest import manifest_digest


def test_versions_are_listed_with_what_is_wrong_with_them(bundles: Path) -> None:
    publish(bundles, contents("v2", seed=1))
    (bundles / "broken").mkdir()
    (bundles / ".publishing-v3-abc").mkdir()
    (bundles / "admin.key").write_text("key")
    found = {one.version: one for one in versions(bundles)}
    assert set(found) == {"broken", "v1", "v2"}
    assert [name for name, one in found.items() if one.is_current] == ["v1"]
    assert "manifest.json" in (found["broken"].error or "")
    assert (found["v2"].item_count, *found["v2"].metrics) == (60, "test")
    with pytest.raises(BundleError, match="there are: broken, v1, v2"):
        load(bundles, "v9")


@pytest.mark.fault(51)
def test_a_version_that_is_a_link_is_none(bundles: Path, tmp_path: Path) -> None:
    """What it leads to may be changed by others, and lies outside of what the folder's owner sees."""
    shutil.move(bundles / "v1", tmp_path / "elsewhere")
    (bundles / "v1").symlink_to(tmp_path / "elsewhere")
    (found,) = versions(bundles)
    assert "is no folder but a link" in (found.error or "")
    with pytest.raises(BundleError, match="is no folder but a link"):
        version_folder(bundles, "v1")


def aged(path: Path, seconds: float = 3600.0) -> Path:
    path.mkdir(exist_ok=True)
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def test_what_a_dead_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    dead, living = aged(tmp_path / ".publishing-v1-dead"), aged(tmp_path / ".publishing-v1-alive")
    (dead / "file").write_text("half")
    aged(dead)
    aged(tmp_path / "v1")
    (tmp_path / ".publishing-link").symlink_to(aged(tmp_path / "elsewhere"))
    (tmp_path / ".publishing-file").write_text("")
    aged(tmp_path / ".publishing-v2-young", 5.0)
    with tried_lock(living):
        assert remove_stale_dirs(tmp_path) == [dead]
        assert living.is_dir()
    assert remove_stale_dirs(tmp_path) == [living]
    assert remove_stale_dirs(tmp_path / "missing") == []
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_appears_as_a_whole_and_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files before the rename, and the folder that has it after that."""
    target = tmp_path / "new" / "v1"
    synced: list[tuple[Path, bool]] = []

    def fsync(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")), target.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_folder(target) as folder:
        (folder / "file").write_text("whole")
        assert not target.exists()
        assert folder.parent == target.parent
        assert remove_stale_dirs(folder.parent, 2e9) == [], "its writer is alive"
    assert synced[:2] == [(folder / "file", False), (folder, False)]
    assert synced[-1] == (target.parent, True)
    assert (target / "file").read_text() == "whole"
    assert (target / "file").stat().st_mode & 0o777 == 0o444
    assert list(target.parent.iterdir()) == [target]


def test_what_is_there_is_not_overwritten_and_what_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "file").write_text("mine")
    for target in (tmp_path / "v1", tmp_path / "file" / "v1"):
        with pytest.raises(BundleError, match="can't be written"), atomic_folder(target):
            pass
    assert (tmp_path / "v1" / "file").read_text() == "mine"


def test_versions_of_one_name_differ_by_their_manifests(bundles: Path, tmp_path: Path) -> None:
    other = publish(tmp_path / "other", contents("v1", seed=3))
    digest = manifest_digest(other)
    assert Bundle.open(other, content=digest).digest == digest
    with pytest.raises(BundleError, match="version v1 does not hold the files that were activated"):
        Bundle.open(other, content=manifest_digest(bundles / "v1"))


@pytest.mark.fault(62)
def test_a_version_that_is_replaced_while_it_is_opened_is_refused(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its files were compared, and before they are opened."""
    other = publish(tmp_path / "other", contents("v1", seed=3))
    compare = check_files

    def replace_then(*given: object) -> None:
        compare(*given)  # type: ignore[arg-type]
        (bundles / "v1").rename(bundles / "away")
        other.rename(bundles / "v1")

    monkeypatch.setattr(bundles_module, "check_files", replace_then)
    with pytest.raises(BundleError, match="changed since it was opened"):
        load(bundles, "v1")
