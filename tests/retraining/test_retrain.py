"""A retraining activates, refuses, fails and is killed; events are neither lost nor doubled."""

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.retraining import retrain as module
from turret.retraining.lock import LockedError, retrain_lock
from turret.retraining.record import RECORDS, read_records
from turret.retraining.retrain import retrain
from turret.retraining.rule import RuleSettings
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import STATE, RunState
from turret.retraining.steps import STEPS, Context, Step
from turret.service.errors import ServiceError
from turret.tower.format.listing import versions
from turret.tower.format.manifest import read_manifest
from turret.tower.format.pointer import current, point

pytestmark = pytest.mark.nightly

UNTRAINED = ("training.learning_rate=1e-9",)


def count(settings: RetrainSettings) -> int:
    return len(PreparedData.open(settings.data).event_items)


def left_behind(settings: RetrainSettings) -> set[str]:
    """Files of a retraining run, beside the records and the runs."""
    return {path.name for path in settings.work.iterdir()} - {RECORDS, "runs"}


def test_new_events_become_the_live_version_and_no_new_ones_change_nothing(shop: RetrainSettings) -> None:
    before = count(shop)
    first = retrain(shop)
    assert (first.decision, first.status, first.mode, first.live) == ("activated", 0, "warm", "first")
    assert first.new_events == count(shop) - before > 100
    assert current(shop.bundles) == first.version
    manifest = read_manifest(shop.bundles / str(first.version))
    assert manifest.fingerprints["origin"] == "first"
    assert manifest.metrics["test"]["towers"]["ndcg@10"]["mean"] > 0
    assert first.figures is not None
    assert first.figures.users >= 30
    second = retrain(shop)
    assert (second.decision, second.status, second.new_events) == ("nothing_new", 0, 0)
    assert second.message == "No new events since the last training: nothing is trained."
    assert current(shop.bundles) == first.version
    assert read_records(shop.work) == [first, second]
    assert left_behind(shop) == set()


def test_a_worse_version_is_refused_and_the_same_events_are_not_trained_on_again(
    shop: RetrainSettings,
) -> None:
    anew = replace(shop, margin=0.1, overrides=(*shop.overrides, *UNTRAINED), rule=RuleSettings(asked="anew"))
    refused = retrain(anew)
    assert (refused.decision, refused.status) == ("refused", 3)
    assert refused.figures is not None
    assert refused.figures.high < 0
    assert " is worse than first: ndcg@10 is " in refused.message
    assert current(shop.bundles) == "first"
    assert retrain(anew).decision == "nothing_new"


