"""Folders of versions: they appear as a whole, and what happens to their files is seen."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from turret.data.files import tried_lock
from turret.tower.bundle import bundle as bundles_module
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.checksums import check_files
from turret.tower.format.listing import atomic_folder, remove_stale_dirs, version_folder, versions
from turret.tower.format.snapshot import Snapshot, check_content, take_snapshot
from turret.tower.inference.item_encoder import open_item_encoder

Make = Callable[..., BundleContents]


def test_versions_are_listed_with_what_is_wrong_with_them(bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("v2", seed=1))
    (bundles / "broken").mkdir()
    (bundles / ".publishing-v3-abc").mkdir()
    (bundles / "admin.key").write_text("key")
    found = {one.version: one for one in versions(bundles)}
    assert set(found) == {"broken", "v1", "v2"}
    assert [name for name, one in found.items() if one.is_current] == ["v1"]
    assert "manifest.json" in (found["broken"].error or "")
    assert (found["v2"].item_count, found["v2"].metrics) == (60, {"recall@10": 0.5})


@pytest.mark.fault(51)
def test_a_version_that_is_a_link_is_none(bundles: Path, tmp_path: Path) -> None:
    """What it leads to may be changed by others, and lies outside of what the folder's owner sees."""
    shutil.move(bundles / "v1", tmp_path / "elsewhere")
    (bundles / "v1").symlink_to(tmp_path / "elsewhere")
    (found,) = versions(bundles)
    assert "is no folder but a link" in (found.error or "")
    for opening in (version_folder, load):
        with pytest.raises(BundleError, match="is no folder but a link"):
            opening(bundles, "v1")


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


def rewrite(folder: Path) -> None:
    path = folder / "golden.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes())


def copy_over(folder: Path) -> None:
    path = folder / "catalog.bin"
    shutil.copy2(path, folder / ".copy")
    (folder / ".copy").replace(path)


def away_and_back(path: Path) -> None:
    path.rename(path.with_name("away"))
    path.with_name("away").rename(path)


def set_times(folder: Path) -> None:
    rewrite(folder)
    path = folder / "golden.json"
    os.utime(path, ns=(path.stat().st_atime_ns, (folder / "catalog.bin").stat().st_mtime_ns))


def link(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("elsewhere"))
    folder.rename(folder.with_name("old"))
    folder.symlink_to(folder.with_name("elsewhere"))


TOUCHES: dict[str, Callable[[Path], object]] = {
    "rewritten": rewrite,
    "copied over": copy_over,
    "away and back": away_and_back,
    "a file away and back": lambda folder: away_and_back(folder / "golden.json"),
    "times set back": set_times,
    "a link": link,
    "added": lambda folder: (folder / "query_vectors.npy").write_bytes(b""),
    "removed": lambda folder: (folder / "model.safetensors").unlink(),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
def test_what_is_done_to_the_files_is_seen_though_their_content_stays(
    bundles: Path, touch: Callable[[Path], object]
) -> None:
    before = take_snapshot(bundles / "v1")
    assert take_snapshot(bundles / "v1") == before
    touch(bundles / "v1")
    after = take_snapshot(bundles / "v1")
    assert after.manifest == before.manifest
    assert after.files != before.files


def test_versions_of_one_name_differ_by_their_manifests(
    bundles: Path, tmp_path: Path, make_contents: Make
) -> None:
    other = publish(tmp_path / "other", make_contents("v1", seed=3))
    found = take_snapshot(other)
    check_content(other, found, found.manifest)
    check_content(other, found, None)
    with pytest.raises(BundleError, match="version v1 does not hold the files that were activated"):
        check_content(other, found, take_snapshot(bundles / "v1").manifest)


def test_what_is_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"manifest\.json can't be read"):
        take_snapshot(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    assert take_snapshot(tmp_path) != Snapshot("")
    for number in range(1000):
        (tmp_path / str(number)).touch()
    with pytest.raises(BundleError, match="more than 1000 files"):
        take_snapshot(tmp_path)


@pytest.mark.fault(62)
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("opening", ["open", "load"])
def test_a_version_that_is_replaced_while_it_is_opened_is_refused(
    bundles: Path,
    tmp_path: Path,
    make_contents: Make,
    monkeypatch: pytest.MonkeyPatch,
    opening: str,
    back: bool,
) -> None:
    """After its files were compared, and before they are opened; also if the first one is put back then."""
    other = publish(tmp_path / "other", make_contents("v1", seed=3))
    compare, last = check_files, open_item_encoder

    def replace_then(*given: object) -> object:
        found = compare(*given)  # type: ignore[arg-type]
        (bundles / "v1").rename(bundles / "away")
        other.rename(bundles / "v1")
        return found

    def put_back(*given: object) -> object:
        if back:
            (bundles / "v1").rename(other)
            (bundles / "away").rename(bundles / "v1")
        return last(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(bundles_module, "check_files", replace_then)
    monkeypatch.setattr(bundles_module, "open_item_encoder", put_back)
    ways = {"open": lambda: Bundle.open(bundles / "v1"), "load": lambda: load(bundles, "v1")}
    with pytest.raises(BundleError, match="changed since it was opened"):
        ways[opening]()
