"""A new index for a bundle that is there: also for one of an older format."""

import os
import shutil
from pathlib import Path

import pytest

from tower.bundle import Bundle, load
from tower.errors import BundleError
from tower.index_choice import Asked
from tower.reindexing import reindex
from tower.watching import changed

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bundles"


@pytest.fixture
def bundle(bundles: Path) -> Path:
    return bundles / "v1"


def test_it_answers_its_recorded_queries_and_shares_what_stays(bundle: Path) -> None:
    made = reindex(bundle, Asked("sq8", 0.9), "again")
    assert load(made.parent, "again").manifest.index.kind == "sq8"
    assert (made / "item_vectors.npy").stat().st_ino == (bundle / "item_vectors.npy").stat().st_ino
    assert all(path.stat().st_mode & 0o222 == 0 for path in made.iterdir())


def test_nobody_who_watches_the_old_files_is_alarmed(bundle: Path) -> None:
    opened = Bundle.open(bundle)
    reindex(bundle, Asked("sq8", 0.9), "again")
    assert changed(opened) == []


@pytest.mark.parametrize(
    "folder", sorted(FIXTURES.glob("format-1-*/*/manifest.json")), ids=lambda path: path.parts[-3]
)
def test_a_bundle_of_format_1_becomes_one_of_today(folder: Path, tmp_path: Path) -> None:
    old = shutil.copytree(folder.parent, tmp_path / folder.parent.name)
    made = reindex(old, Asked("flat", 1.0), "new")
    new = load(tmp_path, "new")
    assert new.manifest.format_version == 2
    assert new.fields == Bundle.open(old).fields
    assert (made / "catalogue.bin").exists()


def test_a_version_that_is_there_is_left_alone(bundle: Path) -> None:
    with pytest.raises(BundleError, match="exists"):
        reindex(bundle, Asked("flat", 1.0), "v1")


def test_nothing_is_left_behind_by_a_refusal(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "chmod", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(BundleError, match="can't be written"):
        reindex(bundle, Asked("sq8", 0.9), "again")
    assert sorted(path.name for path in bundle.parent.iterdir() if path.is_dir()) == ["v1"]
