"""`turret retrain` activates, refuses, fails and is killed; events are neither lost nor doubled.

A stub stands for the training: it publishes a version that knows the tastes of the users up to some noise.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import turret.cli
from tests.support.trained import trained_shop
from tests.turret.conftest import DAY, START, record, taste_contents, taste_log
from tests.turret.test_retraining_decisions import Service, outcomes
from turret.data.errors import ConfigurationError, TurretError
from turret.data.prepared import PreparedData
from turret.retraining import retrain as retrain_module
from turret.retraining.retrain import STEPS, Step, publish_run, retrain, train_run
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import RECORDS, STATE, LockedError, Retraining, read_records, retrain_lock
from turret.service.errors import ServiceError
from turret.tower.bundle.publish import publish, reindex
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.format.listing import current, point
from turret.tower.format.manifest import IndexChoice, read_manifest, write_manifest
from turret.tower.tuning.choice import IndexRequest
from turret.training.run import Run

USERS = 120


@dataclass
class Training:
    """Stands for the steps `train`, `evaluate` and `publish`; the next versions have this noise."""

    noise: float = 0.1
    begun: list[Retraining] = field(default_factory=list)

    def train(self, settings: RetrainSettings, state: Retraining) -> None:
        self.begun.append(state)
        (settings.runs / state.run).mkdir(parents=True, exist_ok=True)

    def evaluate(self, settings: RetrainSettings, state: Retraining) -> None:
        pass

    def publish(self, settings: RetrainSettings, state: Retraining) -> None:
        if not (settings.bundles / state.run).exists():  # else a run that was killed has published it
            data = PreparedData.open(settings.data)
            publish(settings.bundles, taste_contents(state.run, data, self.noise))
        state.version = state.run


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Training:
    made = Training()
    for name in ("train", "evaluate", "publish"):
        monkeypatch.setitem(STEPS, name, getattr(made, name))
    return made


@pytest.fixture(scope="module")
def stored_tastes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`prepared` has the first three days of each user, `history.sqlite` three more: one is for training."""
    folder = tmp_path_factory.mktemp("tastes")
    head, *rows = taste_log(USERS, days=6).splitlines()
    is_late = [int(row.rpartition(",")[2]) >= START + 3 * DAY for row in rows]
    for name, late in (("early.csv", False), ("later.csv", True)):
        chosen = [row for row, is_row_late in zip(rows, is_late, strict=True) if is_row_late == late]
        (folder / name).write_text("\n".join([head, *chosen]) + "\n")
    turret.prepare(folder / "early.csv", folder / "prepared")
    turret.load_histories(folder / "later.csv", f"sqlite:///{folder}/history.sqlite")
    return folder


@pytest.fixture
def shop(stored_tastes: Path, tmp_path: Path, stub: Training) -> RetrainSettings:
    """The settings of a retraining in a copy, where a version `first` of medium quality is live."""
    folder = shutil.copytree(stored_tastes, tmp_path / "shop")
    publish(folder / "bundles", taste_contents("first", PreparedData.open(folder / "prepared"), noise=0.6))
    return RetrainSettings(
        data=folder / "prepared",
        bundles=folder / "bundles",
        work=folder / "retrain",
        store=f"sqlite:///{folder}/history.sqlite",
        anew_share=0.6,
    )


def events_of(settings: RetrainSettings) -> int:
    return len(PreparedData.open(settings.data).event_items)


def left_behind(settings: RetrainSettings) -> set[str]:
    """Files of a retraining run, beside the records and the runs."""
    return {path.name for path in settings.work.iterdir()} - {RECORDS, "runs"}


def command(shop: RetrainSettings, *words: str) -> Result:
    places = {"--data": shop.data, "--bundles": shop.bundles, "--work": shop.work, "--store": shop.store}
    given = [str(word) for place in places.items() for word in place]
    return CliRunner().invoke(turret.cli.app, ["retrain", *given, *words])


