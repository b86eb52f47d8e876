"""Faults of stores of histories and of the wire."""

from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.stores.guarded:Breaker._call", "service/test_stores.py")
def damage_of_one_user_opens_the_circuit(original: Function) -> Function:
    return seeing(original, HistoryDamagedError=())


@planted("turret.service.stores.window:drop_expired", "service/test_stores.py")
def events_at_the_edge_of_the_window_are_dropped(original: Function) -> Function:
    return lambda events, oldest: original(events, None if oldest is None else oldest + 1)


@planted("turret.service.stores.sqlite.file:connect", "service/test_stores_sqlite.py")
def histories_are_not_synced_to_the_disk(original: Function) -> Function:
    def connect(path: Any, wait: float) -> Any:
        connection = original(path, wait)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    return connect


@planted("turret.service.stores.sqlite.histories:SqliteHistory._insert_all", "service/test_stores_sqlite.py")
def one_failing_call_fails_its_group(original: Function) -> Function:
    def insert_all(self: Any, calls: Any) -> Any:
        try:
            return list(self._insert(calls))
        except Exception as error:
            return [error for _ in calls]

    return insert_all


@planted("turret.service.stores.sqlite.file:GroupCommit._next", "service/test_stores_sqlite.py")
def a_group_of_events_has_no_bound(original: Function) -> Function:
    return seeing(original, _GROUP_EVENTS=1 << 30)


@planted("turret.data.errors:TurretError.__str__", "service/test_stores.py")
def the_address_of_a_store_shows_its_password(original: Function) -> Function:
    return Exception.__str__


@planted("turret.service.wire.limiter:Limiter._abort_stalled", "service/test_wire.py")
def a_stalled_response_keeps_its_place(original: Function) -> Function:
    return lambda self: False


@planted("turret.service.wire.admission:Admission.run", "service/test_wire_limits.py", "service/test_wire.py")
def a_refused_request_keeps_its_place(original: Function) -> Function:
    async def run(self: Any, app: Any, limiter: Any, *others: Any) -> None:
        before = limiter.refused
        await original(self, app, limiter, *others)
        limiter.active += limiter.refused > before

    return run
