"""Publication on a vector engine in this process: tuned efforts, refusals, and collections that go again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import turret.cli
from tests.support.memory_engine import ITEMS, URL, MemoryEngine, Server, server, shop
from turret.tower.bundle.golden import load
from turret.tower.catalog.conditions import Within
from turret.tower.engines import publishing
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.publishing import NAMESPACE_FILE, collection_name, namespace, publish_to_engine
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.format.listing import current
from turret.tower.format.manifest import MeasuredRecall, read_manifest
from turret.tower.tuning.recall import measure_recall

__all__ = ["server", "shop"]  # fixtures


def settings_of(folder: Path) -> EngineSettings:
    settings = read_manifest(folder).index
    assert isinstance(settings, EngineSettings)
    return settings


def test_a_version_is_loaded_tuned_and_measured(shop: Path, server: Server) -> None:
    told: list[str] = []
    target = publish_to_engine(shop / "v1", URL, report=told.append)
    assert target == shop / "v1-redis"
    assert current(shop) == "v1", "only an activation moves the pointer"
    manifest, settings = read_manifest(target), settings_of(target)
    assert b"engine:6379" not in (target / "manifest.json").read_bytes(), "the operator names it"
    assert b"secret" not in b"".join(path.read_bytes() for path in target.iterdir())
    assert list(server.items) == [settings.collection]
    items = server.items[settings.collection]
    assert np.array_equal(items.vectors, np.load(shop / "v1" / "item_vectors.npy"))
    assert [field.starts is None for field in items.fields] == [True, False, False, True]
    cells = {(one.selectivity, one.k) for one in manifest.recall}
    assert cells == {
        *((1.0, k) for k in (10, 100, 1000)),
        *((share, k) for share in (0.3, 0.1) for k in (10, 100)),
        *((share, 10) for share in (0.03, 0.01)),
    }
    assert min(one.recall for one in manifest.recall) >= 0.99
    assert {(one.rows, one.k) for one in settings.efforts} > {(ITEMS, 10), (120, 32)}
    assert (settings.efforts[0].breadth or 0) >= MemoryEngine.enough, "a lower effort misses the best item"
    assert any("loading 1,200 items" in line for line in told)
    assert "secret" not in "".join(told)
    server.fault = "down"
    assert isinstance(load(shop, target.name).index, EngineIndex), "it opens while the engine is down"


def test_a_share_at_which_no_effort_suffices_is_searched_exactly(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between it and the next larger share, where nothing was measured."""
    search = MemoryEngine.search

    def misses(self: MemoryEngine, *given: Any) -> Any:
        where = given[4]
        self.enough = 10**9 if isinstance(where, Within) and where.interval.high == 0.3 * ITEMS else 40
        return search(self, *given)

    monkeypatch.setattr(MemoryEngine, "search", misses)
    told: list[str] = []
    settings = settings_of(publish_to_engine(shop / "v1", URL, report=told.append))
    assert settings.subset_rows == 360
    assert settings.breadth(ITEMS, 10) is not None
    assert settings.breadth(ITEMS - 1, 10) is None
    assert any("0.3 of the items are allowed: no effort for k = 10 (recall 0.9" in line for line in told)


@pytest.mark.parametrize("misses", [1, 3])
def test_efforts_that_miss_the_recall_on_more_queries_are_tuned_for_a_higher_one(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch, misses: int
) -> None:
    """In one cell of the table; and refused where no margin is enough."""
    tables: list[tuple[MeasuredRecall, ...]] = []

    def some_miss(*given: Any, **named: Any) -> tuple[MeasuredRecall, ...]:
        *others, last = measure_recall(*given, **named)
        if len(tables) < misses:
            last = last.model_copy(update={"recall": 0.5})
        tables.append((*others, last))
        return tables[-1]

    monkeypatch.setattr(publishing, "measure_recall", some_miss)
    if misses == 3:
        with pytest.raises(BundleError, match=r"0\.5000 of the true best 10 where 0\.01"):
            publish_to_engine(shop / "v1", URL)
        assert server.items == {}
    else:
        target = publish_to_engine(shop / "v1", URL)
        assert read_manifest(target).recall == tables[1]


