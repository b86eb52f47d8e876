"""Faults of stores of histories and of the wire."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.stores.guarded:Breaker._call", "service/test_stores.py")
def damage_of_one_user_opens_the_circuit(original: Function) -> Function:
    return seeing(original, HistoryDamagedError=())


@planted("turret.service.stores.guarded:Breaker._call", "service/test_stores.py")
def a_cancelled_call_counts_as_a_failure(original: Function) -> Function:
    async def call(self: Any, direction: str, function: Any, is_bounded: bool = True) -> Any:
        try:
            return await original(self, direction, function, is_bounded)
        except asyncio.CancelledError:
            circuit = self.circuits[direction]
            circuit.fail(circuit.admit())
            raise

    return call


@planted("turret.service.stores.window:drop_expired", "service/test_stores.py")
def events_at_the_edge_of_the_window_are_dropped(original: Function) -> Function:
    return lambda events, oldest: original(events, None if oldest is None else oldest + 1)


@planted("turret.service.stores.window:TimeWindow.apply", "service/test_stores.py")
def a_time_in_the_future_stays_the_newest(original: Function) -> Function:
    def apply(self: Any, events: Any, now: int) -> Any:
        return original(self, events, max([now, *(event.time for event in events)]))

    return apply


@planted("turret.service.stores.sqlite.file:connect", "service/test_stores_sqlite.py")
def histories_are_not_synced_to_the_disk(original: Function) -> Function:
    def connect(path: Any, wait: float) -> Any:
        connection = original(path, wait)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    return connect


@planted("turret.service.stores.sqlite.file:connect", "service/test_stores_sqlite.py")
def deleted_events_stay_in_the_file(original: Function) -> Function:
    def connect(path: Any, wait: float) -> Any:
        connection = original(path, wait)
        connection.execute("PRAGMA secure_delete = OFF")
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


@planted(
    "turret.service.stores.sqlite.histories:SqliteHistory._check_identity", "service/test_stores_sqlite.py"
)
def events_are_written_to_a_file_that_was_moved_away(original: Function) -> Function:
    return lambda self: None


@planted("turret.service.stores.sqlite.file:GroupCommit._next", "service/test_stores_sqlite.py")
def a_group_of_events_has_no_bound(original: Function) -> Function:
    return seeing(original, _GROUP_EVENTS=1 << 30)


@planted("turret.service.stores.guarded:read_histories", "service/test_stores.py")
def users_that_were_cut_off_count_as_whole(original: Function) -> Function:
    async def read(*arguments: Any) -> Any:
        return replace(await original(*arguments), truncated=frozenset())

    return read


@planted("turret.data.errors:TurretError.__str__", "service/test_stores.py")
def the_address_of_a_store_shows_its_password(original: Function) -> Function:
    return Exception.__str__


@planted("turret.service.wire.limiter:Limiter.release", "service/test_wire.py")
def a_place_is_released_twice(original: Function) -> Function:
    def release(self: Any, connection: Any) -> None:
        self._aborted.discard(connection)
        original(self, connection)

    return release


@planted("turret.service.wire.limiter:Limiter._abort_stalled", "service/test_wire.py")
def a_stalled_response_keeps_its_place(original: Function) -> Function:
    return lambda self: False


@planted("turret.service.wire.body:parse", "service/test_wire_bodies.py")
def of_a_repeated_key_the_last_value_counts(original: Function) -> Function:
    return seeing(original, _check_repeated=lambda body, parsed: None)


@planted("turret.service.wire.body:read_bytes", "service/test_wire_bodies.py")
def a_body_of_exactly_the_limit_is_refused(original: Function) -> Function:
    return lambda receive, limit: original(receive, limit - 1)


@planted("turret.service.wire.admission:Admission.run", "service/test_wire_limits.py", "service/test_wire.py")
def a_refused_request_keeps_its_place(original: Function) -> Function:
    async def run(self: Any, app: Any, limiter: Any, *others: Any) -> None:
        before = limiter.refused
        await original(self, app, limiter, *others)
        limiter.active += limiter.refused > before

    return run
