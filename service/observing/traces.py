"""Traces by OpenTelemetry's ASGI instrumentation, which costs each request that may be traced some 70 µs.

Imported only where traces are configured.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turret.service.calls import call_of

_PROBES = ("/livez", "/readyz", "/metrics")
_WHOLE = "turret.scope"


class Traces:
    """Makes a span for each request but probes, and one for each of its stages.

    `share` of the requests are traced; a request with a `traceparent` follows its caller's decision. The
    default exporter is OTLP over HTTP, configured by `OTEL_EXPORTER_OTLP_*` in the environment. The SDK sends
    spans in batches, in a thread; a slow or missing collector delays nothing. `drop` is called with the
    number of spans that the collector did not take.
    """

    def __init__(
        self, share: float, drop: Callable[[int], None], exporter: SpanExporter | None = None
    ) -> None:
        # The stable names of the attributes.
        os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
        resource = Resource.create({"service.name": "turret"})  # overridden by OTEL_SERVICE_NAME
        sampler = ParentBased(TraceIdRatioBased(share))
        self._provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        exporter = _Counting(OTLPSpanExporter() if exporter is None else exporter, drop)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("turret")

    def around(self, app: ASGIApp) -> ASGIApp:
        """Trace an application. Paths and queries, which may name users, are kept from the spans."""

        async def inner(scope: Scope, receive: Receive, send: Send) -> None:
            whole = scope[_WHOLE]

            async def described(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._describe(whole)
                await send(message)

            await app(whole, receive, described)

        instrumented = OpenTelemetryMiddleware(
            inner,
            default_span_details=lambda scope: (scope["method"], {}),
            tracer_provider=self._provider,
            exclude_spans=["receive", "send"],
        )

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] in _PROBES:
                await app(scope, receive, send)
            else:
                shown = {**scope, "path": "", "raw_path": b"", "query_string": b"", _WHOLE: scope}
                await instrumented(shown, receive, send)

        return traced

    def close(self, seconds: float = 2.0) -> None:
        """Send the queued spans, within `seconds`."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(seconds)

    def _describe(self, scope: Scope) -> None:
        """Name the span of a request by its route, and add its stages, as its response begins."""
        span = trace.get_current_span()
        if not span.is_recording():
            return
        facts, route = scope["turret"], call_of(scope["method"], scope["path"]).name
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
        span.set_attribute("turret.request_id", facts["request_id"])
        span.set_attribute("turret.version", facts.get("version") or "")
        moment = time.time_ns() - sum(map(_nanoseconds, facts["stages"].values()))
        for name, seconds in facts["stages"].items():
            stage = self._tracer.start_span(name, start_time=moment)
            moment += _nanoseconds(seconds)
            stage.end(moment)


class _Counting(SpanExporter):
    """Counts the spans that its exporter does not send."""

    def __init__(self, exporter: SpanExporter, drop: Callable[[int], None]) -> None:
        self._exporter = exporter
        self._drop = drop

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is not SpanExportResult.SUCCESS:
                self._drop(len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
