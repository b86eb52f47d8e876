"""What a service counts, in a registry of its own."""

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Metrics:
    """Requests by route and status, their latency, the live version, the events that were stored."""

    def __init__(self, live_version: Callable[[], str | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_LiveVersion(live_version))
        self.requests = Counter(
            "turret_requests", "Requests answered", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "turret_request_seconds", "Time to answer", ["route"], registry=self._registry, buckets=_SECONDS
        )
        self.events_stored = Counter("turret_events_stored", "Events stored", registry=self._registry)
        self.activations = Counter(
            "turret_activations", "Attempts to activate a version", ["outcome"], registry=self._registry
        )

        self.reload_failures = Counter(
            "turret_reload_failures", "Versions refused, by the check", ["reason"], registry=self._registry
        )
        self.changed_files = Counter(
            "turret_changed_files", "Files of a live version that were changed", registry=self._registry
        )
        self.shadow_answers = Counter(
            "turret_shadow_answers", "Answers of the shadow", ["outcome"], registry=self._registry
        )
        self.shadow_overlap = Summary(
            "turret_shadow_overlap", "Share of an answer that the shadow gave too", registry=self._registry
        )

    def text(self) -> bytes:
        """Write all of it in the Prometheus text format."""
        return generate_latest(self._registry)


class MetricsMiddleware:
    """Counts and times every request. Plain ASGI: a BaseHTTPMiddleware costs each request a tenth of its "
    "time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and note how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500  # unless an answer starts, the request ended in an exception

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            # Only known routes become labels; a scanner would otherwise fill the memory with paths.
            route = scope.get("turret", {}).get("route") or getattr(scope.get("route"), "path", "unknown")
            self._metrics.requests.labels(route, status).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - start)


class _LiveVersion(Collector):
    def __init__(self, live_version: Callable[[], str | None]) -> None:
        self._live_version = live_version

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "turret_live_version", "1 for the version that is live", labels=["version"]
        )
        if (version := self._live_version()) is not None:
            family.add_metric([version], 1)
        return [family]
