import shutil
from pathlib import Path

import pytest

from tests.tower.engines.conftest import URL
from tests.tower.engines.memory_engine import Server
from turret.tower.engines.collections import (
    NAMESPACE_FILE,
    alias_name,
    check_owner,
    collection_name,
    drop_unneeded,
    namespace,
)
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.engine_settings import EngineSettings


def test_a_folder_keeps_its_names_and_no_other_has_them(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    assert namespace(folders[0]) == namespace(folders[0]) != namespace(folders[1])
    first, second = (collection_name(folders[0], "spring.2-a") for _ in range(2))
    assert first != second
    assert first.startswith(f"{namespace(folders[0])}_spring_2_a_")
    effort = {"rows": 1, "k": 1, "breadth": 1, "recall": 1.0}
    fields = {"engine": "redis", "url": URL, "efforts": (effort,)}
    longest = collection_name(folders[0], "v" * 64)
    EngineSettings.model_validate({**fields, "collection": longest, "alias": alias_name(folders[0])})


def test_a_damaged_file_of_names_is_said(tmp_path: Path) -> None:
    (tmp_path / NAMESPACE_FILE).write_text("*")
    with pytest.raises(BundleError, match="names no collections; write back its content"):
        namespace(tmp_path)


def test_collections_of_deleted_versions_are_dropped_on_demand(shop: Path, server: Server) -> None:
    for name in ("one", "two"):
        publish_to_engine(shop / "v1", URL, version=name)
    (shop / "one").rename(shop.parent / "one")
    dropped = drop_unneeded(shop, URL)
    assert len(dropped) == 1
    assert "_one_" in dropped[0]
    assert [name for name in server.items if "_two_" in name] == list(server.items)
    server.fault = "down"
    with pytest.raises(EngineError, match="can't be reached"):
        drop_unneeded(shop, URL)


def test_a_copy_of_a_folder_drops_nothing_of_the_original(shop: Path, server: Server) -> None:
    """A version that is published in the original after the copy is unknown there, and stays."""
    publish_to_engine(shop / "v1", URL, version="one")
    copy = shutil.copytree(shop, shop.parent / "copy")
    publish_to_engine(shop / "v1", URL, version="two")
    kept = set(server.items)
    with pytest.raises(
        BundleError, match=f"comes from {shop}.*is a copy, delete the file.*was moved, delete"
    ):
        drop_unneeded(copy, URL)
    reported: list[str] = []
    publish_to_engine(copy / "v1", URL, version="three", report=reported.append)
    assert kept < set(server.items)
    assert any("no collection is dropped" in message for message in reported)
    (copy / NAMESPACE_FILE).unlink()
    publish_to_engine(copy / "v1", URL, version="four")
    assert drop_unneeded(copy, URL) == []
    assert kept < set(server.items)


def test_a_folder_that_is_moved_mounted_elsewhere_or_restored_stays_its_own(tmp_path: Path) -> None:
    first, second, backup = (tmp_path / name for name in ("first", "second", "backup"))
    first.mkdir()
    made = namespace(first)
    shutil.copytree(first, backup)
    first.rename(second)  # the path of another container, or another name
    check_owner(second)
    shutil.copytree(backup, first)
    check_owner(first)
    with pytest.raises(BundleError, match="comes from"):
        check_owner(backup)
    path = backup / NAMESPACE_FILE
    path.write_text(path.read_text().splitlines()[0])
    check_owner(backup)
    assert namespace(first) == namespace(second) == namespace(backup) == made
    assert path.read_text().endswith(f" {path}\n")
