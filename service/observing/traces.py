"""Traces by OpenTelemetry's SDK. Imported only where traces are configured."""

import threading
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from starlette.types import Scope

from turret.service.request_record import RequestRecord


class Traces:
    """Makes a span for each request but probes, and a span for each of its stages.

    `share` of the requests are traced; a request with a `traceparent` follows its caller's decision. The
    default exporter is OTLP over HTTP, configured by `OTEL_EXPORTER_OTLP_*` in the environment. The SDK sends
    spans in batches, in a thread, and logs what the collector does not take; a slow collector delays nothing.
    """

    def __init__(self, share: float, exporter: SpanExporter | None = None) -> None:
        resource = Resource.create({"service.name": "turret"})  # overridden by OTEL_SERVICE_NAME
        sampler = ParentBased(TraceIdRatioBased(share))
        self._provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("turret")

    def record(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        """Record a request that was answered just now, without its path and query, which may name users."""
        method, end = scope["method"], time.time_ns()
        request: RequestRecord = scope["turret"]
        attributes = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "turret.request_id": request.request_id,
            "turret.version": request.version or "",
        }
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        span = self._tracer.start_span(
            f"{method} {route}",
            extract(headers),
            SpanKind.SERVER,
            attributes,
            start_time=end - _nanoseconds(seconds),
        )
        if span.is_recording():
            if status >= 500:
                span.set_status(StatusCode.ERROR)
            moment = end - sum(map(_nanoseconds, request.stages.values()))
            for name, duration in request.stages.items():
                stage = self._tracer.start_span(name, set_span_in_context(span), start_time=moment)
                moment += _nanoseconds(duration)
                stage.end(moment)
        span.end(end)

    def close(self, seconds: float = 2.0) -> None:
        """Send the queued spans, within `seconds`."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(seconds)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
