"""The observation of a worker: metrics, log, traces, recall and drift."""

import asyncio
import logging
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turret.data.errors import without_credentials
from turret.data.extras import install_command
from turret.service.errors import ServiceError
from turret.service.observing.logs import Logs
from turret.service.observing.metrics import SOURCES, Metrics
from turret.service.observing.quality import AnswerRecord, Drift, RecallSampler
from turret.service.observing.recent import STEP_SECONDS
from turret.service.settings import Settings
from turret.tower.bundle.bundle import Bundle
from turret.tower.engines.circuit import Circuit

if TYPE_CHECKING:
    from turret.service.observing.traces import Traces

REFRESH_SECONDS = 1.0

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_log = logging.getLogger("turret.observation")
_files = logging.getLogger("turret.files")


class Observation:
    """Collects the metrics, log and traces of a worker process.

    `live` returns the bundle of the live version or None; `circuits` are those of the store of histories;
    `metrics_folder` and `worker` are arguments of `Metrics`. Raises ServiceError as `open_traces`.
    """

    def __init__(
        self,
        settings: Settings,
        live: Callable[[], Bundle | None],
        circuits: Mapping[str, Circuit],
        metrics_folder: Path | None = None,
        worker: int = 0,
    ) -> None:
        self._get_live = live
        self._circuits = circuits
        self._unavailable: set[str] = set()
        self.metrics = Metrics(metrics_folder, worker)
        # A call of `labels` costs as much as counting.
        self._answers = {source: self.metrics.answers.labels(source) for source in SOURCES}
        self.logs = Logs(settings.log_level, settings.log_format, drop=self.metrics.dropped.inc)
        self.traces = open_traces(settings.trace_share)
        self.recall, self._recall_share = RecallSampler(self.metrics), settings.recall_sample
        self.drift, self._drift_share = Drift(self.metrics), settings.drift_sample
        self.metrics.refresh_with(self._refresh)

    async def close(self) -> None:
        """Stop, waiting a few seconds at most for a blocked log or trace collector."""
        await asyncio.to_thread(self.recall.close)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        await asyncio.to_thread(self.logs.close)

    async def follow(self) -> None:
        """Refresh the gauges and the windows of drift, once a second, and keep a scrape now and then."""
        kept = -math.inf
        while True:
            now = time.monotonic()
            if now - kept >= STEP_SECONDS:
                await self.metrics.remember(now)
                kept = now
            else:
                self.metrics.refresh()
            await asyncio.to_thread(self.drift.follow, self._get_live())
            await asyncio.sleep(REFRESH_SECONDS)

    def answered(self, live: Bundle, records: Sequence[AnswerRecord]) -> None:
        """Count the answers of a call and sample recall and drift, in the event loop's thread."""
        metrics = self.metrics
        for source, count in Counter(record.source for record in records).items():
            self._answers[source].inc(count)
        metrics.history_items.inc(sum(record.known + record.unknown for record in records))
        if unknown := sum(record.unknown for record in records):
            metrics.unknown_items.inc(unknown)
        if empty := sum(not len(record.rows) for record in records):
            metrics.empty_answers.inc(empty)
        for record in records:
            if record.vector is not None and random.random() < self._recall_share:
                self.recall.offer(live, record)
            if record.vector is not None and record.allowed is None and random.random() < self._drift_share:
                self.drift.offer(live, record.rows, record.scores)

    def _refresh(self) -> None:
        live = self._get_live()
        self.metrics.serves(None if live is None else live.manifest.version)
        for name, circuit in self._circuits.items():
            is_open = circuit.state != "closed"
            self.metrics.breaker_open.labels(name).set(is_open)
            if is_open and name not in self._unavailable:
                self._unavailable.add(name)
                self.metrics.breaker_openings.labels(name).inc()
                _log.warning("history store unavailable: %s circuit open", name)
            elif not is_open and name in self._unavailable:
                self._unavailable.remove(name)
                _log.warning("history store available again: %s circuit closed", name)


def open_traces(share: float) -> "Traces | None":
    """Open traces of this share of the requests, if the environment names an endpoint.

    Raises ServiceError when OpenTelemetry isn't installed, and for an invalid endpoint or header.
    """
    named = {name: address for name in _ENDPOINTS if (address := os.environ.get(name))}
    if not named:
        return None
    for name, address in named.items():
        if not address.startswith(("http://", "https://")):
            shown = without_credentials(address)
            raise ServiceError(f"{name} can't be {shown!r}; give a URL like http://HOST:4318")
    for name in _HEADERS:  # OpenTelemetry would log a wrong entry, with its key
        if any("=" not in entry for entry in os.environ.get(name, "").split(",") if entry.strip()):
            raise ServiceError(f"{name} has an entry without =; write NAME=VALUE, separated by commas")
    try:
        from turret.service.observing.traces import Traces
    except ImportError:
        raise ServiceError(
            f"{next(iter(named))} is set, but OpenTelemetry is not installed; "
            f"run: {install_command('otel')}, or unset it"
        ) from None
    return Traces(share)
