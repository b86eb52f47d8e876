"""The outermost layer: request ids, security headers, metrics and the access log of every request."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from random import getrandbits

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turret.service.calls import EXACT, find
from turret.service.error_responses import response_to, write_error
from turret.service.errors import TimedOutError, without_frames
from turret.service.observing.logs import Fields, trace_of
from turret.service.observing.metrics import Metrics
from turret.service.request_record import RequestRecord

Headers = tuple[tuple[bytes, bytes], ...]

_ID, _TRACE_PARENT = b"x-request-id", b"traceparent"
_USABLE = re.compile(rb"[!-~]{1,128}").fullmatch
_log = logging.getLogger("turret")
_LAST = (b"connection", b"close")
_PROBES = frozenset({"/livez", "/readyz", "/metrics"})
# Stages of one in so many requests are observed: six histograms took four of a request's 150 microseconds.
STAGES_OF_ONE_IN = 10
# Inner layers refuse requests by these statuses; `Admission` and the guard count their own refusals.
_REFUSALS = {401: "key", 403: "scope", 413: "size", 429: "rate"}

# For browsers: no type sniffing, no frames, and a policy of what a page may load.
_POLICY = b"content-security-policy"
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NO_REFERRER = (b"referrer-policy", b"no-referrer")
# JSON has only three headers: each header costs about half a microsecond to write.
DATA_HEADERS: Headers = (
    _NO_SNIFFING,
    (b"cache-control", b"no-store"),
    (_POLICY, b"default-src 'none'; frame-ancestors 'none'"),
)
_BOUNDS = b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# The page at /docs has an inline style, and loads and runs nothing.
_DOCS_HEADERS: Headers = (
    _NO_SNIFFING,
    _NO_REFERRER,
    (_POLICY, b"default-src 'none'; style-src 'unsafe-inline'; " + _BOUNDS),
)


def _page_headers(pictures: Sequence[str]) -> Headers:
    """The headers of the page, which loads all from its own service, and pictures also from these origins.

    A browser asks for a cached file again, which costs a 304: a release may have replaced it, and all files
    have to be of one release.
    """
    images = " ".join(("img-src 'self' data:", *pictures)).encode("ascii")
    files = b"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; "
    return (
        _NO_SNIFFING,
        _NO_REFERRER,
        (b"cache-control", b"no-cache"),
        (_POLICY, files + images + b"; " + _BOUNDS),
    )


class Edge:
    """Wraps an application and all its other layers.

    `scope["turret"]` is the `RequestRecord`, which inner layers fill. All errors are answered here, with
    paths relative to the folder `bundles`; an unexpected error is logged once and answered with 500, and a
    request that the server cancels at its end with 503. The page may load pictures from the origins
    `pictures`.
    While the service `is_draining`, an answer is the last of its connection. `trace` receives the scope,
    route, status and seconds of each request but probes, and `log` the level and the fields of its line, also
    for probes that fail.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        bundles: Path | None = None,
        pictures: Sequence[str] = (),
        is_draining: Callable[[], bool] = lambda: False,
        trace: Callable[[Scope, str, int, float], None] | None = None,
        log: Callable[[int, Fields], None] | None = None,
    ) -> None:
        self._app = app
        self._trace = trace
        self._log = log
        self._metrics = metrics
        self._bundles = bundles
        page = _page_headers(pictures)
        self._security = dict.fromkeys(("/", "/page/{path}", "/page/settings.json"), page)
        self._security["/docs"] = _DOCS_HEADERS
        self._is_draining = is_draining
        # Looking up labels takes longer than counting.
        self._labelled = cache(
            lambda route, status: (
                metrics.requests.labels(route, str(status)),
                metrics.seconds.labels(route, f"{status // 100}xx"),
            )
        )
        self._stage = cache(metrics.stages.labels)
        self._staged = 0  # requests with stages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request and record its outcome."""
        start = time.perf_counter()
        headers = dict(scope["headers"])
        called, received = (scope["method"], scope["path"]), time.time_ns() // 1_000_000
        call, identifier = EXACT.get(called) or find(*called), request_id(headers.get(_ID))
        scope["turret"] = record = RequestRecord(call, headers, identifier, received)
        status, began = 0, 0.0  # a client may take its time to read the response

        def sending(message: Message) -> Awaitable[None]:
            nonlocal status, began
            if message["type"] == "http.response.start":
                status, began = message["status"], time.perf_counter()
                security = self._security.get(record.call.name, DATA_HEADERS)
                last = (_LAST,) if self._is_draining() else ()
                more = (_ID, identifier.encode("ascii")), *last
                message["headers"] = [*message.get("headers", ()), *security, *more]
            return send(message)

        self._metrics.running += 1
        try:
            await self._app(scope, receive, sending)
        except (Exception, asyncio.CancelledError) as raised:
            if isinstance(raised, asyncio.CancelledError):
                task = asyncio.current_task()
                if status or task is None:
                    raise
                task.uncancel()
                self._metrics.count_refusal("time")
            response = self._response_to(raised, scope, record, is_begun=bool(status))
            if status:
                status = 500
            else:
                await response(scope, receive, sending)
        finally:
            self._metrics.running -= 1
            seconds = (began or time.perf_counter()) - start
            self._record(scope, record, status or 500, seconds)

    def _response_to(
        self, raised: BaseException, scope: Scope, record: RequestRecord, is_begun: bool
    ) -> Response:
        """Write the response to an error, and log a fault of the service; a cancelled request is late."""
        error = raised if isinstance(raised, Exception) else TimedOutError()
        response = response_to(error, scope, self._bundles)
        if response is not None and not is_begun:
            without_frames(raised)
            return response
        name, fields = type(error).__name__, {"fields": {"request_id": record.request_id}}
        _log.error("unhandled exception in a request: %s", name, exc_info=error, extra=fields)
        message = f"internal error; the log of the service has details under request id {record.request_id}"
        return write_error(500, "path", scope["path"], message)

    def _record(self, scope: Scope, record: RequestRecord, status: int, seconds: float) -> None:
        route = record.call.name
        counted, timed = self._labelled(route, status)
        counted.inc()
        timed.observe(seconds)
        if status in _REFUSALS:
            self._metrics.count_refusal(_REFUSALS[status])
        if record.stages:
            if self._staged % STAGES_OF_ONE_IN == 0:
                for name, duration in record.stages.items():
                    self._stage(name).observe(duration)
            self._staged += 1
        for part in record.degraded:
            self._metrics.degraded.labels(part).inc()
        is_probe = route in _PROBES
        if self._trace is not None and not is_probe:
            self._trace(scope, route, status, seconds)
        if self._log is not None and not (is_probe and status < 400):
            fields: Fields = {
                "request_id": record.request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
                "seconds": round(seconds, 6),
                "version": record.version,
                "source": record.source,
                "key": record.key.name if record.key else None,
                "degraded": record.degraded,
                "client": scope["client"][0] if scope.get("client") else None,
            }
            parent = record.headers.get(_TRACE_PARENT)
            if parent is not None and (trace := trace_of(parent)) is not None:
                fields["trace_id"] = trace
            self._log(logging.WARNING if status >= 500 else logging.INFO, fields)


def request_id(header: bytes | None) -> str:
    """Return the value of `X-Request-ID` if it has 1 to 128 visible ASCII characters, else a new id."""
    if header is not None and _USABLE(header):
        return header.decode("ascii")
    return f"{getrandbits(64):016x}"
