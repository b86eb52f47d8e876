import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.retraining.records import record
from tests.support.memory_engine import URL, Server, server, shop
from turret.data.progress import LOGGER
from turret.retraining.record import RetrainRecord
from turret.retraining.retention import choose_retired, delete_retired, protected_versions, retired
from turret.retraining.settings import RetrainSettings
from turret.service.models.activation_log import FILE_NAME
from turret.service.models.traffic_split import Route, Routes, write_routes
from turret.tower.bundle.publish import BundleContents
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.format.pointer import point

__all__ = ["server", "shop"]  # fixtures
RUNS = [f"r{number}" for number in range(9)]
Folder = Callable[..., RetrainSettings]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with the bundles and runs of RUNS, and a bundle `mine` that no retraining made."""

    def make(live: str = "r8", keep: int = 2) -> RetrainSettings:
        settings = RetrainSettings(
            data=tmp_path, bundles=tmp_path / "bundles", work=tmp_path / "work", keep=keep
        )
        for name in (*RUNS, "mine"):
            (settings.bundles / name).mkdir(parents=True)
            (settings.bundles / name / "manifest.json").write_text("{}")
            (settings.runs / name).mkdir(parents=True)
        point(settings.bundles, live)
        return settings

    return make


def records(names: Sequence[str] = RUNS) -> list[RetrainRecord]:
    return [record(name) for name in names]


def log_activations(bundles: Path, *versions: str) -> None:
    lines = [
        {"time": "t", "version": version, "who": "admin", "outcome": "activated", "sequence": number}
        for number, version in enumerate(versions, start=1)
    ]
    (bundles / FILE_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}


def test_the_newest_stay_and_the_others_are_retired() -> None:
    assert retired(["c", "b", "a"], {"a"}, 1) == ("b",)
    assert retired(["c", "b", "a"], set(), 3) == ()


def test_only_the_newest_runs_of_retrainings_and_their_bundles_stay(folder: Folder) -> None:
    settings = folder()
    chosen = choose_retired(settings, records())
    assert chosen == tuple(RUNS[6::-1])
    delete_retired(settings, chosen, records())
    assert names(settings.bundles) == {"r7", "r8", "mine"}
    assert names(settings.runs) == {"r7", "r8", "mine"}
    assert not list(settings.bundles.glob(".retired-*"))
    assert choose_retired(settings, records()) == ()


def test_the_live_previous_canary_and_shadow_versions_stay(folder: Folder) -> None:
    settings = folder(live="r0", keep=1)
    log_activations(settings.bundles, "r3", "r1", "r0")
    routes = Routes(canary=Route(version="r4", share=0.1), shadow=Route(version="r5", share=1))
    write_routes(settings.bundles, routes)
    assert protected_versions(settings.bundles, None, records()) == {"r0", "r1", "r4", "r5"}
    delete_retired(settings, choose_retired(settings, records()), records())
    assert names(settings.bundles) == {"r0", "r1", "r4", "r5", "r8", "mine"}


def test_a_service_that_has_not_followed_the_pointer_keeps_its_version_and_the_one_before(
    folder: Folder,
) -> None:
    settings = folder(live="r8", keep=1)
    log_activations(settings.bundles, "r1", "r2")
    assert protected_versions(settings.bundles, None, records()) == {"r8", "r2", "r1"}


def test_the_version_before_a_local_activation_is_the_previous_one(folder: Folder) -> None:
    settings = folder(live="r8", keep=1)
    known = [*records(RUNS[:8]), record("r8", live="r2")]
    assert protected_versions(settings.bundles, None, known) == {"r8", "r2"}


def test_a_version_that_went_live_after_the_choice_stays(folder: Folder) -> None:
    settings = folder()
    chosen = choose_retired(settings, records())
    point(settings.bundles, "r0")
    delete_retired(settings, chosen, records())
    assert names(settings.bundles) == {"r0", "r7", "r8", "mine"}


def test_nothing_is_deleted_while_the_protected_versions_are_unknown(folder: Folder) -> None:
    settings = folder()
    (settings.bundles / "routes.json").write_text("{")
    assert choose_retired(settings, records()) == ()


def test_both_bundles_of_a_run_with_another_index_are_one(folder: Folder) -> None:
    settings = folder(live="r1-hnsw", keep=1)
    for name in ("r0-hnsw", "r1-hnsw"):
        (settings.bundles / name).mkdir()
    known = [record(name, version=f"{name}-hnsw") for name in ("r0", "r1")] + records(RUNS[2:])
    delete_retired(settings, choose_retired(settings, known), known)
    assert names(settings.bundles) == {"r1", "r1-hnsw", "r8", "mine"}


def test_a_deletion_that_was_killed_between_hiding_and_removing_is_finished_by_the_next(
    folder: Folder,
) -> None:
    settings = folder()
    (settings.bundles / "r0").rename(settings.bundles / ".retired-r0-1")
    delete_retired(settings, choose_retired(settings, records()), records())
    assert not list(settings.bundles.glob(".retired-*"))


def test_a_published_bundle_can_be_deleted(
    bundles: Path, make_contents: Callable[..., BundleContents], tmp_path: Path
) -> None:
    """Its files are read-only; the folder is not."""
    from turret.tower.bundle.publish import publish

    publish(bundles, make_contents("r0"))
    settings = RetrainSettings(data=tmp_path, bundles=bundles, work=tmp_path, keep=1)
    delete_retired(settings, ["r0"], records(["r0"]))
    assert names(bundles) == {"v1"}


def test_a_deleted_version_leaves_its_engine(
    shop: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine that is down keeps the collection, which the next publication drops."""
    caplog.set_level("INFO", LOGGER)
    settings = RetrainSettings(data=shop.parent, bundles=shop, work=shop.parent / "work", keep=0)
    for name in ("r0", "r1", "r2"):
        publish_to_engine(shop / "v1", URL, version=name)
    delete_retired(settings, ["r0"], records(["r0"]))
    assert len(server.items) == 2
    assert "dropped the collection" in caplog.text
    server.fault = "down"
    delete_retired(settings, ["r1"], records(["r1"]))
    assert "stay in redis://engine:6379" in caplog.text
    assert not (shop / "r1").exists()
    server.fault = None
    publish_to_engine(shop / "v1", URL, version="r3")
    assert len(server.items) == 2
