"""Faults of activation: the log of versions, the gate, canaries and replicas."""

from types import SimpleNamespace
from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.models.activation_log:ActivationLog.add", "service/test_gate.py")
def an_activation_is_not_synced_to_the_disk(original: Function) -> Function:
    os = original.__globals__["os"]
    return seeing(original, os=SimpleNamespace(fsync=lambda descriptor: None, open=os.open))


@planted("turret.service.models.activation_log:ActivationLog._ends_whole", "service/test_gate.py")
def a_record_is_written_behind_the_torn_line_of_a_crash(original: Function) -> Function:
    return lambda self, descriptor: True


@planted("turret.service.models.activation_log:ActivationLog.add", "service/test_gate.py")
def a_refusal_has_the_number_of_an_activation(original: Function) -> Function:
    def add(self: Any, record: Any) -> Any:
        number = record.sequence or self.sequence + 1
        return original(self, record.model_copy(update={"sequence": number}))

    return add


@planted("turret.service.models.activation_log:ActivationLog.before", "service/test_gate.py")
def a_rollback_goes_to_the_version_itself(original: Function) -> Function:
    return lambda self, version: original(self, None)


@planted("turret.service.models.activation_log:ActivationLog.refresh", "service/test_gate.py")
def a_log_that_was_moved_away_is_read_on_at_the_old_offset(original: Function) -> Function:
    os = original.__globals__["os"]

    def refresh(self: Any) -> None:
        status = SimpleNamespace(st_size=max(self._offset, self.path.stat().st_size))
        seeing(original, os=SimpleNamespace(fstat=lambda descriptor: status, open=os.open))(self)

    return refresh


@planted("turret.service.models.activation_state:commit", "service/test_models.py", "service/test_gate.py")
def a_failed_log_leaves_the_pointer_moved(original: Function) -> Function:
    return seeing(original, current=lambda root: None)


@planted("turret.service.models.gate:GateReport.passed", "service/test_gate.py")
def a_forced_activation_passes_every_check(original: Function) -> Function:
    return lambda self: self.forced or original(self)


@planted("turret.service.models.gate:_Gate.recall", "service/test_gate.py")
def the_best_row_of_the_recall_table_counts(original: Function) -> Function:
    return seeing(original, min=max)


@planted("turret.service.models.gate:_Gate.checksum", "service/test_gate.py")
def a_version_of_another_name_passes_the_gate(original: Function) -> Function:
    read = original.__globals__["read_manifest"]

    def checksum(self: Any) -> Any:
        named = {"version": self._request.version}
        return seeing(original, read_manifest=lambda folder: read(folder).model_copy(update=named))(self)

    return checksum


@planted("turret.service.models.gate:pass_gate", "service/test_gate.py")
def a_damaged_version_stays_verified(original: Function) -> Function:
    return seeing(original, _OF_THE_FILES=())


@planted("turret.service.models.model_holder:ModelHolder.choose", "service/test_models.py")
def every_user_asks_the_canary(original: Function) -> Function:
    def choose(self: Any, user_key: str | None) -> Any:
        return self.traffic.canary or original(self, user_key)

    return choose


@planted("turret.service.models.model_holder:_matches", "service/test_models.py")
def a_route_to_other_files_of_one_name_is_followed(original: Function) -> Function:
    return lambda live, manifest: True


@planted("turret.service.models.model_holder:ModelHolder._fall_back", "service/test_models.py")
def a_fallback_is_undone_by_the_next_worker(original: Function) -> Function:
    return lambda self, target, version, refused: self._open_one_before(version, refused)


@planted("turret.service.models.model_holder:ModelHolder.answering", "service/test_http_probes.py")
def a_replica_answers_from_an_earlier_version_while_another_one_serves_the_live_one(
    original: Function,
) -> Function:
    return lambda self: self.live


@planted("turret.service.models.traffic_split:canary_position", "service/test_models.py")
def all_services_send_the_same_users_to_the_canary(original: Function) -> Function:
    return lambda user, salt: original(user, "00" * 8)


@planted("turret.service.models.overlap:overlap_of", "service/test_comparison.py")
def ids_of_an_overlap_compare_by_type(original: Function) -> Function:
    return seeing(original, map=lambda kind, ids: ids)


@planted("turret.service.models.memory:_left", "service/test_gate.py")
def page_cache_counts_as_used_memory(original: Function) -> Function:
    return seeing(original, _lines=lambda file: [])


@planted("turret.service.shared_state:Target.raise_to", "service/test_shared_state.py")
def a_target_may_go_back(original: Function) -> Function:
    return lambda self, value, pin=bytes(64), version="": self._set(value, pin, version)


@planted("turret.service.replicas.coordination:Replicas._swap", "service/test_replicas.py")
def an_overtaken_activation_takes_itself_for_the_live_one(original: Function) -> Function:
    async def swap(self: Any, record: Any) -> None:
        await self._records.swap(self._stored, record.encoded())
        self._stored, self._record = record.encoded(), record

    return swap


@planted("turret.service.replicas.coordination:Replicas.commit", "service/test_replicas.py")
def the_pointer_stays_on_a_version_that_the_record_refused(original: Function) -> Function:
    return seeing(original, _pointed=lambda root: None)


@planted("turret.service.replicas.coordination:Replicas._is_behind_us", "service/test_replicas.py")
def a_record_of_the_same_number_with_other_content_is_accepted(original: Function) -> Function:
    def is_behind_us(self: Any, record: Any) -> bool:
        number = original.__globals__["target_of"](self._shared_state)[0]
        return record is None or bool(record.number < number)

    return is_behind_us


@planted("turret.service.replicas.coordination:Replicas.items_behind", "service/test_replicas.py")
def a_call_waits_for_a_replicas_item_changes_by_its_activations(original: Function) -> Function:
    async def items_behind(self: Any, number: int, seconds: float) -> Any:
        return await self._without(lambda report: report.number >= number, seconds)

    return items_behind


@planted("turret.service.replicas.local_state:own_record", "service/test_replicas.py")
def a_provisional_version_is_written_into_the_record(original: Function) -> Function:
    find = original.__globals__["target_of"]
    return seeing(original, target_of=lambda state: (max(1, find(state)[0]), *find(state)[1:]))


@planted("turret.service.replicas.local_state:adopt", "service/test_replicas.py")
def the_routes_of_the_folder_count_as_those_of_the_record(original: Function) -> Function:
    def adopt(root: Any, shared_state: Any, record: Any) -> Any:
        return seeing(original, stored_routes=lambda root: record.routes)(root, shared_state, record)

    return adopt
