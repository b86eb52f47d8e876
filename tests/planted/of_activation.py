"""Faults of activation: the record, its followers, the gate, canaries, comparisons and retraining."""

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.planted.fault import planted, seeing


def _os(**names: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(os), **names})


@planted("service.versions.folder:add_line", "service/test_version_record.py")
def an_activation_is_not_synced_to_the_disk(original: Any, *given: Any) -> Any:
    return seeing(original, os=_os(fsync=lambda descriptor: None))(*given)


@planted("service.versions.folder:add_line", "service/test_version_record.py")
def a_line_is_written_behind_the_torn_line_of_a_crash(original: Any, *given: Any) -> Any:
    return seeing(original, os=_os(pread=lambda *_: b"\n"))(*given)


@planted("service.versions.activation:Activator._commit", "service/test_versions.py")
def a_failed_activation_leaves_the_pointer_moved(original: Any, *given: Any) -> Any:
    return seeing(original, BundleError=GeneratorExit, ServiceError=GeneratorExit)(*given)


@planted("service.versions.follower:Follower.replace", "service/test_versions.py")
async def an_overtaken_activation_takes_itself_for_the_live_one(
    original: Any, self: Any, before: Any, record: Any
) -> Any:
    self._stored, self._holder.record = record.encoded(), record


@planted("service.versions.follower:Follower.late", "service/test_versions.py")
async def members_that_can_not_be_asked_have_every_change(
    original: Any, self: Any, seconds: Any, **numbers: Any
) -> Any:
    try:
        await self._records.members()
    except original.__globals__["ReplicasUnavailableError"]:
        return original.__globals__["Late"]([], [])
    return await original(self, seconds, **numbers)


@planted("service.process.supervisor:Supervisor._kill_hung", "service/test_process.py")
def a_worker_that_hangs_while_it_starts_is_left_alone(original: Any, self: Any) -> None:
    for worker in self._workers:
        worker.silence *= worker.is_ready
    original(self)


@planted("service.versions.follower:Follower._activate_fallback", "service/test_versions.py")
async def a_worker_falls_back_alone(original: Any, self: Any) -> Any:
    pass


@planted("service.versions.follower:Follower._restore", "service/test_versions.py")
async def a_lost_record_takes_the_live_version_along(
    original: Any, self: Any, own: Any, stored: Any, is_first: Any
) -> Any:
    return stored


@planted("service.versions.folder:keep_record", "service/test_version_record.py")
def a_pointer_that_was_moved_for_the_next_start_is_moved_back(original: Any, *given: Any) -> Any:
    return seeing(original, _valid_record=lambda root: None)(*given)


@planted("service.versions.follower:Follower._note_stop", "service/test_versions.py")
def a_worker_that_was_stopped_answers_from_what_it_had(original: Any, self: Any) -> Any:
    pass


@planted("service.versions.gate_report:GateReport.passed", "service/test_gate.py")
def a_forced_activation_passes_every_check(original: Any, self: Any) -> Any:
    return self.forced or original(self)


@planted("service.versions.gate:_Gate.checksum", "service/test_gate.py")
def files_with_other_content_pass_the_gate(original: Any, self: Any) -> Any:
    return seeing(original, check_files=lambda folder, manifest: None)(self)


@planted("service.versions.holder:ModelHolder.choose", "service/test_versions.py")
def every_user_asks_the_canary(original: Any, self: Any, user_key: Any) -> Any:
    return self.traffic.canary or original(self, user_key)


@planted("service.versions.holder:_holds", "service/test_versions.py")
def a_route_to_other_files_of_one_name_is_followed(original: Any, model: Any, named: Any) -> Any:
    return bool(model.version == named.version)


@planted("service.versions.holder:ModelHolder.answering", "service/test_versions.py")
def a_replica_answers_from_an_earlier_version_while_another_one_serves_the_live_one(
    original: Any, self: Any
) -> Any:
    return self.live


@planted("service.versions.recorded:_figures", "turret/test_activation.py")
def a_version_that_was_never_evaluated_has_a_metric(original: Any, manifest: Any, *given: Any) -> Any:
    return original(manifest, *given) or {("test", "ndcg@10"): 1.0}


