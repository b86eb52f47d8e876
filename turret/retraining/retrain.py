"""One retraining: its steps in order, each of which can be repeated after a kill."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from turret.activation.live import live_version
from turret.activation.non_inferiority import check_metric
from turret.client import ClientError
from turret.data.configuration import parse_overrides
from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.retraining.deployment import compare, deploy, end_canary, retire, waiting_canary
from turret.retraining.outcome import judge_outcome
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import (
    Retraining,
    append_record,
    choose_mode,
    lineage,
    read_records,
    read_state,
    remove_state,
    report,
    retrain_lock,
)
from turret.retraining.stored_events import add_stored, count_new, open_data, size_of
from turret.service.errors import ServiceError
from turret.service.schemas.fields import show_time
from turret.tower.bundle.publish import reindex
from turret.tower.engines.access import required_url
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineSettings
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import Manifest, read_manifest
from turret.tower.tuning.choice import IndexRequest
from turret.training.batches.batches import target_counts
from turret.training.begin import AUTO, begin_run, settings_of
from turret.training.export.export import export, export_warnings
from turret.training.loop.train import train
from turret.training.run import CHECKPOINT, Run
from turret.training.warm_start import ParentBundle

FLAT = "flat"
# An error such as a full disk may pass; an error that returns this often does not.
_MOST_FAILURES = 3

Step = Callable[[RetrainSettings, Retraining], None]


def retrain(settings: RetrainSettings) -> Retraining:
    """Retrain once, and return the record of the decision, which is also in the file of records.

    An interrupted run is continued at the step in which it ended. An error is recorded before it is raised:
    after one that may pass (a service that can't be reached, a full disk) the next call continues the run,
    after another one it begins anew.

    Raises:
        LockedError: another process retrains in this folder.
        TurretError: as the steps do.
        OSError: a file can't be read or written.
    """
    settings.check()
    check_metric(settings.metric)
    with retrain_lock(settings.work):
        state = _unfinished(settings)
        if state is None:
            now = time.time_ns() // 1_000_000
            state = Retraining(run=_new_name(settings, now), started=show_time(now), step="begin")
        while state.step is not None:
            state = _step(settings, state, state.step)
        state.ended = _now()
        append_record(settings.work, state)
        remove_state(settings.work, state)
        return state


def _unfinished(settings: RetrainSettings) -> Retraining | None:
    """The state of an interrupted run. A recorded run has ended; only the removal of its state is left."""
    state = read_state(settings.work)
    if state is None:
        return None
    if state.run in {record.run for record in read_records(settings.work) if record.decision != "failed"}:
        remove_state(settings.work, state)
        return None
    report(f"run {state.run} was interrupted; it goes on with the step {state.step}")
    return state


def _new_name(settings: RetrainSettings, now: int) -> str:
    """A name from the time to the second, or from a later one if a run or a bundle has that name already."""
    taken = {record.run for record in read_records(settings.work)}
    while (name := f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}") in taken or (
        settings.bundles / name
    ).exists():
        now += 1000
    return name


def _step(settings: RetrainSettings, state: Retraining, name: str) -> Retraining:
    """Make a step, and save its result; after a decision only the last step is left."""
    begun, done = time.monotonic(), state.model_copy()
    try:
        STEPS[name](settings, done)
    except (TurretError, OSError) as error:
        state.seconds += time.monotonic() - begun
        _record_failure(settings, state, error)
        raise
    names = [*STEPS, None]
    done.step = names[names.index(name) + 1]
    if done.decision is not None and done.step is not None:
        done.step = "retire"
    done.seconds = round(done.seconds + time.monotonic() - begun, 3)
    done.save(settings.work)
    return done


def _record_failure(settings: RetrainSettings, state: Retraining, error: TurretError | OSError) -> None:
    """Record an error; it ends the run unless the events are in the data, and the error may pass."""
    passing = isinstance(error, BundleError | EngineError | OSError) and state.failures + 1 < _MOST_FAILURES
    continues = state.after is not None and (isinstance(error, ServiceError | ClientError) or passing)
    failed = state.model_copy(update={"ended": _now()})
    failed.decide("failed", str(error), status=1)
    if state.step == "gather":
        try:
            failed.after = size_of(open_data(settings))  # the step may have changed the data
        except TurretError as damaged:
            report(str(damaged))
    try:
        append_record(settings.work, failed)
        if continues:
            state.model_copy(update={"failures": state.failures + 1}).save(settings.work)
        else:
            remove_state(settings.work, state)
    except OSError as full:
        report(f"{settings.work}: the failure can't be recorded ({full.strerror})")


def _now() -> str:
    return show_time(time.time_ns() // 1_000_000)


# ---- Events


def live_manifest(settings: RetrainSettings, live: str | None) -> Manifest | None:
    """The manifest of the live version. Raises BundleError where the folder doesn't have it."""
    return None if live is None else read_manifest(version_folder(settings.bundles, live))


def begin(settings: RetrainSettings, state: Retraining) -> None:
    """Look at the data, at the live version and at the settings of a training, before the data changes.

    Raises DataError for data that can't be used, BundleError for a live version that can't be read,
    ConfigurationError for settings that don't fit, ClientError where the service can't be reached,
    EngineError where no address of the live version's vector engine is named.
    """
    data, state.live = open_data(settings), live_version(settings.bundles, settings.url)
    if settings.overrides and settings.experiment != AUTO:  # `auto` tries them with its data
        folder = None if state.live is None else version_folder(settings.bundles, state.live)
        settings_of(settings.experiment, parse_overrides(settings.overrides), folder)
    state.before = size_of(data)
    manifest = live_manifest(settings, state.live)
    if manifest is not None and isinstance(manifest.index, EngineSettings):
        required_url(manifest.index.engine)
    state.data_changed = is_changed(data, read_records(settings.work), manifest)
    report(f"run {state.run}: the live version is {state.live}" if state.live else f"run {state.run}")


def is_changed(data: PreparedData, records: Sequence[Retraining], live: Manifest | None) -> bool:
    """Whether another command has written the data since the last run and since the live version."""
    known = [record.after.fingerprint for record in records if record.after is not None][-1:]
    known += [live.fingerprints.get("data", "")] if live else []
    return bool(known) and data.fingerprint not in known


def gather(settings: RetrainSettings, state: Retraining) -> None:
    """Count the stored events that no training has used, and add them to the data if they are trained on.

    Without a training the data stays as it is, so that a run that was trained on it can still be evaluated.
    A canary that waits is judged on the new events, before it is known whether they are trained on.
    """
    records = read_records(settings.work)

    def accept(data: PreparedData) -> bool:
        _judge_events(settings, state, data, records)
        is_judged = waiting_canary(records) is None or state.canary is not None
        if state.decision is None and is_judged:
            _choose(settings, state, data)
        return state.decision is None

    lost = add_stored(settings, state, records, accept)
    data = open_data(settings)
    if state.new_events is None:  # nothing was stored
        accept(data)
    state.after = size_of(data)
    if state.decision is not None:
        state.decide(state.decision, f"{state.message} {lost}".strip(), status=int(bool(lost)))


def _judge_events(
    settings: RetrainSettings, state: Retraining, data: PreparedData, records: Sequence[Retraining]
) -> None:
    """Count the events of `data` that no training has used; the decision is set if they are too few."""
    assert state.before is not None, "the first step sets it"
    new = max(0, count_new(data, state.before, records, live_manifest(settings, state.live)))
    state.after, state.new_events = size_of(data), new
    if state.live is not None and not state.data_changed and new < settings.at_least:
        needed = f"; --at-least {settings.at_least:,} are needed" if new else ""
        count = counted(new, "new event") if new else "No new events"
        state.decide("nothing_new", f"{count} since the last training{needed}: nothing is trained.")


# ---- Training


def choose(settings: RetrainSettings, state: Retraining) -> None:
    """Choose between a warm start and a training anew, unless it was chosen when the events were added."""
    if state.mode is None:
        _choose(settings, state, open_data(settings))


def _choose(settings: RetrainSettings, state: Retraining, data: PreparedData) -> None:
    """Set the mode of a training on `data`; the decision is set if a warm start can't learn from it."""
    assert state.before is not None, "the first step sets it"
    assert state.after is not None, "the second step sets it"
    warm_starts, full = lineage(read_records(settings.work), state.live)
    full = full or state.before
    new_events = max(0.0, 1.0 - full.events / state.after.events)
    new_items = max(0.0, 1.0 - full.items / state.after.items)
    mode, reason = choose_mode(settings, state, warm_starts, new_events, new_items)
    report(f"{mode}: {reason}")
    if mode == "warm":
        live = live_manifest(settings, state.live)
        until = live.data_until if live else None
        if until is not None and not count_predictable(data, until):
            message = (
                f"{counted(state.new_events or 0, 'new event')}, but none has an earlier one of its user in "
                "the training part of the data: nothing is trained."
            )
            state.decide("nothing_new", message)
            return
        state.origin = state.live
    state.mode, state.reason = mode, reason


def count_predictable(data: PreparedData, since: str) -> int:
    """The number of training examples of a warm start: training targets from `since` on with a history."""
    return int(target_counts(data, start_time=since).sum())


def train_run(settings: RetrainSettings, state: Retraining) -> None:
    """Train the run of `state`, or continue it from its checkpoint. Raises TrainingError, BundleError."""
    folder = settings.runs / state.run
    resume = (folder / CHECKPOINT).is_file()
    values = parse_overrides(settings.overrides or ())
    if resume:
        run, data = begin_run(folder, settings.data, resume=True)
    elif state.live is None or (state.origin is None and settings.experiment is not None):
        run, data = begin_run(
            folder, settings.data, settings.experiment, values, overwrite=True, report=report
        )
    else:
        live = ParentBundle.open(version_folder(settings.bundles, state.origin or state.live))
        if state.origin is not None and live.data_until is not None:
            values = {"training.since": live.data_until, **values}
        origin = None if state.origin is None else live.folder
        run, data = begin_run(folder, settings.data, live.experiment(values), origin=origin)
    train(run, data, resume=resume, overwrite=not resume, report=report)


def evaluate_run(settings: RetrainSettings, state: Retraining) -> None:
    """Evaluate the run on the test part; the report goes into its folder and its bundle."""
    run = Run.read(settings.runs / state.run)
    run.evaluate(run.open_data(settings.data), "test")


def publish_run(settings: RetrainSettings, state: Retraining) -> None:
    """Publish the run as a bundle, with an index as the live version has it, and set the version.

    A version that exists was published before a kill. Where an index in the process misses its recall, the
    version keeps exact search; if the live version is on a vector engine, the new one has to be, too.
    Raises BundleError, EngineError.
    """
    state.version = state.run
    folder = settings.bundles / state.run
    if not folder.is_dir():
        run = Run.read(settings.runs / state.run)
        data = run.open_data(settings.data)
        export(run, data, settings.bundles, state.run)
        for warning in export_warnings(run, data):
            report(warning)
    manifest = live_manifest(settings, state.live)
    request = _index_request(manifest)
    if request.kind == FLAT:
        return
    indexed = f"{state.run}-{request.kind}"
    try:
        if not (settings.bundles / indexed).is_dir():
            if manifest is not None and isinstance(manifest.index, EngineSettings):
                url = required_url(manifest.index.engine)
                publish_to_engine(folder, url, request.recall, indexed, report)
            else:
                reindex(folder, request, indexed, report)
        state.version = indexed
    except BundleError as error:
        if error.reason != "recall" or (manifest is not None and manifest.index.is_remote):
            raise
        report(f"{error}; {state.run} keeps exact search")


def _index_request(manifest: Manifest | None) -> IndexRequest:
    """The request for the index of the live version, which applies to the next one too."""
    if manifest is None:
        return IndexRequest(FLAT)
    choice = manifest.index_choice
    if choice is None:
        return IndexRequest(FLAT if manifest.index.is_exact else manifest.index.kind)
    return IndexRequest(choice.asked, choice.recall)


STEPS: dict[str, Step] = {
    "begin": begin,
    "outcome": judge_outcome,
    "gather": gather,
    "canary": end_canary,
    "choose": choose,
    "train": train_run,
    "evaluate": evaluate_run,
    "publish": publish_run,
    "compare": compare,
    "deploy": deploy,
    "retire": retire,
}
