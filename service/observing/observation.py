"""The observation of a worker: metrics, log, traces, recall and drift."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from turret.service.observing.answer_record import AnswerRecord
from turret.service.observing.drift import Drift, Reference
from turret.service.observing.logs import Logs
from turret.service.observing.metrics import SOURCES, Metrics
from turret.service.observing.recall import RecallSampler
from turret.service.observing.traces import open_traces
from turret.service.settings import Settings
from turret.tower.bundle.bundle import Bundle
from turret.tower.engines.circuit import Circuit, CircuitState
from turret.tower.errors import BundleError

REFRESH_SECONDS = 1.0
WATCH_SECONDS = 5.0  # between two checks of the live version's files
LOG_QUEUE = 20_000  # lines that wait for a blocked standard error
RECALL_RATE = 2.0  # answers a second whose recall is measured, at most

_log = logging.getLogger("turret.observation")
_files = logging.getLogger("turret.files")


class Observation:
    """Collects the metrics, log and traces of a worker process.

    `live` returns the bundle of the live version or None; `metrics_folder` and `worker` are those of
    `Metrics`. Raises ServiceError when traces are configured without OpenTelemetry.
    """

    def __init__(
        self,
        settings: Settings,
        live: Callable[[], Bundle | None],
        metrics_folder: Path | None = None,
        worker: int = 0,
    ) -> None:
        self._get_live = live
        self._seen: Bundle | None = None
        self._open_circuits: set[str] = set()
        self._ticking: asyncio.Task[None] | None = None
        self.metrics = Metrics(metrics_folder, worker)
        # `labels` costs as much as counting.
        self._answers = {source: self.metrics.answers.labels(source) for source in SOURCES}
        self.logs = Logs(settings.log_level, settings.log_format, settings.access_log, limit=LOG_QUEUE)
        self.traces = open_traces(settings.traces, settings.trace_share)
        self.recall = RecallSampler(self.metrics, settings.recall_sample, RECALL_RATE)
        self.drift = Drift(self.metrics, settings.drift_sample)
        self.metrics.refresh_with(self._refresh)
        self.metrics.compute_with(self.drift.distances)

    def start(self) -> None:
        """Start on the event loop of the serving process."""
        self.logs.start()
        self.recall.start()
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def close(self) -> None:
        """Stop, waiting a few seconds at most for a blocked log or trace collector."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        self.recall.close()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
        await asyncio.to_thread(self.logs.close)

    def follow_circuits(self, circuits: Mapping[str, Circuit]) -> None:
        """Record when the circuits of the store open and close."""
        for name, circuit in circuits.items():
            self.metrics.breaker_open.labels(name).set(0)
            circuit.on_change = partial(self._on_circuit, name)

    def answered(self, live: Bundle, records: Sequence[AnswerRecord]) -> None:
        """Count the answers of a call and sample recall and drift, in the event loop's thread."""
        metrics = self.metrics
        metrics.batch_size.observe(len(records))
        for record in records:
            self._answers[record.source].inc()
            if record.returned < record.requested:
                (metrics.short_answers if record.returned else metrics.empty_answers).inc()
            metrics.history_items.inc(record.known + record.unknown)
            if record.unknown:
                metrics.unknown_items.inc(record.unknown)
            self.recall.offer(live, record)
            if record.vector is not None and record.allowed is None:
                self.drift.offer(live, record.rows, record.scores)

    async def watch_files(self) -> None:
        """Log and count each changed file of the live version once; check every WATCH_SECONDS."""
        watched, told = self._get_live(), set[str]()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            live = self._get_live()
            if live is not watched:
                watched, told = live, set()
            if live is None:
                continue
            for message in await asyncio.to_thread(live.changed_files):
                if message not in told:
                    told.add(message)
                    self.metrics.changed_files.inc()
                    _files.error("version %s: %s", live.manifest.version, message)

    async def _tick(self) -> None:
        while True:
            try:
                self.metrics.refresh()
                if self._seen is not (live := self._get_live()):
                    await self._follow(live)
                elif self.drift.is_due():
                    await asyncio.to_thread(self.drift.begin_window)
            except Exception:  # a failing metric must not stop the others
                _log.exception("the metrics can't be refreshed")
            await asyncio.sleep(REFRESH_SECONDS)

    async def _follow(self, live: Bundle | None) -> None:
        """Load the reference of a new version."""
        self._seen = live
        reference = None
        if live is not None:
            try:
                reference = await asyncio.to_thread(Reference, live)
            except BundleError as error:
                _log.warning("drift of version %s is not measured: %s", live.manifest.version, error)
        await asyncio.to_thread(self.drift.compare_with, live, reference)

    def _on_circuit(self, name: str, state: CircuitState) -> None:
        gauge = self.metrics.breaker_open.labels(name)
        if state == "open" and name not in self._open_circuits:  # else a failed trial
            self._open_circuits.add(name)
            gauge.set(1)
            self.metrics.breaker_openings.labels(name).inc()
            _log.warning("history store unavailable: %s circuit open", name)
        elif state == "closed" and name in self._open_circuits:
            self._open_circuits.remove(name)
            gauge.set(0)
            _log.warning("history store available again: %s circuit closed", name)

    def _refresh(self) -> None:
        metrics, live = self.metrics, self._get_live()
        metrics.serves(None if live is None else live.manifest.version)
        metrics.dropped.labels("logs").inc(self.logs.take_dropped())
        if self.traces is not None:
            metrics.dropped.labels("traces").inc(self.traces.take_dropped())