def test_new_events_become_the_live_version_and_no_new_ones_change_nothing(
    shop: RetrainSettings, stub: Training
) -> None:
    before = events_of(shop)
    first = retrain(shop)
    assert (first.decision, first.status, first.mode, first.live) == ("activated", 0, "warm", "first")
    assert first.new_events == events_of(shop) - before == 3 * USERS
    assert current(shop.bundles) == first.version
    assert [state.origin for state in stub.begun] == ["first"]
    assert first.figures is not None
    assert (first.figures.users, first.figures.low > 0) == (USERS, True)
    second = retrain(shop)
    assert (second.decision, second.status, second.new_events) == ("nothing_new", 0, 0)
    assert second.message == "No new events since the last training: nothing is trained."
    assert current(shop.bundles) == first.version
    assert read_records(shop.work) == [first, second]
    assert left_behind(shop) == set()


def test_the_command_prints_the_decision_and_its_status_is_that_of_activate(
    shop: RetrainSettings, stub: Training
) -> None:
    stub.noise = 3.0
    refused = command(shop, "--mode", "anew")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert " is worse than first: ndcg@10 is " in refused.stderr
    assert current(shop.bundles) == "first"
    nothing = command(shop)
    assert nothing.exit_code == 0
    assert nothing.stdout == "nothing_new: No new events since the last training: nothing is trained.\n"
    listed = json.loads(command(shop, "--history", "--json").stdout)
    assert [one["decision"] for one in listed] == ["refused", "nothing_new"]
    assert listed[0]["version"] in command(shop, "--history").stdout
    assert listed[0]["figures"]["high"] < 0
    (shop.work / RECORDS).unlink()
    stub.noise = 0.1
    activated = command(shop, "--json")
    assert activated.exit_code == 0
    shown = json.loads(activated.stdout)
    told = shown["decision"], shown["mode"], shown["version"]
    assert told == ("activated", "anew", current(shop.bundles))


