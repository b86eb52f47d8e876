from pathlib import Path

import pytest

from tests.tower.engines.conftest import URL
from tests.tower.engines.memory_engine import Server
from turret.tower.engines.collections import (
    NAMESPACE_FILE,
    alias_name,
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
    fields = {"engine": "redis", "url": URL, "efforts": ({"selectivity": 1.0, "k": 1, "breadth": 1},)}
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
