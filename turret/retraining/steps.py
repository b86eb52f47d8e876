"""The steps of a retraining. Each one takes the state and returns the next; made again, it changes nothing.

A step that sets `decision` ends the training: only those from `retire` on follow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.retraining.deployment import compare, deploy, judge_canary, waiting_canary
from turret.retraining.events import (
    count_new,
    count_predictable,
    gather,
    is_changed,
    live_manifest,
    open_data,
    size_of,
)
from turret.retraining.progress import report
from turret.retraining.record import DataSize, RetrainRecord, lineage
from turret.retraining.retention import choose_retired, delete_retired, is_left
from turret.retraining.rule import Situation, choose_mode
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import RunState, iso, record_of
from turret.retraining.training import evaluate_run, publish_run, train_run
from turret.service.client import live_version


@dataclass(frozen=True)
class Context:
    """The settings of a run, and the records of earlier runs."""

    settings: RetrainSettings
    records: Sequence[RetrainRecord]


Step = Callable[[Context, RunState], RunState]


def first_state(context: Context, now: int) -> RunState:
    """The state before the first step, at `now` in milliseconds since 1970.

    Raises DataError for data that can't be used, BundleError for a live version that can't be read,
    ServiceError where the service can't be reached.
    """
    settings = context.settings
    data = open_data(settings)
    live = live_version(settings.bundles, settings.url)
    return RunState(
        run=new_name(context, now),
        started=iso(now),
        until=now,
        before=size_of(data),
        data_changed=is_changed(data, context.records, live_manifest(settings, live)),
        live=live,
        step=next(iter(STEPS)),
    )


def new_name(context: Context, now: int) -> str:
    """The time to the second, or a later one if it names a run or a bundle already."""
    taken = {record.run for record in context.records}
    while (name := f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}") in taken or (
        context.settings.bundles / name
    ).exists():
        now += 1000
    return name


def _gather(context: Context, state: RunState) -> RunState:
    settings = context.settings
    gather(settings, state, context.records)
    data = open_data(settings)
    live = live_manifest(settings, state.live)
    new = max(0, count_new(data, state.before, context.records, live))
    state = state.model_copy(update={"after": size_of(data), "new_events": new})
    if state.live is None or state.data_changed or new >= settings.at_least:
        return state
    needed = f"; --at-least {settings.at_least:,} are needed" if new else ""
    found = counted(new, "new event") if new else "No new events"
    message = f"{found} since the last training{needed}: nothing is trained."
    return state.model_copy(update={"decision": "nothing_new", "message": message})


def _judge_canary(context: Context, state: RunState) -> RunState:
    ended = judge_canary(context.settings, waiting_canary(context.records))
    if ended is None:
        return state
    live = live_version(context.settings.bundles, context.settings.url)
    return state.model_copy(update={"canary": ended, "live": live})


def _choose(context: Context, state: RunState) -> RunState:
    settings, after = context.settings, state.after or state.before
    past = lineage(context.records, state.live)
    full = past.full or state.before
    situation = Situation(
        has_live=state.live is not None,
        data_changed=state.data_changed,
        warm_starts=past.warm_starts,
        new_events=_new_share(full, after, "events"),
        new_items=_new_share(full, after, "items"),
    )
    choice = choose_mode(situation, settings.rule)
    report(f"{choice.mode}: {choice.reason}")
    update = {"mode": choice.mode, "reason": choice.reason}
    if choice.mode == "anew":
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


def _train(context: Context, state: RunState) -> RunState:
    train_run(context.settings, state)
    return state


def _evaluate(context: Context, state: RunState) -> RunState:
    evaluate_run(context.settings, state)
    return state


def _publish(context: Context, state: RunState) -> RunState:
    return state.model_copy(update={"version": publish_run(context.settings, state)})


def _compare(context: Context, state: RunState) -> RunState:
    return compare(context.settings, state)


def _deploy(context: Context, state: RunState) -> RunState:
    return deploy(context.settings, state)


def _retire(context: Context, state: RunState) -> RunState:
    """Choose the runs to delete, so that the state names them before the first one is gone."""
    records = (*context.records, record_of(state, state.started))
    return state.model_copy(update={"retired": choose_retired(context.settings, records)})


def _delete(context: Context, state: RunState) -> RunState:
    """Delete the chosen runs. An error costs no decision: the next run tries again."""
    settings, records = context.settings, (*context.records, record_of(state, state.started))
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
    "train": _train,
    "evaluate": _evaluate,
    "publish": _publish,
    "compare": _compare,
    "deploy": _deploy,
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
