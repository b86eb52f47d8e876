"""Faults of the service's keys: what they admit, and rates."""

from contextlib import contextmanager
from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.keys.keys:find_key", "service/test_keys.py")
def a_short_named_key_of_the_file_is_accepted(original: Function) -> Function:
    return seeing(original, MIN_LENGTH=0)


@planted("turret.service.keys.keys:Keyring._read", "service/test_keys.py")
def a_damaged_key_file_drops_the_keys_read_before(original: Function) -> Function:
    def read(self: Any) -> None:
        before, self._keys = self._keys, self._admin
        original(self)
        if self._keys is self._admin:
            self._keys = before

    return read


@planted("turret.service.keys.keys:Keyring._read", "service/test_keys.py")
def a_deleted_key_file_opens_the_service(original: Function) -> Function:
    def read(self: Any) -> None:
        self._stamp = self._stamp if self._path.exists() else None
        original(self)

    return read


@planted("turret.service.keys.keys:_changing", "service/test_keys.py")
def the_key_file_is_open_to_other_users(original: Function) -> Function:
    changing = original.__wrapped__  # type: ignore[attr-defined]
    make = changing.__globals__["new_file"]
    return contextmanager(seeing(changing, new_file=lambda path, mode: make(path, mode=0o644)))


@planted("turret.service.calls:call_of", "service/test_calls.py")
def stored_data_of_users_may_be_read_with_the_scope_read(original: Function) -> Function:
    def call_of(method: str, path: str) -> Any:
        call = original(method, path)
        return call._replace(scope="read") if path.startswith("/v1/users/") else call

    return call_of


@planted("turret.service.calls:call_of", "service/test_calls.py")
def changes_of_items_take_places_of_recommendations(original: Function) -> Function:
    def call_of(method: str, path: str) -> Any:
        call = original(method, path)
        return call._replace(lane="recommend") if method in ("PUT", "DELETE") else call

    return call_of


@planted("turret.service.http.access:Authentication._take", "service/test_http_access.py")
def every_worker_admits_the_whole_rate_of_a_key(original: Function) -> Function:
    return lambda self, key, rate: original(self, key, rate * self._share)