def test_the_command_publishes_on_the_engine_of_the_environment(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURRET_ENGINE", raising=False)
    words = ["publish", str(shop), "--version", "served", "--json"]
    refused = CliRunner().invoke(turret.cli.app, words)
    assert "no engine is named: add --engine" in refused.stderr
    done = CliRunner().invoke(turret.cli.app, words, env={"TURRET_ENGINE": URL})
    assert json.loads(done.stdout)["version"] == "served"
    assert isinstance(settings_of(shop / "served"), EngineSettings)


@pytest.mark.parametrize(
    ("engine", "asked", "message"),
    [
        ({"enough": 10**9}, {}, r"fewer than 0.992 of the true best 10 .* nothing was published"),
        ({"count": lambda *_: ITEMS - 1}, {}, "holds 1199 of 1200 items"),
        ({}, {"recall": 1.5}, "a recall is above 0 and at most 1"),
        ({}, {"version": "v1"}, "exists, and a published bundle is never changed"),
    ],
)
def test_a_publication_that_is_refused_leaves_nothing(
    shop: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    engine: dict[str, Any],
    asked: dict[str, Any],
    message: str,
) -> None:
    for name, value in engine.items():
        monkeypatch.setattr(MemoryEngine, name, value)
    with pytest.raises((BundleError, EngineError), match=message):
        publish_to_engine(shop / "v1", URL, **asked)
    assert not (shop / "v1-redis").exists()
    assert server.items == {}


def test_a_publication_that_died_is_cleared_away_by_the_next(shop: Path, server: Server) -> None:
    """So is one of a deleted version; those of other versions, and of other folders on this engine, stay."""
    live, _ = (settings_of(publish_to_engine(shop / "v1", URL, version=name)) for name in ("one", "gone"))
    of_others = server.items["turret_0123456789ab_v1_0"] = server.items[live.collection]
    server.fault = "load"
    drop = MemoryEngine.drop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryEngine, "drop", lambda self, name: self.server.items["dead"] or drop(self, name))
        with pytest.raises((EngineError, KeyError)):
            publish_to_engine(shop / "v1", URL, version="two")
    assert len(server.items) == 4
    server.fault = None
    (shop / "gone").rename(shop.parent / "gone")
    told: list[str] = []
    two = settings_of(publish_to_engine(shop / "v1", URL, version="two", report=told.append))
    assert set(server.items) == {live.collection, two.collection, "turret_0123456789ab_v1_0"}
    assert server.items["turret_0123456789ab_v1_0"] is of_others
    assert sum("dropped the collection" in line for line in told) == 2


def test_a_version_that_can_not_be_read_keeps_all_collections(shop: Path, server: Server) -> None:
    one = publish_to_engine(shop / "v1", URL, version="one")
    collection = settings_of(one).collection
    (one / "manifest.json").chmod(0o644)
    (one / "manifest.json").write_text("{}")
    told: list[str] = []
    publish_to_engine(shop / "v1", URL, version="two", report=told.append)
    assert collection in server.items
    assert any("no collection is dropped" in line for line in told)


def test_a_folder_keeps_its_names_and_no_other_has_them(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    assert namespace(folders[0]) == namespace(folders[0]) != namespace(folders[1])
    first, second = (collection_name(folders[0], "spring.2-a") for _ in range(2))
    assert first != second
    assert first.startswith(f"{namespace(folders[0])}_spring_2_a_")
    longest = collection_name(folders[0], "v" * 64)
    effort = EngineEffort(rows=1, k=1, breadth=1, recall=1.0)
    EngineSettings(engine="redis", collection=longest, efforts=(effort,))
    (folders[0] / NAMESPACE_FILE).write_text("*")
    with pytest.raises(BundleError, match="names no collections; write back its content"):
        namespace(folders[0])
