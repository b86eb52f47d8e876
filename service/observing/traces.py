"""Traces of requests; OpenTelemetry is imported only if traces are configured."""

import os
import re
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.types import ASGIApp

from turret.data.errors import without_credentials
from turret.data.extras import install_command
from turret.service.errors import ServiceError

# Version, trace, parent span, flags (W3C Trace Context, 3.2); later versions may append fields. The log needs
# the trace id without OpenTelemetry installed, whose propagator the traces use.
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")


class Traced(Protocol):
    """Traces requests; see `tracing.Tracing`."""

    def around(self, app: ASGIApp) -> ASGIApp:
        """Trace an application."""

    def describe(self, method: str, route: str, facts: Mapping[str, Any]) -> None:
        """Describe the running request."""

    def take_dropped(self) -> int:
        """Return the number of spans dropped since the last call."""

    def close(self) -> None:
        """Stop within seconds, sent or not."""


def trace_of(parent: bytes) -> str | None:
    """Return the trace id of a valid `traceparent` header, else None."""
    match = _PARENT.fullmatch(parent)
    return match[1].decode("ascii") if match else None


def open_traces(enabled: bool | None, share: float) -> Traced | None:
    """Open traces if `enabled` or, where that is None, if the environment names an endpoint.

    Raises ServiceError when OpenTelemetry isn't installed, and for an endpoint or a header that is none.
    """
    named = {name: address for name in _ENDPOINTS if (address := os.environ.get(name))}
    if enabled is False or (enabled is None and not named):
        return None
    for name, address in named.items():
        if not address.startswith(("http://", "https://")):
            shown = without_credentials(address)
            raise ServiceError(f"{name} can't be {shown!r}; give a URL like http://HOST:4318")
    for name in _HEADERS:  # OpenTelemetry would log a wrong entry, with its key
        if any("=" not in entry for entry in os.environ.get(name, "").split(",") if entry.strip()):
            raise ServiceError(f"{name} has an entry without =; write NAME=VALUE, separated by commas")
    try:
        from turret.service.observing.tracing import Tracing
    except ImportError:
        why = "traces is true" if enabled else "OTEL_EXPORTER_OTLP_ENDPOINT is set"
        raise ServiceError(
            f"{why}, but OpenTelemetry is not installed; "
            f"run: {install_command('otel')}, or set TURRET_TRACES=false"
        ) from None
    return Tracing(share)
