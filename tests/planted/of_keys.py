"""Faults of the service's keys: what they admit, guesses and rates."""

from typing import Any

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.keys.keys:Keys.find", "service/test_keys.py")
def a_key_expires_a_moment_too_late(original: Function) -> Function:
    return lambda self, authorization, now: original(self, authorization, now - 1.0)


@planted("turret.service.keys.keys:Keys.find", "service/test_keys.py")
def a_short_named_key_of_the_file_is_accepted(original: Function) -> Function:
    return seeing(original, MIN_LENGTH=0)


@planted("turret.service.keys.keys:bearer", "service/test_keys.py")
def the_scheme_of_a_key_is_case_sensitive(original: Function) -> Function:
    def bearer(authorization: bytes | None) -> Any:
        return original(authorization) if authorization and authorization[:1] == b"B" else None

    return bearer


@planted("turret.service.auth.keyring:Keyring._read", "service/test_keyring.py")
def a_damaged_key_file_drops_the_keys_read_before(original: Function) -> Function:
    def read(self: Any) -> None:
        before, self._keys = self._content, original.__globals__["Keys"]({})
        try:
            original(self)
        finally:
            if self._content == before:
                self._content = b"changed"

    return read


@planted("turret.service.auth.keyring:Keyring.is_open", "service/test_keyring.py")
def a_deleted_key_file_opens_the_service(original: Function) -> Function:
    return lambda self: original(self) or not self.path.exists()


@planted("turret.service.auth.keyring:Keyring.admits_all", "service/test_keyring.py")
def a_service_of_unknown_keys_is_open(original: Function) -> Function:
    def admits_all(self: Any) -> Any:
        original(self)
        return self.is_open

    return admits_all


@planted("turret.service.keys.key_file:_replace", "service/test_keys.py", "service/test_auth.py")
def the_key_file_is_open_to_other_users(original: Function) -> Function:
    make = original.__globals__["new_file"]
    return seeing(original, new_file=lambda path, mode: make(path, mode=0o644))


@planted("turret.service.auth.admin_key:_read", "service/test_auth.py", "service/test_keys.py")
def others_may_read_the_admin_key(original: Function) -> Function:
    def read(path: Any) -> Any:
        path.chmod(0o600)
        return original(path)

    return read


@planted("turret.service.auth.access:needed_scope", "service/test_auth.py")
def stored_data_of_users_may_be_read_with_the_scope_read(original: Function) -> Function:
    return seeing(original, _PERSONAL="/nothing")


@planted("turret.service.auth.access:needed_scope", "service/test_auth.py")
def unknown_paths_are_public(original: Function) -> Function:
    def needed_scope(method: str, path: str) -> Any:
        scope = original(method, path)
        return None if scope == "read" and path not in original.__globals__["_READ"] else scope

    return needed_scope


@planted("turret.service.auth.authentication:Authentication._take", "service/test_auth.py")
def every_worker_admits_the_whole_rate_of_a_key(original: Function) -> Function:
    return lambda self, key, rate: original(self, key, rate * self._share)


@planted("turret.service.auth.guesses:network_of", "service/test_auth.py")
def addresses_of_one_ipv6_customer_are_many(original: Function) -> Function:
    return lambda host: host if ":" in host else original(host)


@planted("turret.service.auth.rate_limit:Bucket.take", "service/test_auth.py")
def a_refused_call_takes_a_token(original: Function) -> Function:
    def take(self: Any, now: float) -> Any:
        wait = original(self, now)
        self._tokens -= bool(wait)
        return wait

    return take


@planted("turret.service.auth.rate_limit:Bucket._available", "service/test_auth.py")
def a_bucket_grows_without_end(original: Function) -> Function:
    return lambda self, now: self._tokens + (now - self._at) * self.rate


@planted("turret.service.auth.rate_limit:Buckets.take", "service/test_auth.py")
def of_many_addresses_the_oldest_is_dropped(original: Function) -> Function:
    def take(self: Any, name: str, rate: float, burst: float) -> Any:
        bucket = self._bucket(name, rate, burst)
        return original(self, name, rate, burst) if bucket is None else bucket.take(self._clock())

    return take
