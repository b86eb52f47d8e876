"""The folder of a retraining: stored events, records, the state of a run, the lock, and what is deleted."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import turret
from tests.turret.conftest import DAY, START, Prepare, manifest, record, size
from turret.data.configuration import load_configuration
from turret.data.errors import ConfigurationError, TurretError
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.retraining.deployment import delete_old
from turret.retraining.retrain import count_predictable, is_changed
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import (
    RECORDS,
    STATE,
    LockedError,
    append_record,
    lineage,
    read_records,
    read_state,
    remove_state,
    retrain_lock,
)
from turret.retraining.stored_events import add_stored, count_new, open_data, size_of
from turret.service.schemas.fields import show_time
from turret.service.versions.folder import RECORD, keep_record
from turret.service.versions.record import Record, Route, Routes, new_activation
from turret.tower.format.listing import point
from turret.tower.format.manifest import Manifest

BEGUN = record("r1", started=show_time((START + 100 * DAY) * 1000))
Rows = Sequence[tuple[str, str, int]]
LOG: Rows = [(user, f"i{day}", START + day * DAY) for user in ("ann", "bob") for day in range(5)]
LATER: Rows = [("ann", "i9", START + 6 * DAY), ("cid", "i1", START + 7 * DAY)]


def write(path: Path, rows: Rows) -> Path:
    lines = ["user_id,item_id,timestamp", *(f"{user},{item},{time}" for user, item, time in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def store(settings: RetrainSettings, rows: Rows) -> None:
    turret.load_histories(write(settings.work.parent / "stored.csv", rows), settings.store)


@pytest.fixture
def settings(tmp_path: Path) -> RetrainSettings:
    prepare(PrepareConfig(source=write(tmp_path / "log.csv", LOG)), tmp_path / "prepared")
    return RetrainSettings(
        data=tmp_path / "prepared",
        bundles=tmp_path / "bundles",
        work=tmp_path / "work",
        store=f"sqlite:///{tmp_path}/history.sqlite",
    )


def test_late_events_are_read_for_some_days(settings: RetrainSettings) -> None:
    """The newest event of the data is on day 4."""
    store(settings, [("ann", "i8", START + 2 * DAY)])
    add_stored(replace(settings, late=1.0), BEGUN, [])
    assert len(open_data(settings).event_items) == len(LOG)
    add_stored(replace(settings, late=2.5), BEGUN, [])
    assert len(open_data(settings).event_items) == len(LOG) + 1


def test_new_events_of_a_database_are_read_by_its_query(settings: RetrainSettings, tmp_path: Path) -> None:
    """From --late days before the newest event on, by the query of the first time or of the options."""
    path = tmp_path / "shop.db"
    late = ("bob", "i8", START + 2 * DAY)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (user_id text, item_id text, timestamp text)")
        insert = "insert into orders values (?, ?, datetime(?, 'unixepoch'))"
        connection.executemany(insert, LOG)
        connection.commit()
        query = "select * from orders where timestamp >= :since"
        prepare(PrepareConfig(source=path, sql=query), settings.data, overwrite=True)
        settings = replace(settings, events=str(path))
        assert add_stored(settings, BEGUN, []) == ""
        assert len(open_data(settings).event_items) == len(LOG)
        connection.executemany(insert, [*LATER, late])
        connection.commit()
    assert add_stored(settings, BEGUN, [], lambda data: False) == ""
    assert len(open_data(settings).event_items) == len(LOG), "nothing is trained, so the data stays"
    assert add_stored(settings, BEGUN, []) == ""
    assert len(open_data(settings).event_items) == len(LOG) + len(LATER)
    assert add_stored(replace(settings, since="2100-01-01"), BEGUN, []) == "", "a day without an event"
    add_stored(replace(settings, sql="select * from orders"), BEGUN, [])
    assert len(open_data(settings).event_items) == len(LOG) + len(LATER) + 1


def test_a_wrong_future_time_does_not_hide_events(settings: RetrainSettings, tmp_path: Path) -> None:
    """The range begins at the end of the last dump, if the data claims to be newer."""
    append(write(tmp_path / "wrong.csv", [("bob", "i7", START + 9999 * DAY)]), settings.data)
    store(settings, LATER)
    dumped = record("r0", started=show_time((START + 5 * DAY) * 1000), after=size(11), new_events=1)
    failed = record("r1", started=BEGUN.started, after=size(11), decision="failed")
    # The events of a run that trained nothing were not added.
    waiting = record("r2", started=BEGUN.started, after=size(11), decision="nothing_new", new_events=2)
    add_stored(settings, BEGUN, [dumped, failed, waiting])
    assert len(open_data(settings).event_items) == len(LOG) + 1 + len(LATER)


def test_rows_without_a_catalog_entry_are_dropped(tmp_path: Path, settings: RetrainSettings) -> None:
    items = tmp_path / "items.csv"
    items.write_text("item_id,title\n" + "".join(f"i{number},T\n" for number in range(5)))
    config = PrepareConfig(source=tmp_path / "log.csv", items=items)
    prepare(config, settings.data, overwrite=True)
    store(settings, LATER)
    assert add_stored(settings, BEGUN, []).startswith("1 stored event can't be used: item not in the items")
    assert len(open_data(settings).event_items) == len(LOG) + 1  # i9 is not in the catalog
    items.write_text(items.read_text() + "i9,New\n")
    add_stored(replace(settings, items=str(items), late=9.0), BEGUN, [])
    assert len(open_data(settings).event_items) == len(LOG) + 2


def test_data_without_times_is_refused(prepared: Prepare) -> None:
    plain = prepared("user_id,item_id\na,x\na,y\na,z\n", columns={"in_file_order": True})
    with pytest.raises(ConfigurationError, match="has an order but no times"):
        open_data(RetrainSettings(data=plain.folder))


def manifest_of(settings: RetrainSettings) -> Manifest:
    """The manifest of a version that was trained on the data."""
    data = open_data(settings)
    return manifest("live", data.fingerprint, data.manifest.time.until)


def test_new_events_are_counted_from_the_last_training(settings: RetrainSettings) -> None:
    store(settings, LATER)
    before, live = size_of(open_data(settings)), manifest_of(settings)
    assert count_new(open_data(settings), before, [], live) == 0
    assert not is_changed(open_data(settings), [], live)
    add_stored(settings, BEGUN, [])
    data = open_data(settings)
    assert count_new(data, before, [], live) == 2
    # A failed training has used nothing, a refused one has.
    failed = record("r1", decision="failed", after=size_of(data))
    refused = record("r2", decision="refused", after=size_of(data))
    assert count_new(data, size_of(data), [failed], live) == 2
    assert count_new(data, size_of(data), [failed, refused], live) == 0
    assert count_new(data, before, [], None) == len(LOG) + 2


def test_data_that_another_command_wrote_is_noticed(settings: RetrainSettings, tmp_path: Path) -> None:
    own, live = record("r1", after=size_of(open_data(settings))), manifest_of(settings)
    append(write(tmp_path / "more.csv", LATER), settings.data)
    changed = open_data(settings)
    assert is_changed(changed, [], live)
    assert is_changed(changed, [own], live)
    assert not is_changed(changed, [own, record("r2", after=size_of(changed))], live)
    assert not is_changed(changed, [], None)
    by_hand = manifest_of(settings)
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


def test_a_state_is_removed_with_what_a_killed_dump_left(tmp_path: Path) -> None:
    state = record("r1", decision=None, step="gather")
    state.save(tmp_path)
    state.dump(tmp_path).write_text("events")
    (tmp_path / f".{state.dump(tmp_path).name}.0.new").mkdir()
    remove_state(tmp_path, state)
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


@pytest.fixture
def folder(tmp_path: Path) -> RetrainSettings:
    """A folder with the bundles and runs of RUNS, and a bundle `mine` that no retraining made."""
    settings = RetrainSettings(bundles=tmp_path / "bundles", work=tmp_path / "work", keep=1)
    for name in (*RUNS, "mine"):
        (settings.bundles / name).mkdir(parents=True)
        (settings.bundles / name / "manifest.json").write_text("{}")
        (settings.runs / name).mkdir(parents=True)
    point(settings.bundles, "r8")
    return settings


RECORDS_OF_RUNS = [record(name) for name in RUNS]


def activated(bundles: Path, *versions: str, pointed: str, routes: Routes | None = None) -> None:
    """A service has activated these versions, and somebody has moved the pointer since."""
    record = Record(live=new_activation(versions[0], "start"))
    for version in versions[1:]:
        record = record.activated(new_activation(version, "admin"))
    keep_record(bundles, record.routed(routes or Routes()))
    point(bundles, pointed)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}


def test_only_the_newest_runs_of_retrainings_and_their_bundles_stay(folder: RetrainSettings) -> None:
    """A deletion that was killed between hiding and removing is finished, too."""
    settings = replace(folder, keep=2)
    (settings.bundles / "r0").rename(settings.bundles / ".retired-r0-1")
    assert delete_old(settings, RECORDS_OF_RUNS) == tuple(RUNS[:7])
    assert names(settings.bundles) == {"r7", "r8", "mine"}
    assert names(settings.runs) == {"r7", "r8", "mine"}
    assert not list(settings.bundles.glob(".retired-*"))
    assert delete_old(settings, RECORDS_OF_RUNS) == ()


def test_the_live_previous_canary_and_shadow_versions_stay(folder: RetrainSettings) -> None:
    routes = Routes(canary=Route(version="r4", share=0.1), shadow=Route(version="r5", share=1))
    activated(folder.bundles, "r3", "r1", "r0", pointed="r0", routes=routes)
    delete_old(folder, RECORDS_OF_RUNS)
    assert names(folder.bundles) == {"r0", "r1", "r4", "r5", "r8", "mine"}


def test_a_service_that_has_not_followed_the_pointer_keeps_its_version_and_the_one_before(
    folder: RetrainSettings,
) -> None:
    activated(folder.bundles, "r1", "r2", pointed="r8")
    delete_old(folder, RECORDS_OF_RUNS)
    assert names(folder.bundles) == {"r8", "r2", "r1", "mine"}


def test_the_version_before_a_local_activation_is_the_previous_one(folder: RetrainSettings) -> None:
    delete_old(folder, [*RECORDS_OF_RUNS[:8], record("r8", live="r2")])
    assert names(folder.bundles) == {"r8", "r2", "mine"}


def test_nothing_is_deleted_while_the_protected_versions_are_unknown(folder: RetrainSettings) -> None:
    (folder.bundles / RECORD).write_text("{")
    assert delete_old(folder, RECORDS_OF_RUNS) == ()
    assert names(folder.bundles) == names(folder.runs) == {*RUNS, "mine"}


def test_both_bundles_of_a_run_with_another_index_are_one(folder: RetrainSettings) -> None:
    for name in ("r0-ivf", "r1-ivf"):
        (folder.bundles / name).mkdir()
    point(folder.bundles, "r1-ivf")
    known = [record(name, version=f"{name}-ivf") for name in ("r0", "r1")] + RECORDS_OF_RUNS[2:]
    delete_old(folder, known)
    assert names(folder.bundles) == {"r1", "r1-ivf", "r8", "mine"}


def test_a_new_file_of_a_source_is_added_with_the_stored_events(
    settings: RetrainSettings, tmp_path: Path
) -> None:
    """In one log; without a stored event the file alone is added. A second time nothing is new."""
    first = load_configuration(PrepareConfig, overrides={"source_files": [f"orders:{tmp_path / 'log.csv'}"]})
    prepare(first, settings.data, overwrite=True)
    new = write(tmp_path / "new.csv", [("cat", "i1", START + 4 * DAY), ("cat", "i2", START + 4 * DAY)])
    named = replace(settings, sources=[f"orders:{new}"], late=9.0)
    add_stored(named, BEGUN, [])
    assert len(open_data(settings).event_items) == len(LOG) + 2
    store(settings, LATER)
    for _ in range(2):
        assert add_stored(named, BEGUN, []) == ""
        assert len(open_data(settings).event_items) == len(LOG) + 2 + len(LATER)
