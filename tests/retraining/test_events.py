"""Stored events reach the prepared data once, and those that no training has used are counted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.retraining.records import record, size
from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.history.loading import load_histories
from turret.retraining.events import count_new, count_predictable, gather, is_changed, open_data, size_of
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import RunState, iso
from turret.service.settings import read_settings
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.manifest import Manifest, read_manifest

START, DAY = 1_700_000_000, 86_400
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


def state(settings: RetrainSettings, until: int = NOW) -> RunState:
    before = size_of(open_data(settings))
    moment = {"run": "r1", "started": iso(NOW), "until": until}
    return RunState.model_validate({**moment, "before": before, "data_changed": False, "step": "gather"})


def test_later_events_are_added_once_and_their_dump_is_deleted(settings: RetrainSettings) -> None:
    store(settings, [*LOG[:3], *LATER])
    before = state(settings)
    for _ in range(2):
        gather(settings, before, [])
        data = open_data(settings)
        assert len(data.event_items) == len(LOG) + len(LATER)
        assert not list(settings.work.glob("*.parquet"))
    assert data.users.row("cid") is not None


def test_an_empty_store_changes_nothing(settings: RetrainSettings) -> None:
    store(settings, [("old", "i1", START - 9 * DAY)])
    fingerprint = open_data(settings).fingerprint
    gather(settings, state(settings), [])
    assert open_data(settings).fingerprint == fingerprint


def test_late_events_are_read_for_some_days(settings: RetrainSettings) -> None:
    """The newest event of the data is on day 4."""
    store(settings, [("ann", "i8", START + 2 * DAY)])
    gather(replace(settings, late=1.0), state(settings), [])
    assert len(open_data(settings).event_items) == len(LOG)
    gather(replace(settings, late=2.5), state(settings), [])
    assert len(open_data(settings).event_items) == len(LOG) + 1


def test_a_wrong_future_time_does_not_hide_events(settings: RetrainSettings, tmp_path: Path) -> None:
    """The range begins at the end of the last dump, if the data claims to be newer."""
    append(write(tmp_path / "wrong.csv", [("bob", "i7", START + 9999 * DAY)]), settings.data)
    store(settings, LATER)
    dumped = record("r0", until=iso((START + 5 * DAY) * 1000), after=size(11), new_events=1)
    failed = record("r1", until=iso(NOW), after=size(11), decision="failed")
    gather(settings, state(settings), [dumped, failed])
    assert len(open_data(settings).event_items) == len(LOG) + 1 + len(LATER)


def test_rows_without_a_catalog_entry_are_dropped(tmp_path: Path, settings: RetrainSettings) -> None:
    items = tmp_path / "items.csv"
    items.write_text("item_id,title\n" + "".join(f"i{number},T\n" for number in range(5)))
    config = PrepareConfig(source=tmp_path / "log.csv", items=items)
    prepare(config, settings.data, overwrite=True)
    store(settings, LATER)
    gather(settings, state(settings), [])
    assert len(open_data(settings).event_items) == len(LOG) + 1  # i9 is not in the catalog
    items.write_text(items.read_text() + "i9,New\n")
    gather(replace(settings, items=items, late=9.0), state(settings), [])
    assert len(open_data(settings).event_items) == len(LOG) + 2


def test_data_without_times_is_refused(tmp_path: Path, settings: RetrainSettings) -> None:
    (tmp_path / "plain.csv").write_text("user_id,item_id\na,x\na,y\na,z\n")
    config = PrepareConfig.model_validate(
        {"source": tmp_path / "plain.csv", "columns": {"in_file_order": True}}
    )
    prepare(config, tmp_path / "plain")
    with pytest.raises(ConfigurationError, match="has an order but no times"):
        open_data(replace(settings, data=tmp_path / "plain"))


@pytest.fixture
def live(settings: RetrainSettings, make_contents: Callable[..., BundleContents]) -> Manifest:
    """The manifest of a version that was trained on the data of `settings`."""
    data = open_data(settings)
    contents = replace(
        make_contents(), fingerprints={"data": data.fingerprint}, data_until=data.manifest.time.until
    )
    return read_manifest(publish(settings.bundles, contents))


def test_new_events_are_counted_from_the_last_training(settings: RetrainSettings, live: Manifest) -> None:
    store(settings, LATER)
    before = size_of(open_data(settings))
    assert count_new(open_data(settings), before, [], live) == 0
    assert not is_changed(open_data(settings), [], live)
    gather(settings, state(settings), [])
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
    assert count_predictable(data, iso((START + 2 * DAY) * 1000)) == 2
    assert count_predictable(data, iso((START + 3 * DAY) * 1000)) == 0
    assert count_predictable(data, iso(START * 1000)) == 4
