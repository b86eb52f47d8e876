"""Faults of the service."""

from typing import Any

from tests.planted.fault import Function, planted


@planted("turret.service.auth.rate_limit:Bucket._available", "service/auth")
def a_bucket_grows_without_end(original: Function) -> Function:
    def available(self: Any, now: float) -> float:
        tokens: float = self._tokens + (now - self._at) * self.rate
        return tokens

    return available