def test_too_few_users_activate_nothing(shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turret.activation.not_worse.LEAST_USERS", 1000)
    unclear = retrain(shop)
    assert (unclear.decision, unclear.status) == ("unclear", 4)
    assert current(shop.bundles) == "first"


def test_the_gate_refuses_a_version_that_answers_too_differently(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURRET_OVERLAP_MINIMUM", "1")
    refused = retrain(replace(shop, overrides=("training.seed=2",), rule=RuleSettings(asked="anew")))
    assert (refused.decision, refused.status) == ("refused", 1)
    assert "in common with those of version first" in refused.message


def test_a_shop_without_a_live_version_trains_the_experiment_and_goes_live(shop: RetrainSettings) -> None:
    for name in ("first", "current"):
        path = shop.bundles / name
        path.rename(path.parent.parent / f"old-{name}")
    record = retrain(replace(shop, experiment="demo"))
    assert (record.decision, record.mode, record.reason) == ("activated", "anew", "no version is live")
    assert (record.live, record.figures) == (None, None)
    assert current(shop.bundles) == record.version


def test_few_events_wait_for_more(shop: RetrainSettings) -> None:
    waiting = retrain(replace(shop, at_least=100_000))
    assert waiting.decision == "nothing_new"
    assert waiting.message.endswith("--at-least 100,000 are needed: nothing is trained.")
    trained = retrain(shop)
    assert (trained.decision, trained.new_events) == ("activated", waiting.new_events)


def test_an_empty_store_is_no_error(without_store: RetrainSettings) -> None:
    assert retrain(without_store).decision == "nothing_new"


@pytest.mark.fault(72)
def test_a_second_call_at_once_is_refused_without_a_record(shop: RetrainSettings) -> None:
    with retrain_lock(shop.work), pytest.raises(LockedError, match="is running in"):
        retrain(shop)
    assert read_records(shop.work) == []


def test_only_the_newest_versions_and_the_live_and_previous_one_stay(shop: RetrainSettings) -> None:
    made = [retrain(shop).version]
    for part in range(3):
        retrained = replace(shop, keep=1, at_least=0, rule=RuleSettings(asked="anew"))
        record = retrain(retrained)
        made.append(record.version)
        assert record.decision == "activated", part
        deleted = record.deleted
    names = {summary.version for summary in versions(shop.bundles)}
    assert names == {"first", made[-1], made[-2]}
    assert deleted == (made[1],)
    assert {path.name for path in shop.runs.iterdir()} == {made[-1], made[-2]}


class Killed(BaseException):
    """Ends a run as SIGKILL does: no error is recorded."""


class Killing:
    """Ends each step twice, before it begins and before its result is saved; later calls pass."""

    def __init__(self) -> None:
        self.killed: list[str] = []

    def __call__(self, name: str, step: Step) -> Step:
        def dying(context: Context, state: RunState) -> RunState:
            self._die(f"before {name}")
            result = step(context, state)
            self._die(f"after {name}")
            return result

        return dying

    def _die(self, moment: str) -> None:
        if moment not in self.killed:
            self.killed.append(moment)
            raise Killed


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Killing:
    killer = Killing()
    for name, step in list(STEPS.items()):
        monkeypatch.setitem(STEPS, name, killer(name, step))
    return killer


def until_done(settings: RetrainSettings, times: int = 30) -> int:
    """Retrain until a call ends by itself; return how many were killed."""
    for number in range(times):
        try:
            retrain(settings)
        except Killed:
            continue
        return number
    raise AssertionError("it never ended")


def test_a_run_that_is_killed_around_every_step_ends_as_one_that_is_not(
    shop: RetrainSettings, tmp_path: Path, killing: Killing, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert until_done(shop) == len(killing.killed) == 2 * len(STEPS)
    (record,) = read_records(shop.work)
    assert (record.decision, record.live, record.mode) == ("activated", "first", "warm")
    assert left_behind(shop) == set()
    assert record.after is not None
    assert record.before is not None
    assert record.new_events == record.after.events - record.before.events

    killing.killed = [f"{when} {name}" for name in STEPS for when in ("before", "after")]
    point(shop.bundles, "first")
    (shop.work / RECORDS).unlink()
    other = tmp_path / "again"
    plain = replace(shop, data=other / "prepared", work=other / "retrain")
    restore_data(shop, plain, tmp_path)
    again = retrain(plain)
    assert again.after == record.after
    models = [load_file(shop.bundles / str(one.version) / "model.safetensors") for one in (record, again)]
    assert models[0].keys() == models[1].keys()
    assert all((models[0][name] == models[1][name]).all() for name in models[0])


def restore_data(shop: RetrainSettings, plain: RetrainSettings, tmp_path: Path) -> None:
    """Prepare the early events once more, as the killed run has added to its copy."""
    from turret.data.preparing.prepare import prepare
    from turret.data.reading.schema import PrepareConfig

    prepare(PrepareConfig(source=tmp_path / "shop" / "early.csv"), plain.data)


def test_a_kill_between_the_record_and_the_removal_of_the_state_records_once(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(work: Path, state: RunState) -> None:
        raise Killed

    with monkeypatch.context() as context:
        context.setattr(module, "remove_state", kill)
        with pytest.raises(Killed):
            retrain(shop)
    assert (shop.work / STATE).exists()
    assert retrain(shop).decision == "nothing_new"
    assert [record.decision for record in read_records(shop.work)] == ["activated", "nothing_new"]


def failing(name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(context: Context, state: RunState) -> RunState:
        raise error

    monkeypatch.setitem(STEPS, name, fail)


def test_an_unreachable_service_is_recorded_and_the_next_call_goes_on(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        failing("deploy", ServiceError("no service answers there"), context)
        with pytest.raises(ServiceError):
            retrain(shop)
    (failed,) = read_records(shop.work)
    assert (failed.decision, failed.step, failed.status) == ("failed", "deploy", 1)
    monkeypatch.setitem(STEPS, "train", lambda context, state: pytest.fail("it is trained already"))
    activated = retrain(shop)
    assert (activated.decision, activated.run) == ("activated", failed.run)
    assert left_behind(shop) == set()


def test_a_failed_training_begins_anew_and_loses_no_event(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        failing("train", TurretError("it diverged"), context)
        with pytest.raises(TurretError):
            retrain(shop)
    (failed,) = read_records(shop.work)
    assert left_behind(shop) == set()
    activated = retrain(shop)
    assert activated.decision == "activated"
    assert activated.run != failed.run
    assert activated.new_events == failed.new_events


def test_a_full_disk_is_tried_again_some_times(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing("evaluate", OSError(28, "No space left on device", "x"), monkeypatch)
    for _ in range(4):
        with pytest.raises(OSError, match="No space left"):
            retrain(shop)
    runs = [record.run for record in read_records(shop.work)]
    assert len(set(runs[:3])) == 1
    assert runs[3] != runs[2]


def test_an_error_before_the_first_step_is_recorded(shop: RetrainSettings) -> None:
    with pytest.raises(TurretError, match="is not prepared data"):
        retrain(dataclasses.replace(shop, data=shop.work))
    (failed,) = read_records(shop.work)
    assert (failed.decision, failed.step) == ("failed", "begin")


def test_a_folder_that_can_not_be_deleted_costs_no_decision(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: object) -> None:
        raise PermissionError(13, "Permission denied", "bundles")

    monkeypatch.setattr("turret.retraining.steps.delete_retired", refuse)
    monkeypatch.setattr("turret.retraining.steps.choose_retired", lambda *words: ("first",))
    record = retrain(shop)
    assert (record.decision, record.status, record.deleted) == ("activated", 0, ())
