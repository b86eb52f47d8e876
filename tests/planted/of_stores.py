"""Faults of stores of histories, of the admission and of the guard."""

from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.stores.guarded:Breaker._call", "service/test_stores.py")
def damage_of_one_user_opens_the_circuit(original: Function) -> Function:
    return seeing(original, HistoryDamagedError=())


@planted("turret.service.stores.contract:drop_expired", "service/test_stores.py")
def events_at_the_edge_of_the_window_are_dropped(original: Function) -> Function:
    return lambda events, oldest: original(events, oldest + 1)


@planted("turret.service.stores.sqlite.file:connect", "service/test_stores_sqlite.py")
def histories_are_not_synced_to_the_disk(original: Function) -> Function:
    def connect(path: Any, wait: float) -> Any:
        connection = original(path, wait)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    return connect


@planted("turret.service.stores.sqlite.histories:SqliteHistory._write", "service/test_stores_sqlite.py")
def one_failing_call_fails_its_group(original: Function) -> Function:
    def write(self: Any, connection: Any, calls: Any) -> None:
        try:
            outcomes = self._insert(connection, [call.events for call in calls])
        except Exception as error:
            outcomes = [error] * len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            call.outcome = outcome

    return write


@planted("turret.service.stores.sqlite.histories:SqliteHistory._write_group", "service/test_stores_sqlite.py")
def a_group_of_events_has_no_bound(original: Function) -> Function:
    return seeing(original, _GROUP_EVENTS=1 << 30)


@planted("turret.data.errors:TurretError.__str__", "data/test_text.py")
def the_address_of_a_store_shows_its_password(original: Function) -> Function:
    return Exception.__str__


@planted("turret.service.http.admission:Admission.__call__", "service/test_http_admission.py")
def an_unread_answer_keeps_no_place(original: Function) -> Function:
    return seeing(original, SMALL_ANSWER=1 << 40)


@planted("turret.service.http.admission:Admission._forget", "service/test_http_admission.py")
def bytes_of_bodies_are_counted_for_ever(original: Function) -> Function:
    def end(self: Any, request: Any) -> None:
        request.size = 0
        original(self, request)

    return end


@planted("turret.service.http.admission:Admission._hold", "service/test_http_admission.py")
def bodies_of_all_connections_are_not_bounded(original: Function) -> Function:
    def add(self: Any, request: Any, count: int, is_whole: bool) -> None:
        request.size += count
        self.held_bytes += count

    return add


@planted("turret.service.http.guard:Guard._check", "service/test_http_guard.py")
def the_framing_of_a_body_is_not_counted(original: Function) -> Function:
    return seeing(original, FRAMING_BYTES=1 << 40)


@planted("turret.service.http.guard:Guard.on_headers_complete", "service/test_http_fuzz.py")
def trailers_become_headers(original: Function) -> Function:
    def on_headers_complete(self: Any) -> None:
        headers = self.headers
        original(self)
        self.headers = headers

    return on_headers_complete


@planted("turret.service.stores.sqlite.histories:SqliteHistory.move", "contracts/test_stores.py")
def an_event_that_comes_during_a_login_is_lost(original: Function) -> Function:
    async def move(self: Any, user: str, to: str) -> int:
        _, events = await self.events(user, 1_000_000)
        moved: int = await self.append([event._replace(user=to) for event in events])
        await self.forget(user)
        return moved

    return move
