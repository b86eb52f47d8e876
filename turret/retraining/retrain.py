"""One retraining: its steps in order, each of which can be repeated after a kill."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from turret.activation.live import live_version
from turret.client import ClientError
from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.retraining.deployment import compare, deploy, judge_canary, retire, waiting_canary
from turret.retraining.events import (
    count_new,
    count_predictable,
    gather,
    is_changed,
    live_manifest,
    open_data,
    size_of,
)
from turret.retraining.record import (
    DataSize,
    Retraining,
    append_record,
    lineage,
    read_records,
    read_state,
    remove_state,
    report,
    retrain_lock,
)
from turret.retraining.settings import RetrainSettings, Situation, choose_mode
from turret.retraining.training import evaluate_run, publish_run, train_run
from turret.service.errors import ServiceError
from turret.service.schemas.fields import show_time
from turret.tower.errors import BundleError

Step = Callable[[RetrainSettings, Retraining], Retraining]


def _new_name(settings: RetrainSettings, now: int) -> str:
    """The time to the second, or a later one if it names a run or a bundle already."""
    taken = {record.run for record in read_records(settings.work)}
    while (name := f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}") in taken or (
        settings.bundles / name
    ).exists():
        now += 1000
    return name


def _begin(settings: RetrainSettings, state: Retraining) -> Retraining:
    """Look at the data and at the live version.

    Raises DataError for data that can't be used, BundleError for a live version that can't be read,
    ClientError where the service can't be reached.
    """
    data, live = open_data(settings), live_version(settings.bundles, settings.url)
    changed = is_changed(data, read_records(settings.work), live_manifest(settings, live))
    report(f"run {state.run}: the live version is {live}" if live else f"run {state.run}")
    return state.model_copy(update={"before": size_of(data), "data_changed": changed, "live": live})


def _gather(settings: RetrainSettings, state: Retraining) -> Retraining:
    assert state.before is not None, "the first step sets it"
    records = read_records(settings.work)
    gather(settings, state, records)
    data = open_data(settings)
    live = live_manifest(settings, state.live)
    new = max(0, count_new(data, state.before, records, live))
    state = state.model_copy(update={"after": size_of(data), "new_events": new})
    if state.live is None or state.data_changed or new >= settings.at_least:
        return state
    needed = f"; --at-least {settings.at_least:,} are needed" if new else ""
    found = counted(new, "new event") if new else "No new events"
    message = f"{found} since the last training{needed}: nothing is trained."
    return state.model_copy(update={"decision": "nothing_new", "message": message})


def _judge_canary(settings: RetrainSettings, state: Retraining) -> Retraining:
    ended = judge_canary(settings, waiting_canary(read_records(settings.work)))
    if ended is None:
        return state
    live = live_version(settings.bundles, settings.url)
    return state.model_copy(update={"canary": ended, "live": live})


def _choose(settings: RetrainSettings, state: Retraining) -> Retraining:
    assert state.before is not None, "the first step sets it"
    assert state.after is not None, "the second step sets it"
    warm_starts, full = lineage(read_records(settings.work), state.live)
    full = full or state.before
    situation = Situation(
        has_live=state.live is not None,
        data_changed=state.data_changed,
        warm_starts=warm_starts,
        new_events=max(0.0, 1.0 - full.events / state.after.events),
        new_items=max(0.0, 1.0 - full.items / state.after.items),
    )
    mode, reason = choose_mode(situation, settings)
    report(f"{mode}: {reason}")
    update = {"mode": mode, "reason": reason}
    if mode == "anew":
        return state.model_copy(update=update)
    manifest = live_manifest(settings, state.live)
    until = manifest.data_until if manifest else None
    if until is not None and not count_predictable(PreparedData.open(settings.data), until):
        message = (
            f"{counted(state.new_events or 0, 'new event')}, but none has an earlier one of its user in the "
            "training part of the data: nothing is trained."
        )
        return state.model_copy(update={"decision": "nothing_new", "message": message})
    return state.model_copy(update={**update, "origin": state.live})


STEPS: dict[str, Step] = {
    "begin": _begin,
    "gather": _gather,
    "canary": _judge_canary,
    "choose": _choose,
    "train": train_run,
    "evaluate": evaluate_run,
    "publish": publish_run,
    "compare": compare,
    "deploy": deploy,
    "retire": retire,
}
FAILED = 1
# A full disk may have room again; an error that returns so often does not pass.
_MOST_FAILURES = 3


def retrain(settings: RetrainSettings) -> Retraining:
    """Retrain once, and return the record of the decision, which is also in the file of records.

    An interrupted run is continued at the step in which it ended. An error is recorded before it is raised:
    after one that may pass (a service that can't be reached, a full disk) the next call continues the run,
    after another one it begins anew.

    Raises:
        LockedError: another process retrains in this folder.
        TurretError: as the steps do.
        OSError: a file can't be written.
    """
    settings.check()
    with retrain_lock(settings.work):
        state = _unfinished(settings)
        if state is None:
            now = time.time_ns() // 1_000_000
            state = Retraining(run=_new_name(settings, now), started=show_time(now), step="begin")
        while state.step is not None:
            state = _step(settings, state, state.step)
        record = state.model_copy(update={"ended": _now()})
        append_record(settings.work, record)
        remove_state(settings.work, state)
        return record


def _unfinished(settings: RetrainSettings) -> Retraining | None:
    """The state of an interrupted run; one that is recorded has ended but for the removal of its state."""
    state = read_state(settings.work)
    if state is None:
        return None
    if state.run in {record.run for record in read_records(settings.work) if record.decision != "failed"}:
        remove_state(settings.work, state)
        return None
    report(f"run {state.run} was interrupted; it goes on with the step {state.step}")
    return state


def _step(settings: RetrainSettings, state: Retraining, name: str) -> Retraining:
    """Make a step, and save its result; a decision ends the run but for the last step."""
    begun = time.monotonic()
    try:
        done = STEPS[name](settings, state)
    except (TurretError, OSError) as error:
        seconds = state.seconds + time.monotonic() - begun
        _record_failure(settings, state.model_copy(update={"seconds": seconds}), error)
        raise
    names = [*STEPS, None]
    following = names[names.index(name) + 1]
    if done.decision is not None and following is not None:
        following = "retire"
    seconds = round(state.seconds + time.monotonic() - begun, 3)
    done = done.model_copy(update={"step": following, "seconds": seconds})
    done.save(settings.work)
    return done


def _record_failure(settings: RetrainSettings, state: Retraining, error: TurretError | OSError) -> None:
    """Record an error; it ends the run unless it may pass."""
    failure = {"decision": "failed", "status": FAILED, "message": str(error), "ended": _now()}
    if state.step == "gather":
        failure["after"] = _present_size(settings)  # the step may have changed the data
    try:
        append_record(settings.work, state.model_copy(update=failure))
        if _may_pass(state, error):
            state.model_copy(update={"failures": state.failures + 1}).save(settings.work)
        else:
            remove_state(settings.work, state)
    except OSError as full:
        report(f"{settings.work}: the failure can't be recorded ({full.strerror})")


def _present_size(settings: RetrainSettings) -> DataSize | None:
    try:
        return size_of(open_data(settings))
    except TurretError as damaged:
        report(str(damaged))
        return None


def _may_pass(state: Retraining, error: TurretError | OSError) -> bool:
    """Whether the run is worth continuing: its events are in the data, and the error may not come again."""
    if state.after is None:
        return False
    passing = isinstance(error, BundleError | OSError) and state.failures + 1 < _MOST_FAILURES
    return isinstance(error, ServiceError | ClientError) or passing


def _now() -> str:
    return show_time(time.time_ns() // 1_000_000)
