"""The layer that refuses requests without a key of the scope that their call requires."""

import math
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service.calls import has_admin_calls
from turret.service.errors import AccessError, NotFoundError
from turret.service.keys.keys import Key, Keyring
from turret.service.request_record import RequestRecord


class Authentication:
    """Refuses calls without a valid key (401), beyond its scope (403) or its rate (429).

    Each of `share` worker processes admits 1/share of a key's rate. `metrics_open` makes /metrics public;
    `admin_port` is the only port with admin calls (None: they are on every port).
    """

    def __init__(
        self,
        app: ASGIApp,
        keyring: Keyring,
        metrics_open: bool = True,
        admin_port: int | None = None,
        share: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._metrics_open = metrics_open
        self._admin_port = admin_port
        self._share = share
        self._clock = clock
        # The time of the next request of each key and rate. Only keys of the file have a rate: they are few.
        self._next: dict[tuple[str, float], float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its key in its record. Raises RequestError."""
        record: RequestRecord = scope["turret"]
        needed, _, name, _ = record.call
        if needed == "admin" and not has_admin_calls(scope["server"], self._admin_port):
            raise NotFoundError(
                "path",
                scope["path"],
                "admin calls have their own port, --admin-port, by default the one after --port; call "
                "that, as in turret activate VERSION --url http://127.0.0.1:8001",
            )
        is_open = needed not in ("admin", "rules") and self._keyring.is_open
        if needed is not None and not is_open and not (self._metrics_open and name == "/metrics"):
            record.key = self._checked(needed, record.headers.get(b"authorization"))
        await self._app(scope, receive, send)

    def _checked(self, needed: str, authorization: bytes | None) -> Key:
        """The key of a call that needs this scope. Raises AccessError."""
        key = self._keyring.find(authorization)
        if key is None:
            fault = "is wrong, revoked or expired" if authorization else "is missing"
            admin = "the key from TURRET_ADMIN_KEY or from the service's file admin.key, or "
            admin = admin if needed in ("admin", "rules") else ""
            raise _refused(
                401,
                f"the key {fault}; send 'Authorization: Bearer KEY' with {admin}"
                f"a key of the scope {needed} (turret keys new makes one)",
            )
        if needed not in key.scopes:
            named = f"the key {key.name}" if key.name else "the admin key"
            has = " and ".join(sorted(key.scopes))
            raise _refused(
                403, f"this call requires the scope {needed}, and {named} has {has}; send another key"
            )
        if key.rate is not None:
            self._take(key, key.rate)
        return key

    def _take(self, key: Key, rate: float) -> None:
        """Count a request; the requests of a second may come at once. Raises AccessError beyond the rate."""
        now, part = self._clock(), rate / self._share
        following = max(self._next.get((key.name, rate), -math.inf), now - max(0.0, 1 - 1 / part))
        if (wait := following - now) > 1e-9:  # more than an error of rounding
            message = f"key {key.name} exceeds its {rate:g} requests a second; retry in {wait:.2g} seconds"
            raise _refused(429, message, wait)
        self._next[key.name, rate] = following + 1 / part


def _refused(status: int, message: str, retry_after: float | None = None) -> AccessError:
    return AccessError("Authorization", None, message, retry_after, status)
