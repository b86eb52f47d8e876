"""Faults of activation: the record, who follows it, the gate, canaries and replicas."""

from types import SimpleNamespace
from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.versions.folder:add_line", "service/test_versions.py")
def an_activation_is_not_synced_to_the_disk(original: Function) -> Function:
    os = original.__globals__["os"]
    names = {name: getattr(os, name) for name in ("fstat", "pread")}
    return seeing(original, os=SimpleNamespace(fsync=lambda descriptor: None, **names))


@planted("turret.service.versions.folder:add_line", "service/test_versions.py")
def a_line_is_written_behind_the_torn_line_of_a_crash(original: Function) -> Function:
    os = original.__globals__["os"]
    names = {name: getattr(os, name) for name in ("fstat", "fsync")}
    return seeing(original, os=SimpleNamespace(pread=lambda *_: b"\n", **names))


@planted("turret.service.versions.activation:Activator._replace", "service/test_versions.py")
def a_failed_activation_leaves_the_pointer_moved(original: Function) -> Function:
    return seeing(original, BundleError=(), ServiceError=())


@planted("turret.service.versions.follower:Follower.replace", "service/test_versions.py")
def an_overtaken_activation_takes_itself_for_the_live_one(original: Function) -> Function:
    async def replace(self: Any, before: Any, record: Any) -> None:
        self._stored, self._holder.record = record.encoded(), record

    return replace


@planted("turret.service.versions.follower:Follower._activate_fallback", "service/test_versions.py")
def a_worker_falls_back_alone(original: Function) -> Function:
    async def activate_fallback(self: Any) -> None:
        pass

    return activate_fallback


@planted("turret.service.versions.follower:Follower._restore", "service/test_versions.py")
def a_lost_record_takes_the_live_version_along(original: Function) -> Function:
    async def restore(self: Any, own: Any, stored: Any, is_first: bool) -> Any:
        return stored

    return restore


@planted("turret.service.versions.folder:keep_record", "service/test_versions.py")
def a_pointer_that_was_moved_for_the_next_start_is_moved_back(original: Function) -> Function:
    return seeing(original, _valid_record=lambda root: None)


@planted("turret.service.versions.follower:Follower._note_stop", "service/test_versions.py")
def a_worker_that_was_stopped_answers_from_what_it_had(original: Function) -> Function:
    return lambda self: None


@planted("turret.service.versions.gate:GateReport.passed", "service/test_gate.py")
def a_forced_activation_passes_every_check(original: Function) -> Function:
    return lambda self: self.forced or original(self)


@planted("turret.service.versions.gate:_Gate.checksum", "service/test_gate.py")
def files_with_other_content_pass_the_gate(original: Function) -> Function:
    return seeing(original, check_files=lambda folder, manifest: None)


@planted("turret.service.versions.holder:ModelHolder.choose", "service/test_versions.py")
def every_user_asks_the_canary(original: Function) -> Function:
    def choose(self: Any, user_key: str | None) -> Any:
        return self.traffic.canary or original(self, user_key)

    return choose


@planted("turret.service.versions.holder:_holds", "service/test_versions.py")
def a_route_to_other_files_of_one_name_is_followed(original: Function) -> Function:
    return lambda model, named: model.version == named.version


@planted("turret.service.versions.holder:ModelHolder.answering", "service/test_versions.py")
def a_replica_answers_from_an_earlier_version_while_another_one_serves_the_live_one(
    original: Function,
) -> Function:
    return lambda self: self.live
