"""Faults of the service's keys: what they admit, and rates."""

from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.keys.keys:find_key", "service/test_keys.py")
def a_key_expires_a_moment_too_late(original: Function) -> Function:
    return lambda keys, authorization, now: original(keys, authorization, now - 1.0)


@planted("turret.service.keys.keys:find_key", "service/test_keys.py")
def a_short_named_key_of_the_file_is_accepted(original: Function) -> Function:
    return seeing(original, MIN_LENGTH=0)


@planted("turret.service.keys.keys:find_key", "service/test_keys.py")
def the_scheme_of_a_key_is_case_sensitive(original: Function) -> Function:
    def find_key(keys: Any, authorization: bytes | None, now: float) -> Any:
        return original(keys, authorization, now) if authorization and authorization[:1] == b"B" else None

    return find_key


@planted("turret.service.keys.keyring:Keyring._read", "service/test_keys.py")
def a_damaged_key_file_drops_the_keys_read_before(original: Function) -> Function:
    def read(self: Any) -> None:
        before, self._keys = self._keys, self._admin
        original(self)
        if self._keys is self._admin:
            self._keys = before

    return read


@planted("turret.service.keys.keyring:Keyring._read", "service/test_keys.py")
def a_deleted_key_file_opens_the_service(original: Function) -> Function:
    def read(self: Any) -> None:
        self._was_found = self._was_found and self._path.exists()
        original(self)

    return read


@planted("turret.service.keys.keyring:Keyring.load", "service/test_keys.py")
def a_service_that_can_not_look_for_its_key_file_stays_open(original: Function) -> Function:
    def load(self: Any) -> None:
        was_open = self.is_open
        original(self)
        self.is_open = was_open

    return load


@planted("turret.service.keys.key_file:stamp_of", "service/test_keys.py")
def a_key_file_that_changed_just_now_counts_as_settled(original: Function) -> Function:
    return seeing(original, _SETTLED_SECONDS=-60.0)


@planted("turret.service.keys.key_file:_replace", "service/test_keys.py")
def the_key_file_is_open_to_other_users(original: Function) -> Function:
    make = original.__globals__["new_file"]
    return seeing(original, new_file=lambda path, mode: make(path, mode=0o644))


@planted("turret.service.keys.keyring:_read_private", "service/test_keys.py")
def others_may_read_the_admin_key(original: Function) -> Function:
    def read(path: Any) -> Any:
        path.chmod(0o600)
        return original(path)

    return read


@planted("turret.service.calls:call_of", "service/test_calls.py")
def stored_data_of_users_may_be_read_with_the_scope_read(original: Function) -> Function:
    def call_of(method: str, path: str) -> Any:
        call = original(method, path)
        return call._replace(scope="read") if path.startswith("/v1/users/") else call

    return call_of


@planted("turret.service.calls:call_of", "service/test_calls.py")
def unknown_paths_are_public(original: Function) -> Function:
    def call_of(method: str, path: str) -> Any:
        call = original(method, path)
        return call._replace(scope=None) if call.name == "unknown" and call.scope == "read" else call

    return call_of


@planted("turret.service.calls:call_of", "service/test_calls.py", "service/test_wire_limits.py")
def changes_of_items_take_places_of_recommendations(original: Function) -> Function:
    def call_of(method: str, path: str) -> Any:
        call = original(method, path)
        return call._replace(lane="recommend") if method in ("PUT", "DELETE") else call

    return call_of


@planted("turret.service.keys.access:Authentication._take", "service/test_keys_access.py")
def every_worker_admits_the_whole_rate_of_a_key(original: Function) -> Function:
    return lambda self, key, rate: original(self, key, rate * self._share)


@planted("turret.service.keys.access:Bucket.take", "service/test_keys_access.py")
def a_refused_call_takes_a_token(original: Function) -> Function:
    def take(self: Any, now: float) -> Any:
        wait = original(self, now)
        self._tokens -= bool(wait)
        return wait

    return take


@planted("turret.service.keys.access:Bucket.take", "service/test_keys_access.py")
def a_bucket_grows_without_end(original: Function) -> Function:
    return seeing(original, min=lambda _, tokens: tokens)
