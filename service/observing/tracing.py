"""Traces by OpenTelemetry's ASGI instrumentation, which costs each request that may be traced some 70 µs."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from starlette.types import ASGIApp, Receive, Scope, Send

_PROBES = ("/livez", "/readyz", "/metrics")
_WHOLE = "turret.scope"


class Tracing:
    """Makes a span for each request but probes, and one for each of its stages.

    `share` of the requests are traced; a request with a `traceparent` follows its caller's decision. The
    default exporter is OTLP over HTTP, configured by `OTEL_EXPORTER_OTLP_*` in the environment. The SDK sends
    spans in batches, in a thread; a slow or missing collector delays nothing.
    """

    def __init__(self, share: float, exporter: SpanExporter | None = None) -> None:
        # The stable names of the attributes.
        os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
        self._exporter = _Counting(OTLPSpanExporter() if exporter is None else exporter)
        resource = Resource.create({"service.name": "turret"})  # overridden by OTEL_SERVICE_NAME
        sampler = ParentBased(TraceIdRatioBased(share))
        self._provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("turret")
        self._told = 0

    def around(self, app: ASGIApp) -> ASGIApp:
        """Trace an application. Paths and queries, which may name users, are kept from the spans."""

        async def inner(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope[_WHOLE], receive, send)

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

    def describe(self, method: str, route: str, facts: Mapping[str, Any]) -> None:
        """Name the span of the running request by its route, and add its stages; as its response begins."""
        span = trace.get_current_span()
        if not span.is_recording():
            return
        span.update_name(f"{method} {route}")
        span.set_attributes(
            {
                "http.route": route,
                "turret.request_id": facts["request_id"],
                "turret.version": facts.get("version") or "",
            }
        )
        stages = facts["stages"]
        moment = time.time_ns() - sum(map(_nanoseconds, stages.values()))
        for name, seconds in stages.items():
            stage = self._tracer.start_span(name, start_time=moment)
            moment += _nanoseconds(seconds)
            stage.end(moment)

    def take_dropped(self) -> int:
        """Return the number of spans since the last call that the collector didn't take."""
        failed = self._exporter.failed
        new, self._told = failed - self._told, failed
        return new

    def close(self, seconds: float = 2.0) -> None:
        """Send the queued spans, within `seconds`."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(seconds)


class _Counting(SpanExporter):
    """Counts failed spans; only the SDK's thread exports."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self.failed += len(spans) if result is not SpanExportResult.SUCCESS else 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
