"""Faults of activation: the log of versions, the gate, canaries and replicas."""

from types import SimpleNamespace
from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.versions.activation_log:ActivationLog.add", "service/test_gate.py")
def an_activation_is_not_synced_to_the_disk(original: Function) -> Function:
    os = original.__globals__["os"]
    return seeing(original, os=SimpleNamespace(fsync=lambda descriptor: None, open=os.open))


@planted("turret.service.versions.activation_log:ActivationLog._ends_whole", "service/test_gate.py")
def a_record_is_written_behind_the_torn_line_of_a_crash(original: Function) -> Function:
    return lambda self, descriptor: True


@planted("turret.service.versions.activation_state:commit", "service/test_models.py", "service/test_gate.py")
def a_failed_log_leaves_the_pointer_moved(original: Function) -> Function:
    return seeing(original, current=lambda root: None)


@planted("turret.service.versions.gate:GateReport.passed", "service/test_gate.py")
def a_forced_activation_passes_every_check(original: Function) -> Function:
    return lambda self: self.forced or original(self)


@planted("turret.service.versions.gate:pass_gate", "service/test_gate.py")
def a_damaged_version_stays_verified(original: Function) -> Function:
    return seeing(original, _OF_THE_FILES=())


@planted("turret.service.versions.model_holder:ModelHolder.choose", "service/test_models.py")
def every_user_asks_the_canary(original: Function) -> Function:
    def choose(self: Any, user_key: str | None) -> Any:
        return self.traffic.canary or original(self, user_key)

    return choose


@planted("turret.service.versions.model_holder:_matches", "service/test_models.py")
def a_route_to_other_files_of_one_name_is_followed(original: Function) -> Function:
    return lambda live, manifest: True


@planted("turret.service.versions.model_holder:ModelHolder._fall_back", "service/test_models.py")
def a_fallback_is_undone_by_the_next_worker(original: Function) -> Function:
    return lambda self, target, version, refused: self._open_one_before(version, refused)


@planted("turret.service.versions.model_holder:ModelHolder.answering", "service/test_http_probes.py")
def a_replica_answers_from_an_earlier_version_while_another_one_serves_the_live_one(
    original: Function,
) -> Function:
    return lambda self: self.live


@planted("turret.service.replicas.coordination:Replicas._swap", "service/test_replicas.py")
def an_overtaken_activation_takes_itself_for_the_live_one(original: Function) -> Function:
    async def swap(self: Any, record: Any) -> None:
        await self._records.swap(self._stored, record.encoded())
        self._stored, self._record = record.encoded(), record

    return swap


@planted("turret.service.replicas.local_state:own_record", "service/test_replicas.py")
def a_provisional_version_is_written_into_the_record(original: Function) -> Function:
    find = original.__globals__["target_of"]
    return seeing(original, target_of=lambda state: (max(1, find(state)[0]), *find(state)[1:]))