def test_a_canary_waits_for_its_outcomes_however_often_the_command_runs(
    shop: RetrainSettings, stub: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a status of its own, and without a training; then it is live, and the run goes on."""
    service = Service()
    service.live = "first"
    monkeypatch.setattr("turret.activation.live.admin_client", lambda *_: nullcontext(service))
    words = ("--url", "http://admin", "--canary", "0.25", "--promote-on-outcome", "buy")
    first = command(shop, *words)
    assert first.exit_code == 0
    assert "is the canary for 25.0% of the users; outcomes decide on it." in first.stdout
    assert service.canary is not None
    version, size = service.canary.version, events_of(shop)
    service.answer = outcomes(0.01, False, canary=version, live="first")
    for _ in range(2):
        waiting = command(shop, *words)
        assert (waiting.exit_code, waiting.stdout) == (5, "")
        stays = f"The canary {version} stays, and nothing is trained: not yet: about 9 more days."
        assert stays in waiting.stderr
    assert (len(stub.begun), events_of(shop), left_behind(shop)) == (1, size, set())
    service.answer = outcomes(0.2, True, canary=version, live="first")
    settings = replace(shop, at_least=0, mode="anew", url="http://admin", canary=0.25)
    stub.noise = 0.05
    after = retrain(replace(settings, promote_on_outcome="buy"))
    assert service.live == version
    assert after.canary is not None
    assert (after.canary.version, after.canary.decision, after.live) == (version, "promoted", version)
    assert (after.mode, after.decision, len(stub.begun)) == ("anew", "canary", 2)
    decisions = [each.decision for each in read_records(shop.work)]
    assert decisions == ["canary", "waiting", "waiting", "canary"]


def test_too_few_users_activate_nothing_and_a_later_run_deletes_their_version(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr("turret.activation.non_inferiority.LEAST_USERS", 1000)
        unclear = retrain(shop)
    assert (unclear.decision, unclear.status) == ("unclear", 4)
    assert current(shop.bundles) == "first"
    later = retrain(replace(shop, at_least=0, keep=1))
    assert (later.decision, later.deleted) == ("activated", (unclear.version,))


def test_the_gate_refuses_a_version_that_answers_too_differently(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURRET_OVERLAP_MINIMUM", "1")
    refused = retrain(shop)
    assert (refused.decision, refused.status) == ("refused", 1)
    assert "in common with those of version first" in refused.message


def test_a_shop_without_a_live_version_trains_anew_and_goes_live(shop: RetrainSettings) -> None:
    (shop.bundles / "current").unlink()
    record = retrain(shop)
    assert (record.decision, record.mode, record.reason) == ("activated", "anew", "no version is live")
    assert (record.live, record.figures) == (None, None)
    assert current(shop.bundles) == record.version


def test_few_events_wait_for_more(shop: RetrainSettings) -> None:
    """And the data waits with them, as it belongs to the runs that were trained on it."""
    before = PreparedData.open(shop.data).fingerprint
    waiting = retrain(replace(shop, at_least=100_000))
    assert waiting.decision == "nothing_new"
    assert PreparedData.open(shop.data).fingerprint == before
    assert (waiting.before, waiting.new_events) == (waiting.after, 3 * USERS)
    assert waiting.message.endswith("--at-least 100,000 are needed: nothing is trained.")
    trained = retrain(shop)
    assert (trained.decision, trained.new_events) == ("activated", waiting.new_events)


def test_settings_that_do_not_fit_leave_the_data_as_it_is(shop: RetrainSettings) -> None:
    before = PreparedData.open(shop.data).fingerprint
    (shop.bundles / "current").unlink()
    with pytest.raises(ConfigurationError, match="nonsense"):
        retrain(replace(shop, overrides=["training.nonsense=3"]))
    assert PreparedData.open(shop.data).fingerprint == before


def test_events_that_no_warm_start_can_learn_from_leave_the_data_as_it_is(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = events_of(shop)
    with monkeypatch.context() as context:
        context.setattr(retrain_module, "count_predictable", lambda *_: 0)
        quiet = retrain(shop)
    assert (quiet.decision, quiet.new_events, events_of(shop)) == ("nothing_new", 3 * USERS, before)
    assert retrain(shop).new_events == events_of(shop) - before == 3 * USERS


def test_a_night_whose_events_are_all_lost_is_no_quiet_one(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert retrain(shop).decision == "activated"
    lost = "3 stored events can't be used: missing kind (3)."
    monkeypatch.setattr(retrain_module, "add_stored", lambda *_: lost)
    second = retrain(shop)
    assert (second.decision, second.status) == ("nothing_new", 1)
    assert second.message.endswith(lost)


@pytest.mark.fault(72)
def test_a_second_call_at_once_is_refused_without_a_record(shop: RetrainSettings) -> None:
    with retrain_lock(shop.work), pytest.raises(LockedError, match="is running in"):
        retrain(shop)
    assert read_records(shop.work) == []


class Killed(BaseException):
    """Ends a run as SIGKILL does: no error is recorded."""


def killed_twice(step: Step) -> Step:
    """End a step before it begins and before its result is saved; later calls pass."""
    calls = count(1)

    def dying(settings: RetrainSettings, state: Retraining) -> None:
        if (number := next(calls)) > 1:
            step(settings, state)
        if number < 3:
            raise Killed

    return dying


@pytest.mark.fault(72)
def test_a_run_that_is_killed_around_every_step_ends_as_one_that_is_not(
    shop: RetrainSettings, stub: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = events_of(shop)
    for name, step in list(STEPS.items()):
        monkeypatch.setitem(STEPS, name, killed_twice(step))
    for _ in range(2 * len(STEPS)):
        with pytest.raises(Killed):
            retrain(shop)
    record = retrain(shop)
    assert read_records(shop.work) == [record]
    assert (record.decision, record.live, record.mode) == ("activated", "first", "warm")
    assert record.new_events == events_of(shop) - before == 3 * USERS
    assert {state.run for state in stub.begun} == {record.run}
    assert left_behind(shop) == set()


def test_a_kill_between_the_record_and_the_removal_of_the_state_records_once(
    shop: RetrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(work: Path, state: Retraining) -> None:
        raise Killed

    with monkeypatch.context() as context:
        context.setattr(retrain_module, "remove_state", kill)
        with pytest.raises(Killed):
            retrain(shop)
    assert (shop.work / STATE).exists()
    assert retrain(shop).decision == "nothing_new"
    assert [record.decision for record in read_records(shop.work)] == ["activated", "nothing_new"]


@contextmanager
def failing(name: str, error: Exception) -> Iterator[None]:
    """A step raises this error, which ends the block."""

    def fail(settings: RetrainSettings, state: Retraining) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STEPS, name, fail)
        with pytest.raises(type(error)):
            yield


def test_an_unreachable_service_is_recorded_and_the_next_call_goes_on(
    shop: RetrainSettings, stub: Training
) -> None:
    with failing("deploy", ServiceError("no service answers there")):
        retrain(shop)
    (failed,) = read_records(shop.work)
    assert (failed.decision, failed.step, failed.status) == ("failed", "deploy", 1)
    activated = retrain(shop)
    assert (activated.decision, activated.run) == ("activated", failed.run)
    assert len(stub.begun) == 1
    assert left_behind(shop) == set()


def test_a_failed_training_begins_anew_and_loses_no_event(shop: RetrainSettings) -> None:
    with failing("train", TurretError("it diverged")):
        retrain(shop)
    (failed,) = read_records(shop.work)
    assert left_behind(shop) == set()
    activated = retrain(shop)
    assert activated.decision == "activated"
    assert activated.run != failed.run
    assert activated.new_events == failed.new_events


def test_a_full_disk_is_tried_again_some_times(shop: RetrainSettings) -> None:
    for _ in range(4):
        with failing("evaluate", OSError(28, "No space left on device", "x")):
            retrain(shop)
    runs = [record.run for record in read_records(shop.work)]
    assert len(set(runs[:3])) == 1
    assert runs[3] != runs[2]


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Run, bool]]:
    """The run that is begun where version `ids` of the shared shop is live, and whether it is resumed."""
    calls: list[tuple[Run, bool]] = []
    made = trained_shop()
    shop = RetrainSettings(data=made.folder / "prepared", bundles=made.bundles, work=tmp_path)

    def begin(run: Run, data: PreparedData, resume: bool = False, **options: object) -> None:
        calls.append((run, resume))

    def train(state: Retraining, *overrides: str, experiment: str | None = None) -> tuple[Run, bool]:
        train_run(replace(shop, experiment=experiment, overrides=[*overrides]), state)
        return calls.pop()

    monkeypatch.setattr(retrain_module, "train", begin)
    return train


WARM, ANEW = record("r1", mode="warm", live="ids", origin="ids"), record("r1", mode="anew", live="ids")


def test_a_warm_start_predicts_the_events_that_are_new_to_the_live_version(
    trained: Callable[..., tuple[Run, bool]],
) -> None:
    run, _ = trained(WARM)
    live = trained_shop().bundles / "ids"
    assert run.experiment.training.since == read_manifest(live).data_until
    assert run.origin == live.resolve()
    run, _ = trained(WARM, "training.since=2020-01-01")
    assert run.experiment.training.since == "2020-01-01"


def test_a_training_anew_has_the_settings_of_the_live_version_or_of_an_experiment(
    trained: Callable[..., tuple[Run, bool]],
) -> None:
    run, _ = trained(ANEW)
    settings = run.experiment
    assert (run.origin, settings.tower.dimension, settings.training.since) == (None, 32, None)
    run, _ = trained(ANEW, "tower.dimension=4", experiment="demo")
    assert run.experiment.tower.dimension == 4


def test_a_training_that_was_killed_goes_on(trained: Callable[..., tuple[Run, bool]], tmp_path: Path) -> None:
    shutil.copytree(trained_shop().folder / "ids", tmp_path / "runs" / "r1")
    _, is_resumed = trained(ANEW)
    assert is_resumed


@pytest.fixture
def exported(shop: RetrainSettings, stub: Training) -> Retraining:
    """A run that was exported, where a version with an approximate index is live."""
    reindex(shop.bundles / "first", IndexRequest("ivf", 0.97), "fast")
    point(shop.bundles, "fast")
    state = record("r1", live="fast")
    stub.publish(shop, state)
    return state


def test_the_successor_of_an_approximate_index_has_one_too(
    shop: RetrainSettings, exported: Retraining
) -> None:
    for _ in range(2):  # as after a kill
        publish_run(shop, exported)
        assert exported.version == "r1-ivf"
    manifest = read_manifest(shop.bundles / "r1-ivf")
    assert manifest.index.kind == "ivf"
    assert manifest.index_choice is not None
    assert manifest.index_choice.recall == 0.97


def test_an_index_that_misses_its_recall_leaves_exact_search(
    shop: RetrainSettings, exported: Retraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    def miss(*words: object) -> Path:
        raise BundleError("the recall of ivf is 0.9", "recall")

    monkeypatch.setattr(retrain_module, "reindex", miss)
    publish_run(shop, exported)
    assert exported.version == "r1"


@pytest.mark.parametrize("reason", ["soundness", "unknown"])
def test_another_error_of_the_index_is_an_error_of_the_run(
    shop: RetrainSettings, exported: Retraining, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def fail(*words: object) -> Path:
        raise BundleError("no room", reason)

    monkeypatch.setattr(retrain_module, "reindex", fail)
    with pytest.raises(BundleError, match="no room"):
        publish_run(shop, exported)


@pytest.fixture
def on_engine(shop: RetrainSettings, stub: Training, monkeypatch: pytest.MonkeyPatch) -> Retraining:
    """A run that was exported, where a version on a vector engine is live."""
    folder = shop.bundles / "engine"
    shutil.copytree(shop.bundles / "first", folder)
    folder.chmod(0o755)
    manifest = read_manifest(folder)
    index = EngineSettings(
        engine="redis",
        collection="turret_items",
        efforts=(EngineEffort(rows=manifest.item_count, k=10, breadth=10, recall=1.0),),
    )
    choice = IndexChoice(asked="redis", recall=0.97)
    for name in ("manifest.json", "manifest.sha256"):
        (folder / name).chmod(0o644)
        (folder / name).unlink()
    changes = {"version": "engine", "index": index, "index_choice": choice}
    write_manifest(folder, manifest.model_copy(update=changes))
    point(shop.bundles, "engine")
    monkeypatch.setenv("TURRET_ENGINE", "redis://engine:6379")
    state = record("r1", live="engine")
    stub.publish(shop, state)
    return state


def test_the_successor_of_a_version_on_an_engine_is_there_too(
    shop: RetrainSettings, on_engine: Retraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the recall of the live version; an error of the engine ends the run, and no version goes live."""
    asked: list[tuple[Any, ...]] = []

    def fail(folder: Path, url: str, recall: float, version: str, report: object) -> Path:
        asked.append((folder, url, recall, version))
        if len(asked) == 1:
            raise EngineError("the engine is full")
        if len(asked) == 2:
            raise BundleError("it misses the recall", "recall")
        return folder

    monkeypatch.setattr(retrain_module, "publish_to_engine", fail)
    with pytest.raises(EngineError, match="the engine is full"):
        publish_run(shop, on_engine)
    with pytest.raises(BundleError, match="it misses the recall"):
        publish_run(shop, on_engine)
    publish_run(shop, on_engine)
    assert asked == [(shop.bundles / "r1", "redis://engine:6379", 0.97, "r1-redis")] * 3
    assert on_engine.version == "r1-redis"


def test_a_run_without_the_address_of_the_engine_ends_before_it_trains(
    shop: RetrainSettings, on_engine: Retraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURRET_ENGINE")
    with pytest.raises(EngineError, match="no address of one is named; set TURRET_ENGINE"):
        STEPS["begin"](shop, record("r2"))
