"""One retraining: its steps in order, each of which can be repeated after a kill."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.retraining.deployment import (
    bundle_names,
    choose_retired,
    compare,
    delete_retired,
    deploy,
    is_left,
    judge_canary,
    waiting_canary,
)
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
    RetrainRecord,
    RunState,
    append_record,
    iso,
    lineage,
    read_records,
    read_state,
    record_of,
    remove_state,
    report,
    retrain_lock,
)
from turret.retraining.rule import Situation, choose_mode
from turret.retraining.settings import RetrainSettings
from turret.retraining.training import evaluate_run, publish_run, train_run
from turret.service.client import live_version
from turret.service.errors import ServiceError
from turret.tower.errors import BundleError

Step = Callable[[RetrainSettings, RunState], RunState]


def first_state(settings: RetrainSettings, now: int) -> RunState:
    """The state before the first step, at `now` in milliseconds since 1970.

    Raises DataError for data that can't be used, BundleError for a live version that can't be read,
    ServiceError where the service can't be reached.
    """
    data, records = open_data(settings), read_records(settings.work)
    live = live_version(settings.bundles, settings.url)
    return RunState(
        run=new_name(settings, now),
        started=iso(now),
        until=now,
        before=size_of(data),
        data_changed=is_changed(data, records, live_manifest(settings, live)),
        live=live,
        step=next(iter(STEPS)),
    )


def new_name(settings: RetrainSettings, now: int) -> str:
    """The time to the second, or a later one if it names a run or a bundle already."""
    taken = {record.run for record in read_records(settings.work)}
    while (name := f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}") in taken or (
        settings.bundles / name
    ).exists():
        now += 1000
    return name


def _gather(settings: RetrainSettings, state: RunState) -> RunState:
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


def _judge_canary(settings: RetrainSettings, state: RunState) -> RunState:
    ended = judge_canary(settings, waiting_canary(read_records(settings.work)))
    if ended is None:
        return state
    live = live_version(settings.bundles, settings.url)
    return state.model_copy(update={"canary": ended, "live": live})


def _choose(settings: RetrainSettings, state: RunState) -> RunState:
    after = state.after or state.before
    warm_starts, full = lineage(read_records(settings.work), state.live)
    full = full or state.before
    situation = Situation(
        has_live=state.live is not None,
        data_changed=state.data_changed,
        warm_starts=warm_starts,
        new_events=_new_share(full, after, "events"),
        new_items=_new_share(full, after, "items"),
    )
    mode, reason = choose_mode(situation, settings.rule)
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


def _new_share(full: DataSize, after: DataSize, name: str) -> float:
    sizes: tuple[int, int] = (getattr(full, name), getattr(after, name))
    return max(0.0, 1.0 - sizes[0] / sizes[1])


def _retire(settings: RetrainSettings, state: RunState) -> RunState:
    """Choose the runs to delete, so that the state names them before the first one is gone."""
    records = (*read_records(settings.work), record_of(state, state.started))
    return state.model_copy(update={"retired": choose_retired(settings, records)})


def _delete(settings: RetrainSettings, state: RunState) -> RunState:
    """Delete the chosen runs. An error costs no decision: the next run tries again."""
    records = (*read_records(settings.work), record_of(state, state.started))
    try:
        delete_retired(settings, state.retired, records)
    except (TurretError, OSError) as error:
        report(f"old runs can't be deleted: {error}")
    gone = tuple(run for run in state.retired if not is_left(settings, run, records))
    return state.model_copy(update={"retired": gone})


STEPS: dict[str, Step] = {
    "gather": _gather,
    "canary": _judge_canary,
    "choose": _choose,
    "train": train_run,
    "evaluate": evaluate_run,
    "publish": publish_run,
    "compare": compare,
    "deploy": deploy,
    "retire": _retire,
    "delete": _delete,
}
RECORD = "record"
"""The name of the end, behind the last step."""


def step_after(state: RunState) -> str:
    """The name of the step after that of `state`, or RECORD."""
    names = [*STEPS, RECORD]
    following = names[names.index(state.step) + 1]
    is_ending = names.index(following) >= names.index("retire")
    return "retire" if state.decision is not None and not is_ending else following


FAILED = 1
# A full disk may have room again; an error that returns so often does not pass.
_MOST_FAILURES = 3


def retrain(settings: RetrainSettings) -> RetrainRecord:
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
        state = _unfinished(settings) or _begun(settings)
        return _finish(settings, _steps(settings, state))


def _unfinished(settings: RetrainSettings) -> RunState | None:
    """The state of an interrupted run; one that is recorded has ended but for the removal of its state."""
    state = read_state(settings.work)
    if state is None:
        return None
    if state.run in {record.run for record in read_records(settings.work) if record.decision != "failed"}:
        remove_state(settings.work, state)
        return None
    report(f"run {state.run} was interrupted; it goes on with the step {state.step}")
    return state


def _begun(settings: RetrainSettings) -> RunState:
    now = _now()
    try:
        state = first_state(settings, now)
    except (TurretError, OSError) as error:
        moment = {"started": iso(now), "until": iso(now), "ended": iso(_now()), "seconds": 0.0}
        failed = {"decision": "failed", "status": FAILED, "message": str(error), "step": "begin"}
        record = {"run": new_name(settings, now), **moment, **failed}
        append_record(settings.work, RetrainRecord.model_validate(record))
        raise
    state.save(settings.work)
    report(f"run {state.run}: the live version is {state.live}" if state.live else f"run {state.run}")
    return state


def _steps(settings: RetrainSettings, state: RunState) -> RunState:
    while state.step != RECORD:
        begun = time.monotonic()
        try:
            done = STEPS[state.step](settings, state)
        except (TurretError, OSError) as error:
            seconds = state.seconds + time.monotonic() - begun
            _record_failure(settings, state.model_copy(update={"seconds": seconds}), error)
            raise
        seconds = round(state.seconds + time.monotonic() - begun, 3)
        state = done.model_copy(update={"step": step_after(done), "seconds": seconds})
        state.save(settings.work)
    return state


def _record_failure(settings: RetrainSettings, state: RunState, error: TurretError | OSError) -> None:
    """Record an error; it ends the run unless it may pass."""
    after = state.after
    try:
        after = size_of(open_data(settings))  # the step may have changed the data
    except TurretError as damaged:
        report(str(damaged))
    failed = state.model_copy(update={"after": after, "status": FAILED, "message": str(error)})
    try:
        append_record(settings.work, record_of(failed, iso(_now())))
        if _may_pass(state, error):
            state.model_copy(update={"failures": state.failures + 1}).save(settings.work)
        else:
            remove_state(settings.work, state)
    except OSError as full:
        report(f"{settings.work}: the failure can't be recorded ({full.strerror})")


def _may_pass(state: RunState, error: TurretError | OSError) -> bool:
    """Whether the run is worth continuing: its events are in the data, and the error may not come again."""
    if state.step == next(iter(STEPS)):
        return False
    passing = isinstance(error, BundleError | OSError) and state.failures + 1 < _MOST_FAILURES
    return isinstance(error, ServiceError) or passing


def _finish(settings: RetrainSettings, state: RunState) -> RetrainRecord:
    records = read_records(settings.work)
    names = [sorted(bundle_names(run, records)) for run in state.retired]
    deleted = tuple(name for group in names for name in group)
    record = record_of(state, iso(_now())).model_copy(update={"deleted": deleted})
    append_record(settings.work, record)
    remove_state(settings.work, state)
    return record


def _now() -> int:
    return time.time_ns() // 1_000_000
