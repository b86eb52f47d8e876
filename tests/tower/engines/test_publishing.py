from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import contents
from tests.tower.engines.conftest import ITEMS, URL
from tests.tower.engines.memory_engine import MemoryEngine, Server
from turret.tower.bundle.bundle import load
from turret.tower.bundle.publish import publish
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.engines.where import InRange
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.engine_settings import EngineSettings
from turret.tower.format.manifest import read_manifest
from turret.tower.format.pointer import current


def settings_of(folder: Path) -> EngineSettings:
    settings = read_manifest(folder).index
    assert isinstance(settings, EngineSettings)
    return settings


def test_a_version_is_loaded_tuned_and_measured(shop: Path, server: Server) -> None:
    told: list[str] = []
    target = publish_to_engine(shop / "v1", URL, report=told.append)
    assert target == shop / "v1-redis"
    assert (current(shop), server.aliases) == ("v1", {}), "only an activation moves pointer and alias"
    manifest, settings = read_manifest(target), settings_of(target)
    assert settings.url == "redis://engine:6379"
    assert b"secret" not in b"".join(path.read_bytes() for path in target.iterdir())
    assert list(server.items) == [settings.collection]
    items = server.items[settings.collection]
    assert np.array_equal(items.vectors, np.load(shop / "v1" / "item_vectors.npy"))
    assert [field.kind for field in items.fields] == ["number", "codes", "codes", "number"]
    cells = {(one.selectivity, one.k) for one in manifest.recall}
    assert cells == {
        *((1.0, k) for k in (10, 100, 1000)),
        *((share, k) for share in (0.3, 0.1) for k in (10, 100)),
        *((share, 10) for share in (0.03, 0.01)),
    }
    assert min(one.recall for one in manifest.recall) >= 0.99
    assert {(one.rows, one.k) for one in settings.efforts} > {(ITEMS, 10), (120, 32)}
    tuned = [one.breadth or 0 for one in settings.efforts if one.rows == ITEMS]
    assert tuned == sorted(tuned)
    assert tuned[0] >= MemoryEngine.enough, "a lower effort misses the best item"
    bundle = load(shop, target.name)
    assert isinstance(bundle.index, EngineIndex)
    assert any("loading 1,200 items" in line for line in told)
    assert "secret" not in "".join(told)


def test_a_share_at_which_no_effort_suffices_is_searched_exactly(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between it and the next larger share, where nothing was measured."""
    search = MemoryEngine.search

    def misses(self: MemoryEngine, *given: Any) -> Any:
        where = given[4]
        self.enough = 10**9 if isinstance(where, InRange) and where.high == 0.3 * ITEMS else 40
        return search(self, *given)

    monkeypatch.setattr(MemoryEngine, "search", misses)
    told: list[str] = []
    target = publish_to_engine(shop / "v1", URL, report=told.append)
    settings = settings_of(target)
    assert settings.subset_rows == 360
    assert settings.breadth(ITEMS, 10) is not None
    assert settings.breadth(ITEMS - 1, 10) is None
    assert any("0.3 of the items are allowed: no effort for k = 10 (recall 0.9" in line for line in told)


def test_an_engine_that_misses_the_recall_is_refused_with_the_worst_cell(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryEngine, "enough", 10**9)
    with pytest.raises(BundleError, match=r"fewer than 0.99 of the true best 10 .* nothing was published"):
        publish_to_engine(shop / "v1", URL)
    assert not (shop / "v1-redis").exists()
    assert server.items == {}


def test_a_publication_that_died_is_cleared_away_by_the_next(shop: Path, server: Server) -> None:
    """The live collection, and those of other folders on this engine, stay."""
    live = settings_of(publish_to_engine(shop / "v1", URL, version="one"))
    server.aliases[live.alias] = live.collection
    of_others = server.items["turret_0123456789ab_v1_0"] = server.items[live.collection]
    server.fault = "load"
    monkey = MemoryEngine.drop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            MemoryEngine, "drop", lambda self, name: self.server.items["dead"] or monkey(self, name)
        )
        with pytest.raises((EngineError, KeyError)):
            publish_to_engine(shop / "v1", URL, version="two")
    assert server.aliases == {live.alias: live.collection}
    assert len(server.items) == 3
    server.fault = None
    told: list[str] = []
    two = settings_of(publish_to_engine(shop / "v1", URL, version="two", report=told.append))
    assert set(server.items) == {live.collection, two.collection, "turret_0123456789ab_v1_0"}
    assert server.items["turret_0123456789ab_v1_0"] is of_others
    assert sum("dropped the collection" in line for line in told) == 1


def test_collections_of_deleted_versions_are_dropped_but_for_the_live_one(shop: Path, server: Server) -> None:
    one, two = (settings_of(publish_to_engine(shop / "v1", URL, version=name)) for name in ("one", "two"))
    server.aliases[one.alias] = one.collection
    for name in ("one", "two"):
        (shop / name).rename(shop.parent / name)
    three = settings_of(publish_to_engine(shop / "v1", URL, version="three"))
    assert set(server.items) == {one.collection, three.collection}
    assert two.collection not in server.items


def test_a_version_that_can_not_be_read_keeps_all_collections(shop: Path, server: Server) -> None:
    one = publish_to_engine(shop / "v1", URL, version="one")
    collection = settings_of(one).collection
    (one / "manifest.json").chmod(0o644)
    (one / "manifest.json").write_text("{}")
    told: list[str] = []
    publish_to_engine(shop / "v1", URL, version="two", report=told.append)
    assert collection in server.items
    assert any("no collection is dropped" in line for line in told)


def test_an_engine_with_fewer_items_than_were_loaded_is_refused(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryEngine, "count", lambda self, name: ITEMS - 1)
    with pytest.raises(EngineError, match="holds 1199 of 1200 items"):
        publish_to_engine(shop / "v1", URL)
    assert server.items == {}


@pytest.mark.parametrize(
    ("url", "recall", "version", "message"),
    [
        ("ftp://engine", 0.99, None, "names no engine; write milvus://"),
        (URL, 1.5, None, "a recall is above 0 and at most 1"),
        (URL, 0.99, "v1", "exists, and a published bundle is never changed"),
    ],
)
def test_a_mistake_is_named(
    shop: Path, server: Server, url: str, recall: float, version: str | None, message: str
) -> None:
    with pytest.raises((BundleError, EngineError), match=message):
        publish_to_engine(shop / "v1", url, recall, version)
    assert server.items == {}


@pytest.mark.parametrize("count", [5, 9])
def test_a_catalog_that_is_too_small_to_measure_is_refused(
    tmp_path: Path, server: Server, count: int
) -> None:
    publish(tmp_path, contents(ids=tuple(range(count))))
    with pytest.raises(BundleError, match=f"has {count} items; .* measured for the best 10"):
        publish_to_engine(tmp_path / "v1", URL)
    assert server.items == {}


def test_an_engine_that_is_down_is_named_without_its_password(shop: Path, server: Server) -> None:
    server.fault = "down"
    with pytest.raises(EngineError, match="can't be reached"):
        publish_to_engine(shop / "v1", URL)