@planted("activation.held_out:_first_after", "turret/test_activation.py")
def an_event_that_the_live_version_knows_is_a_target(original: Any, data: Any, limit: Any) -> Any:
    return original(data, limit - 1)


@planted("activation.held_out:held_out", "turret/test_activation.py")
def events_that_one_of_two_versions_was_trained_on_are_targets(original: Any, *given: Any) -> Any:
    return seeing(original, any=all)(*given)


@planted("activation.non_inferiority:Comparison.check", "turret/test_activation.py")
def a_version_is_accepted_that_may_be_as_good_instead_of_one_that_is_not_worse(
    original: Any, self: Any
) -> Any:
    return original(replace(self, low=self.high))


@planted("retraining.state:choose_mode", "turret/test_retraining_decisions.py")
def a_retraining_never_trains_anew_after_many_warm_starts(
    original: Any, settings: Any, state: Any, warm_starts: Any, *shares: Any
) -> Any:
    return original(settings, state, 0, *shares)


@planted("retraining.stored_events:add_stored", "turret/test_retraining_folder.py")
def late_events_are_not_read_again(original: Any, *given: Any) -> Any:
    return seeing(original, _DAY=0)(*given)


@planted("retraining.deployment:protected_versions", "turret/test_retraining_folder.py")
def retention_deletes_the_canary_and_the_shadow(original: Any, *given: Any) -> Any:
    def without_routes(bundles: Any) -> Any:
        record = original.__globals__["kept_record"](bundles)
        return record and record.model_copy(update={"routes": type(record.routes)()})

    return seeing(original, kept_record=without_routes)(*given)


@planted("retraining.deployment:protected_versions", "turret/test_retraining_folder.py")
def retention_deletes_the_version_to_roll_back_to(original: Any, *given: Any) -> Any:
    return seeing(original, next=lambda versions, default: default)(*given)


@planted("retraining.deployment:judge_canary", "turret/test_retraining_decisions.py")
def a_worse_canary_is_promoted(original: Any, *given: Any) -> Any:
    judge = original.__globals__["_judged"]
    return seeing(original, _judged=lambda comparison: ("activated", *judge(comparison)[1:]))(*given)


@planted("retraining.outcome:comparison_of", "turret/test_retraining_decisions.py")
def a_canary_is_judged_by_the_outcomes_of_the_one_before(
    original: Any, answer: Any, canary: Any, live: Any
) -> Any:
    return answer.comparison


@planted("retraining.outcome:judge_outcome", "turret/test_retraining_decisions.py")
def a_canary_that_is_not_certain_is_promoted(original: Any, settings: Any, state: Any) -> None:
    compared_of = original.__globals__["comparison_of"]

    def certain(*given: Any) -> Any:
        compared = compared_of(*given)
        return compared and compared.model_copy(update={"decided": True})

    seeing(original, comparison_of=certain)(settings, state)


@planted("retraining.state:append_record", "turret/test_retraining_folder.py")
def a_torn_record_swallows_the_next_one(original: Any, work: Any, record: Any) -> Any:
    path = work / original.__globals__["RECORDS"]
    before = path.read_bytes() if path.is_file() else b""
    original(work, record)
    written = path.read_bytes()[len(before) :]
    path.write_bytes(before + written.lstrip(b"\n"))


@planted("retraining.retrain:publish_run", "turret/test_retraining.py")
def the_successor_of_a_version_on_an_engine_is_searched_exactly(
    original: Any, settings: Any, state: Any
) -> None:
    seeing(original, EngineSettings=type(None))(settings, state)


@planted("service.versions.folder:keep", "service/test_version_record.py")
def a_folder_follows_a_record_without_the_activations_between(original: Any, root: Any, record: Any) -> Any:
    return seeing(original, takewhile=lambda *given: [record.live])(root, record)


@planted("retraining.stored_events:append", "turret/test_retraining.py")
def the_data_changes_without_a_training(original: Any, source: Any, target: Any, *given: Any) -> Any:
    return original(source, target, given[0])
