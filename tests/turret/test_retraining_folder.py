"""The folder of a retraining: stored events, records, the state of a run, the lock, and what is deleted."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import turret.cli
from tests.conftest import contents
from tests.turret.conftest import DAY, START, Prepare, record, size
from turret.activation.comparison import Comparison
from turret.data.errors import ConfigurationError, TurretError
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.history.loading import load_histories
from turret.retraining.deployment import delete_old, protected_versions
from turret.retraining.retrain import (
    add_stored,
    count_new,
    count_predictable,
    is_changed,
    open_data,
    size_of,
)
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import (
    RECORDS,
    STATE,
    LockedError,
    Retraining,
    append_record,
    lineage,
    read_records,
    read_state,
    remove_state,
    retrain_lock,
)
from turret.service.schemas.fields import show_time
from turret.service.settings import read_settings
from turret.service.versions.folder import RECORD, keep_record
from turret.service.versions.record import Record, Route, Routes, new_activation
from turret.tower.bundle.publish import publish
from turret.tower.format.listing import current, point
from turret.tower.format.manifest import Manifest, read_manifest

NOW = (START + 100 * DAY) * 1000
Rows = Sequence[tuple[str, str, int]]
LOG: Rows = [(user, f"i{day}", START + day * DAY) for user in ("ann", "bob") for day in range(5)]
LATER: Rows = [("ann", "i9", START + 6 * DAY), ("cid", "i1", START + 7 * DAY)]


def write(path: Path, rows: Rows) -> Path:
    lines = ["user_id,item_id,timestamp", *(f"{user},{item},{time}" for user, item, time in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def store(settings: RetrainSettings, rows: Rows) -> None:
    log = write(settings.work.parent / "stored.csv", rows)
    prepare(PrepareConfig(source=log), log.with_suffix(""), overwrite=True)
    load_histories(PreparedData.open(log.with_suffix("")), read_settings(store=settings.store))


@pytest.fixture
def settings(tmp_path: Path) -> RetrainSettings:
    prepare(PrepareConfig(source=write(tmp_path / "log.csv", LOG)), tmp_path / "prepared")
    return RetrainSettings(
        data=tmp_path / "prepared",
        bundles=tmp_path / "bundles",
        work=tmp_path / "work",
        store=f"sqlite:///{tmp_path}/history.sqlite",
    )


def begun(settings: RetrainSettings) -> Retraining:
    return Retraining(run="r1", started=show_time(NOW), before=size_of(open_data(settings)), step="gather")


def test_later_events_are_added_once_and_their_dump_is_deleted(settings: RetrainSettings) -> None:
    store(settings, [*LOG[:3], *LATER])
    before = begun(settings)
    for _ in range(2):
        add_stored(settings, before, [])
        data = open_data(settings)
        assert len(data.event_items) == len(LOG) + len(LATER)
        assert not list(settings.work.glob("*.parquet"))
    assert data.users.row("cid") is not None


def test_late_events_are_read_for_some_days(settings: RetrainSettings) -> None:
    """The newest event of the data is on day 4."""
    store(settings, [("ann", "i8", START + 2 * DAY)])
    add_stored(replace(settings, late=1.0), begun(settings), [])
    assert len(open_data(settings).event_items) == len(LOG)
    add_stored(replace(settings, late=2.5), begun(settings), [])
    assert len(open_data(settings).event_items) == len(LOG) + 1


def test_a_wrong_future_time_does_not_hide_events(settings: RetrainSettings, tmp_path: Path) -> None:
    """The range begins at the end of the last dump, if the data claims to be newer."""
    append(write(tmp_path / "wrong.csv", [("bob", "i7", START + 9999 * DAY)]), settings.data)
    store(settings, LATER)
    dumped = record("r0", started=show_time((START + 5 * DAY) * 1000), after=size(11), new_events=1)
    failed = record("r1", started=show_time(NOW), after=size(11), decision="failed")
    add_stored(settings, begun(settings), [dumped, failed])
    assert len(open_data(settings).event_items) == len(LOG) + 1 + len(LATER)


def test_rows_without_a_catalog_entry_are_dropped(tmp_path: Path, settings: RetrainSettings) -> None:
    items = tmp_path / "items.csv"
    items.write_text("item_id,title\n" + "".join(f"i{number},T\n" for number in range(5)))
    config = PrepareConfig(source=tmp_path / "log.csv", items=items)
    prepare(config, settings.data, overwrite=True)
    store(settings, LATER)
    add_stored(settings, begun(settings), [])
    assert len(open_data(settings).event_items) == len(LOG) + 1  # i9 is not in the catalog
    items.write_text(items.read_text() + "i9,New\n")
    add_stored(replace(settings, items=items, late=9.0), begun(settings), [])
    assert len(open_data(settings).event_items) == len(LOG) + 2


def test_data_without_times_is_refused(prepared: Prepare) -> None:
    plain = prepared("user_id,item_id\na,x\na,y\na,z\n", columns={"in_file_order": True})
    with pytest.raises(ConfigurationError, match="has an order but no times"):
        open_data(RetrainSettings(data=plain.folder))


@pytest.fixture
def live(settings: RetrainSettings) -> Manifest:
    """The manifest of a version that was trained on the data of `settings`."""
    data = open_data(settings)
    made = contents(fingerprints={"data": data.fingerprint}, data_until=data.manifest.time.until)
    return read_manifest(publish(settings.bundles, made))


def test_new_events_are_counted_from_the_last_training(settings: RetrainSettings, live: Manifest) -> None:
    store(settings, LATER)
    before = size_of(open_data(settings))
    assert count_new(open_data(settings), before, [], live) == 0
    assert not is_changed(open_data(settings), [], live)
    add_stored(settings, begun(settings), [])
    data = open_data(settings)
    assert count_new(data, before, [], live) == 2
    # A failed training has used nothing, a refused one has.
    failed = record("r1", decision="failed", after=size_of(data))
    refused = record("r2", decision="refused", after=size_of(data))
    assert count_new(data, size_of(data), [failed], live) == 2
    assert count_new(data, size_of(data), [failed, refused], live) == 0
    assert count_new(data, before, [], None) == len(LOG) + 2


def test_data_that_another_command_wrote_is_noticed(
    settings: RetrainSettings, live: Manifest, tmp_path: Path
) -> None:
    own = record("r1", after=size_of(open_data(settings)))
    append(write(tmp_path / "more.csv", LATER), settings.data)
    changed = open_data(settings)
    assert is_changed(changed, [], live)
    assert is_changed(changed, [own], live)
    assert not is_changed(changed, [own, record("r2", after=size_of(changed))], live)
    assert not is_changed(changed, [], None)
    by_hand = live.model_copy(update={"fingerprints": {"data": changed.fingerprint}})
    assert not is_changed(changed, [own], by_hand)
    assert count_new(changed, size_of(changed), [own], by_hand) == 0


def test_events_without_an_earlier_one_in_the_training_part_can_not_be_predicted(
    settings: RetrainSettings,
) -> None:
    data = open_data(settings)
    # The last two of each user's five events are validation and test.
    assert count_predictable(data, show_time((START + 2 * DAY) * 1000)) == 2
    assert count_predictable(data, show_time((START + 3 * DAY) * 1000)) == 0
    assert count_predictable(data, show_time(START * 1000)) == 4


FIGURES = Comparison(("v2", "v1"), "ndcg@10", 0.1, 99, "newest", new=0.25, live=0.2, low=0.01, high=0.09)


def test_the_history_is_json_too(tmp_path: Path) -> None:
    append_record(tmp_path, record("20260501-030000", new_events=1234, figures=FIGURES))
    append_record(tmp_path, record("20260502-030000", decision="failed", step="train", version=None))
    words = ["retrain", "--history", "--json", "--work", str(tmp_path)]
    listed = json.loads(CliRunner().invoke(turret.cli.app, words).stdout)
    assert [one["decision"] for one in listed] == ["activated", "failed"]
    assert listed[0]["figures"]["low"] == 0.01


def test_the_torn_line_of_a_crash_is_skipped_and_costs_no_later_record(tmp_path: Path) -> None:
    append_record(tmp_path, record("one"))
    with (tmp_path / RECORDS).open("a") as file:
        file.write('{"run": "tor')
    append_record(tmp_path, record("two"))
    assert [one.run for one in read_records(tmp_path)] == ["one", "two"]


def test_a_lineage_counts_the_warm_starts_since_the_last_full_training() -> None:
    records = [
        record("full", mode="anew", before=size(100), after=size(110)),
        record("warm-1", origin="full", before=size(110), after=size(120)),
        record("refused", origin="warm-1", decision="refused", before=size(120), after=size(130)),
        record("warm-2", origin="warm-1", before=size(130), after=size(140)),
    ]
    assert lineage(records, "warm-2") == (2, size(110))
    assert lineage(records, "full") == (0, size(110))


def test_a_version_of_another_command_had_the_data_before_the_first_warm_start_from_it() -> None:
    records = [
        record("refused", live="first", decision="refused", before=size(100), after=size(110)),
        record("warm-1", live="first", origin="first", before=size(110), after=size(120)),
    ]
    assert lineage(records[:1], "first") == (0, size(100))
    assert lineage(records, "warm-1") == (1, size(100))
    assert lineage(records, "other") == lineage([], None) == (0, None)


def test_a_state_is_read_back_and_removed_with_what_a_killed_dump_left(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    written = record("r1", decision=None, step="train", new_events=3, before=size(10), after=size(13))
    written.save(tmp_path)
    assert read_state(tmp_path) == written
    written.dump(tmp_path).write_text("events")
    (tmp_path / f".{written.dump(tmp_path).name}.0.new").mkdir()
    remove_state(tmp_path, written)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text("{}")
    with pytest.raises(TurretError, match="delete it, and the next run begins anew"):
        read_state(tmp_path)


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> bool:
        raise OSError("no locks")

    monkeypatch.setattr("turret.data.files.try_lock", refuse)
    with pytest.raises(LockedError, match="its file system has no locks"), retrain_lock(tmp_path):
        pass


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


RECORDS_OF_RUNS = [record(name) for name in RUNS]


def activated(bundles: Path, *versions: str, routes: Routes | None = None) -> None:
    """A service has activated these versions, and somebody may have moved the pointer since."""
    pointed, record = current(bundles), Record(live=new_activation(versions[0], "start"))
    for version in versions[1:]:
        record = record.activated(new_activation(version, "admin"))
    keep_record(bundles, record.routed(routes or Routes()))
    if pointed:
        point(bundles, pointed)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}


def test_only_the_newest_runs_of_retrainings_and_their_bundles_stay(folder: Folder) -> None:
    """A deletion that was killed between hiding and removing is finished, too."""
    settings = folder()
    (settings.bundles / "r0").rename(settings.bundles / ".retired-r0-1")
    assert delete_old(settings, RECORDS_OF_RUNS) == tuple(RUNS[:7])
    assert names(settings.bundles) == {"r7", "r8", "mine"}
    assert names(settings.runs) == {"r7", "r8", "mine"}
    assert not list(settings.bundles.glob(".retired-*"))
    assert delete_old(settings, RECORDS_OF_RUNS) == ()


def test_the_live_previous_canary_and_shadow_versions_stay(folder: Folder) -> None:
    settings = folder(live="r0", keep=1)
    routes = Routes(canary=Route(version="r4", share=0.1), shadow=Route(version="r5", share=1))
    activated(settings.bundles, "r3", "r1", "r0", routes=routes)
    assert protected_versions(settings.bundles, None, RECORDS_OF_RUNS) == {"r0", "r1", "r4", "r5"}
    delete_old(settings, RECORDS_OF_RUNS)
    assert names(settings.bundles) == {"r0", "r1", "r4", "r5", "r8", "mine"}


def test_a_service_that_has_not_followed_the_pointer_keeps_its_version_and_the_one_before(
    folder: Folder,
) -> None:
    settings = folder(live="r8", keep=1)
    activated(settings.bundles, "r1", "r2")
    assert protected_versions(settings.bundles, None, RECORDS_OF_RUNS) == {"r8", "r2", "r1"}


def test_the_version_before_a_local_activation_is_the_previous_one(folder: Folder) -> None:
    settings = folder(live="r8", keep=1)
    known = [*RECORDS_OF_RUNS[:8], record("r8", live="r2")]
    assert protected_versions(settings.bundles, None, known) == {"r8", "r2"}


def test_nothing_is_deleted_while_the_protected_versions_are_unknown(folder: Folder) -> None:
    settings = folder()
    (settings.bundles / RECORD).write_text("{")
    assert delete_old(settings, RECORDS_OF_RUNS) == ()
    assert names(settings.bundles) == names(settings.runs) == {*RUNS, "mine"}


def test_both_bundles_of_a_run_with_another_index_are_one(folder: Folder) -> None:
    settings = folder(live="r1-ivf", keep=1)
    for name in ("r0-ivf", "r1-ivf"):
        (settings.bundles / name).mkdir()
    known = [record(name, version=f"{name}-ivf") for name in ("r0", "r1")] + RECORDS_OF_RUNS[2:]
    delete_old(settings, known)
    assert names(settings.bundles) == {"r1", "r1-ivf", "r8", "mine"}
