"""The outermost layer: request ids, security headers, metrics and the access log of every request."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turret.service.calls import call_of
from turret.service.error_responses import refused, unexpected
from turret.service.errors import TimedOutError
from turret.service.observing.logs import ACCESS, trace_of
from turret.service.observing.metrics import Metrics
from turret.service.security_headers import Headers, SecurityHeaders

HEADER = b"x-request-id"
_USABLE = re.compile(rb"[!-~]{1,128}").fullmatch
_log = logging.getLogger("turret")
_TRACE_PARENT = b"traceparent"
_LAST = (b"connection", b"close")
# Refusals by inner layers; `Admission` and the guard count theirs.
_REFUSALS = {401: "key", 403: "scope", 413: "size", 429: "rate"}
_CLASSES = {2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}


class Edge:
    """Wraps an application and all its other layers.

    `scope["turret"]` is a dict with `request_id` and `stages` (name -> seconds), which inner layers fill.
    They may also set `version`, `key` (with a `name`) and `degraded` (names). An unhandled exception is
    logged once and answered with 500, a request that a server cancels as it ends with 503. The page may load
    pictures from the origins `pictures`. While the service `is_draining`, an answer is the last of its
    connection. `trace` receives the scope, route, status and seconds of each request but probes.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        pictures: Sequence[str] = (),
        is_draining: Callable[[], bool] = lambda: False,
        trace: Callable[[Scope, str, int, float], None] | None = None,
    ) -> None:
        self._app = app
        self._trace = trace
        self._metrics = metrics
        self._security = SecurityHeaders(pictures)
        self._is_draining = is_draining
        self._routes: dict[str, _Route] = {}
        self._stages: dict[str, Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request and record its outcome."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        client_id = parent = None
        for name, value in scope["headers"]:
            if name == HEADER:
                client_id = value
            elif name == _TRACE_PARENT:
                parent = value
        identifier = request_id(client_id)
        facts: dict[str, Any] = {"request_id": identifier, "stages": {}}
        scope["turret"] = facts
        headers = (*self._security.of(scope["path"]), (HEADER, identifier.encode("ascii")))
        if self._is_draining():
            headers = (*headers, _LAST)
        sending = _Sending(send, headers)
        self._metrics.running += 1
        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            await _fail(error, scope, receive, sending)
        except asyncio.CancelledError:
            if sending.status:
                raise
            await self._time_out(scope, receive, sending)
        finally:
            self._metrics.running -= 1
            seconds = (sending.began or time.perf_counter()) - start
            self._record(scope, facts, sending.status or 500, seconds, parent)

    async def _time_out(self, scope: Scope, receive: Receive, sending: "_Sending") -> None:
        """Answer a request that was cancelled, so that it counts as an error."""
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        self._metrics.count_refusal("time")
        await refused(TimedOutError())(scope, receive, sending)

    def _record(
        self, scope: Scope, facts: dict[str, Any], status: int, seconds: float, parent: bytes | None
    ) -> None:
        route = self._route(scope)
        route.count(status, seconds)
        if status in _REFUSALS:
            self._metrics.count_refusal(_REFUSALS[status])
        for name, duration in facts["stages"].items():
            stage = self._stages.get(name)
            if stage is None:
                stage = self._stages[name] = self._metrics.stages.labels(name)
            stage.observe(duration)
        degraded = facts.get("degraded") or ()
        for part in degraded:
            self._metrics.degraded.labels(part).inc()
        if self._trace is not None and not route.is_probe:
            self._trace(scope, route.name, status, seconds)
        if route.is_probe and status < 400:
            return
        level = logging.WARNING if status >= 500 else logging.INFO
        if ACCESS.isEnabledFor(level):
            fields = {
                "request_id": facts["request_id"],
                "method": scope["method"],
                "route": route.name,
                "status": status,
                "seconds": round(seconds, 6),
                "version": facts.get("version"),
                "key": getattr(facts.get("key"), "name", None),
                "degraded": degraded,
                "client": scope["client"][0] if scope.get("client") else None,
            }
            if parent is not None and (trace := trace_of(parent)) is not None:
                fields["trace_id"] = trace
            # `ACCESS.log` would first look for the line that called it.
            extra = {"fields": fields}
            ACCESS.handle(
                ACCESS.makeRecord(ACCESS.name, level, __file__, 0, "answered", (), None, extra=extra)
            )

    def _route(self, scope: Scope) -> "_Route":
        name = call_of(scope["method"], scope["path"]).name
        route = self._routes.get(name)
        if route is None:
            route = self._routes[name] = _Route(self._metrics, name)
        return route


class _Sending:
    """Adds headers to the response and remembers its status.

    `began` is when the response did: a client may take its time to read it.
    """

    __slots__ = ("_headers", "_send", "began", "status")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.status = 0
        self.began = 0.0

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.began = time.perf_counter()
            message["headers"] = [*message.get("headers", ()), *self._headers]
        return self._send(message)


class _Route:
    """The metrics of one route."""

    __slots__ = ("_counts", "_metrics", "_seconds", "is_probe", "name")

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics = metrics
        self._counts: dict[int, Counter] = {}
        self._seconds: dict[int, Histogram] = {}
        self.name = name
        self.is_probe = name in ("/livez", "/readyz", "/metrics")

    def count(self, status: int, seconds: float) -> None:
        if status not in self._counts:
            self._counts[status] = self._metrics.requests.labels(self.name, str(status))
            label = _CLASSES.get(status // 100, "other")
            self._seconds[status] = self._metrics.seconds.labels(self.name, label)
        self._counts[status].inc()
        self._seconds[status].observe(seconds)


class _Numbers:
    """A random prefix per process and a counter, which is cheaper than a random id each."""

    def __init__(self) -> None:
        self._prefix = os.urandom(8).hex()
        self._count = count(1)

    def next(self) -> str:
        return f"{self._prefix}-{next(self._count):x}"


_numbers = _Numbers()


def request_id(header: bytes | None) -> str:
    """Return the value of `X-Request-ID` if it has 1 to 128 visible ASCII characters, else a new id."""
    if header is not None and _USABLE(header):
        return header.decode("ascii")
    return _numbers.next()


def _renew() -> None:
    global _numbers
    _numbers = _Numbers()


os.register_at_fork(after_in_child=_renew)


async def _fail(error: Exception, scope: Scope, receive: Receive, sending: _Sending) -> None:
    facts = scope["turret"]
    _log.error(
        "unhandled exception in a request: %s",
        type(error).__name__,
        exc_info=error,
        extra={"fields": {"request_id": facts["request_id"]}},
    )
    if sending.status == 0:
        await unexpected(scope)(scope, receive, sending)
    sending.status = 500
