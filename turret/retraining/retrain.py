"""One retraining: begin or continue a run, make its steps, record its decision."""

import time

from turret.data.errors import TurretError
from turret.retraining.events import open_data, size_of
from turret.retraining.lock import retrain_lock
from turret.retraining.progress import report
from turret.retraining.record import RetrainRecord, append_record, read_records
from turret.retraining.retention import bundle_names
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import RunState, iso, read_state, record_of, remove_state
from turret.retraining.steps import RECORD, STEPS, Context, first_state, new_name, step_after
from turret.service.errors import ServiceError
from turret.tower.errors import BundleError

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
        context = Context(settings, read_records(settings.work))
        state = _unfinished(context) or _begun(context)
        return _finish(context, _steps(context, state))


def _unfinished(context: Context) -> RunState | None:
    """The state of an interrupted run; one that is recorded has ended but for the removal of its state."""
    state = read_state(context.settings.work)
    if state is None:
        return None
    if state.run in {record.run for record in context.records if record.decision != "failed"}:
        remove_state(context.settings.work, state)
        return None
    report(f"run {state.run} was interrupted; it goes on with the step {state.step}")
    return state


def _begun(context: Context) -> RunState:
    now = _now()
    try:
        state = first_state(context, now)
    except (TurretError, OSError) as error:
        moment = {"started": iso(now), "until": iso(now), "ended": iso(_now()), "seconds": 0.0}
        failed = {"decision": "failed", "status": FAILED, "message": str(error), "step": "begin"}
        record = {"run": new_name(context, now), **moment, **failed}
        append_record(context.settings.work, RetrainRecord.model_validate(record))
        raise
    state.save(context.settings.work)
    report(f"run {state.run}: the live version is {state.live}" if state.live else f"run {state.run}")
    return state


def _steps(context: Context, state: RunState) -> RunState:
    while state.step != RECORD:
        begun = time.monotonic()
        try:
            done = STEPS[state.step](context, state)
        except (TurretError, OSError) as error:
            seconds = state.seconds + time.monotonic() - begun
            _record_failure(context, state.model_copy(update={"seconds": seconds}), error)
            raise
        seconds = round(state.seconds + time.monotonic() - begun, 3)
        state = done.model_copy(update={"step": step_after(done), "seconds": seconds})
        state.save(context.settings.work)
    return state


def _record_failure(context: Context, state: RunState, error: TurretError | OSError) -> None:
    """Record an error; it ends the run unless it may pass."""
    settings = context.settings
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


def _finish(context: Context, state: RunState) -> RetrainRecord:
    names = [sorted(bundle_names(run, context.records)) for run in state.retired]
    deleted = tuple(name for group in names for name in group)
    record = record_of(state, iso(_now())).model_copy(update={"deleted": deleted})
    append_record(context.settings.work, record)
    remove_state(context.settings.work, state)
    return record


def _now() -> int:
    return time.time_ns() // 1_000_000
