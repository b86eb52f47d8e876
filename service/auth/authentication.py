"""Authentication by API keys, with scopes and rate limits."""

from collections import Counter
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service.auth.access import needed_scope
from turret.service.auth.guesses import Guesses, network_of
from turret.service.auth.keyring import Keyring
from turret.service.auth.rate_limit import Buckets
from turret.service.error_responses import refused
from turret.service.errors import (
    ForbiddenError,
    GuessLimitError,
    NotFoundError,
    RateLimitError,
    RequestError,
    UnauthenticatedError,
)
from turret.service.keys.keys import Key, bearer, is_long
from turret.service.keys.keys import Scope as Access

NAMES = 10_000


class Authentication:
    """Refuses calls without a valid key (401), beyond its scope (403) or its rate (429).

    Each of `share` worker processes admits 1/share of a key's rate. `service.auth.guesses` limits comparisons
    of wrong keys. `refusals` counts by reason: missing, wrong, throttled, scope, rate. `metrics_open` makes
    /metrics public; `admin_here` is false where the admin calls have another port.
    """

    def __init__(
        self,
        app: ASGIApp,
        keyring: Keyring,
        metrics_open: bool = True,
        admin_here: bool = True,
        share: int = 1,
        wrong: Guesses | None = None,
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._metrics_open = metrics_open
        self._admin_here = admin_here
        self._share = share
        self._wrong = Guesses() if wrong is None else wrong
        self._rates = Buckets(NAMES)
        self.refusals: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its key in `scope["turret"]["key"]`, or refuse it."""
        if scope["type"] == "http":
            try:
                self._admit(scope)
            except RequestError as error:
                await refused(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def is_admissible(self, scope: Scope) -> bool:
        """Whether a request will certainly be admitted, so that its body may be awaited before it starts.

        No side effects, never raises. False means "perhaps not": the request starts without its body, and is
        refused or reads the body as it arrives. It is False for every key short enough to be guessed:
        comparing it here, before the address behind a proxy is known, would be an uncounted guess.
        """
        needed = self._required(scope)
        if needed is None:
            return True
        authorization = _authorization(scope["headers"])
        secret = bearer(authorization)
        if secret is None or not is_long(secret) or (needed == "admin" and not self._admin_here):
            return False
        key = self._keyring.find(authorization)
        return key is not None and needed in key.scopes

    def _required(self, scope: Scope) -> Access | None:
        """The scope that a call requires now, None if it is public."""
        path: str = scope["path"]
        needed = needed_scope(scope["method"], path)
        if needed is None or needed == "admin":
            return needed
        if (self._metrics_open and path == "/metrics") or self._keyring.admits_all():
            return None
        return needed

    def _admit(self, scope: Scope) -> None:
        path: str = scope["path"]
        needed = self._required(scope)
        if needed == "admin" and not self._admin_here:
            raise _wrong_port(path)
        if needed is None:
            return
        authorization = _authorization(scope["headers"])
        key = self._find(scope, authorization, needed)
        if needed not in key.scopes:
            raise self._missing_scope(key, needed)
        if key.rate is not None:
            self._take(key, key.rate)
        _set_key(scope, key)

    def _find(self, scope: Scope, authorization: bytes | None, needed: str) -> Key:
        """Find the key. Raises RequestError if it is unknown, or may not be compared now."""
        if not authorization:
            raise self._unauthenticated("missing", "is missing", needed)
        secret, network = bearer(authorization) or authorization, network_of(_host(scope))
        if wait := self._wrong.wait(secret, network):
            raise self._throttled(wait)
        key = self._keyring.find(authorization)
        if key is not None:
            return key
        if wait := self._wrong.count(secret, network):
            raise self._throttled(wait)
        raise self._unauthenticated("wrong", "is wrong, revoked or expired", needed)

    def _take(self, key: Key, rate: float) -> None:
        burst = max(1.0, key.bucket_size / self._share)
        if wait := self._rates.take(key.name, rate / self._share, burst):
            self.refusals["rate"] += 1
            raise RateLimitError(
                "Authorization",
                None,
                f"key {key.name} exceeds its {rate:g} requests a second; retry in {wait:.2g} seconds",
                wait,
            )

    def _missing_scope(self, key: Key, needed: str) -> RequestError:
        self.refusals["scope"] += 1
        named = f"the key {key.name}" if key.name else "the admin key"
        has = " and ".join(sorted(key.scopes))
        return ForbiddenError(
            "Authorization",
            None,
            f"this call requires the scope {needed}, and {named} has {has}; send another key",
        )

    def _throttled(self, wait: float) -> RequestError:
        self.refusals["throttled"] += 1
        return GuessLimitError(
            "Authorization",
            None,
            "too many wrong keys from this address; retry with the right one after Retry-After",
            wait,
        )

    def _unauthenticated(self, reason: str, fault: str, needed: str) -> RequestError:
        self.refusals[reason] += 1
        where = (
            "the key from TURRET_ADMIN_KEY or from the service's file admin.key, or one"
            if needed == "admin"
            else "a key"
        )
        return UnauthenticatedError(
            "Authorization",
            None,
            f"the key {fault}; send 'Authorization: Bearer KEY' with {where} of the scope {needed} "
            "(turret keys new makes one)",
        )


def _set_key(scope: Scope, key: Key) -> None:
    scope.setdefault("turret", {})["key"] = key


def _wrong_port(path: str) -> RequestError:
    return NotFoundError(
        "path",
        path,
        "admin calls have their own port, --admin-port, by default the one after --port; call that, as in "
        "turret activate VERSION --url http://127.0.0.1:8001",
    )


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"authorization":
            return value
    return None


def _host(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
