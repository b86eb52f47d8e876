"""Faults of the comparison of versions and of retraining."""

from dataclasses import replace
from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.activation.comparison:_first_after", "turret/test_activation.py")
def an_event_that_the_live_version_knows_is_a_target(original: Function) -> Function:
    return lambda data, limit: original(data, limit - 1)


@planted("turret.activation.comparison:held_out", "turret/test_activation.py")
def events_that_one_of_two_versions_was_trained_on_are_targets(original: Function) -> Function:
    return seeing(original, any=all)


@planted("turret.activation.comparison:Comparison.check", "turret/test_activation.py")
def a_version_is_accepted_that_may_be_as_good_instead_of_one_that_is_not_worse(
    original: Function,
) -> Function:
    return lambda self: original(replace(self, low=self.high))


@planted("turret.retraining.state:choose_mode", "turret/test_retraining_decisions.py")
def a_retraining_never_trains_anew_after_many_warm_starts(original: Function) -> Function:
    return lambda settings, state, warm_starts, *shares: original(settings, state, 0, *shares)


@planted("turret.retraining.retrain:add_stored", "turret/test_retraining_folder.py")
def late_events_are_not_read_again(original: Function) -> Function:
    return seeing(original, _DAY=0)


@planted("turret.retraining.deployment:protected_versions", "turret/test_retraining_folder.py")
def retention_deletes_the_canary_and_the_shadow(original: Function) -> Function:
    read = original.__globals__["kept_record"]

    def without_routes(bundles: Any) -> Any:
        record = read(bundles)
        return record and record.model_copy(update={"routes": type(record.routes)()})

    return seeing(original, kept_record=without_routes)


@planted("turret.retraining.deployment:protected_versions", "turret/test_retraining_folder.py")
def retention_deletes_the_version_to_roll_back_to(original: Function) -> Function:
    return seeing(original, next=lambda versions, default: default)


@planted("turret.retraining.deployment:judge_canary", "turret/test_retraining_decisions.py")
def a_worse_canary_is_promoted(original: Function) -> Function:
    judge = original.__globals__["_judged"]
    return seeing(original, _judged=lambda comparison: ("activated", *judge(comparison)[1:]))


@planted("turret.retraining.state:append_record", "turret/test_retraining_folder.py")
def a_torn_record_swallows_the_next_one(original: Function) -> Function:
    def append_record(work: Any, record: Any) -> None:
        path = work / original.__globals__["RECORDS"]
        before = path.read_bytes() if path.is_file() else b""
        original(work, record)
        written = path.read_bytes()[len(before) :]
        path.write_bytes(before + written.lstrip(b"\n"))

    return append_record
