"""The metrics of a service, by prometheus_client, whose multiprocess mode adds up the worker processes."""

import asyncio
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.core import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from turret.service.observing.recent import Recent

_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STAGE_SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)

REASONS = ("unknown", "memory", "checksum", "soundness", "golden", "recall", "overlap", "crashed")
OTHER_KIND = "other"  # of events without a kind of the live version
SOURCES = ("towers", "popular", "popular_now", "fresh")
_REFUSALS = ("overload", "rate", "key", "scope", "size", "time")
_FILE_BYTES, _ENTRY_BYTES = 1 << 16, 64  # at first, of a file of metrics; of an entry without its name
_PAUSE = 9.0  # after an export, as a multiple of its processor time
_log = logging.getLogger("turret.metrics")


class Metrics:
    """A worker's metrics; any worker exports the metrics of all workers.

    The workers of a service write files in `folder`, which their parent process makes and empties: the
    successor of a worker has its number and continues its counters; the parent removes its gauges by
    `mark_process_dead`. Without a folder there is one process. A label has only values that the service
    chooses, never texts of clients. `registry` has the metrics of all workers. `running` is the number of
    running requests: a plain number, as a gauge would cost each request two writes.
    """

    def __init__(self, folder: Path | None = None, worker: int = 0) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        if folder is None:
            values.ValueClass = values.MutexValue
        else:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            vars(values)["MmapedDict"] = AllocatedDict
            values.ValueClass = values.MultiProcessValue(lambda: worker)  # type: ignore[no-untyped-call]
            _Workers(self.registry, str(folder))  # type: ignore[no-untyped-call]
        base: dict[str, Any] = {"registry": self.registry if folder is None else None}
        shared = [base | {"multiprocess_mode": mode} for mode in ("livesum", "livemax")]
        self._declare_requests(base, shared[0])
        self._declare_versions(base, *shared)
        self._declare_quality(base, shared[1])
        self.running = 0
        self._version: str | None = None
        self._refreshers: list[Callable[[], object]] = []
        self._exporting = asyncio.Lock()
        self._next_export = self._export_seconds = 0.0
        self._recent = Recent()
        self.workers.set(1)
        self.worker_starts.inc()

    def _declare_requests(self, base: dict[str, Any], livesum: dict[str, Any]) -> None:
        self.requests = Counter("turret_requests", "Answered requests", ["route", "status"], **base)
        self.seconds = Histogram(
            "turret_request_seconds", "Time until the response", ["route", "class"], buckets=_SECONDS, **base
        )
        self.stages = Histogram(
            "turret_stage_seconds", "Time of each stage", ["stage"], buckets=_STAGE_SECONDS, **base
        )
        self.in_flight = Gauge("turret_in_flight", "Running requests", **livesum)
        self.under_way = Gauge("turret_under_way", "Requests with a place of their lane", ["lane"], **livesum)
        self.held_bytes = Gauge("turret_held_bytes", "Bytes of bodies, arriving or answered", **livesum)
        self.refused = Counter("turret_refused", "Refused requests", ["reason"], **base)
        self.answers = Counter("turret_answers", "Recommendations", ["source"], **base)
        self.empty_answers = Counter("turret_empty_answers", "Recommendations without any item", **base)
        self.degraded = Counter("turret_degraded", "Answers without an unavailable part", ["part"], **base)
        self.history_items = Counter("turret_history_items", "Items of histories", **base)
        self.unknown_items = Counter("turret_unknown_items", "Items that the version lacks", **base)
        self.events_stored = Counter("turret_events_stored", "Stored events", **base)
        self.logged = Counter("turret_answer_log", "Answers for the log of answers", ["outcome"], **base)
        self.logged_answers = Counter(
            "turret_logged_answers", "Written answers of the log", ["route", "version"], **base
        )
        self.outcome_events = Counter(
            "turret_outcome_events", "New events that name an answer", ["kind"], **base
        )
        _begin(self.refused, _REFUSALS)
        _begin(self.answers, SOURCES)
        _begin(self.logged, ("written", "dropped"))
        _begin(self.outcome_events, (OTHER_KIND,))
        _begin(self.degraded, ("history", "events", "items", "engine", "rules"))

    def _declare_versions(
        self, base: dict[str, Any], livesum: dict[str, Any], livemax: dict[str, Any]
    ) -> None:
        self.breaker_open = Gauge("turret_breaker_open", "Open circuits to the store", ["circuit"], **livesum)
        self.breaker_openings = Counter("turret_breaker_openings", "Openings of them", ["circuit"], **base)
        self.fresh_items = Gauge("turret_fresh_items", "Items newer than the live version", **livemax)
        self.activations = Counter("turret_activations", "Activations", ["outcome"], **base)
        self.reload_failures = Counter("turret_reload_failures", "Refused versions", ["reason"], **base)
        self.replicas = Gauge("turret_replicas", "Replicas that report", **livemax)
        self.replicas_behind = Gauge("turret_replicas_behind", "Silent or late replicas", **livemax)
        self.dropped = Counter("turret_telemetry_dropped", "Dropped lines of the log", **base)
        self.workers = Gauge("turret_workers", "Living worker processes", **livesum)
        self.worker_starts = Counter("turret_worker_starts", "Starts of workers", **base)
        self.live_version = Gauge("turret_live_version", "1 if live, 0 if it was", ["version"], **livemax)
        self.workers_serving = Gauge("turret_workers_serving", "Workers of a version", ["version"], **livesum)
        self.resident_bytes = Gauge(
            "turret_worker_resident_bytes", "Resident memory, shared pages in each", ["process"], **livesum
        )
        self.loop_stall = Gauge("turret_loop_stall_seconds", "Longest delay of an event loop", **livemax)
        _begin(self.breaker_openings, ("read", "write"))
        _begin(self.activations, ("activated", "refused"))
        _begin(self.reload_failures, REASONS)

    def _declare_quality(self, base: dict[str, Any], livemax: dict[str, Any]) -> None:
        self.recall = Summary("turret_recall_at_k", "Recall against exact search", ["k"], **base)
        self.recall_samples = Counter("turret_recall_samples", "Exact searches", ["outcome"], **base)
        self.shadow_overlap = Summary("turret_shadow_overlap", "Share that the shadow gave too", **base)
        self.shadow_answers = Counter("turret_shadow_answers", "Answers of the shadow", ["outcome"], **base)
        self.drift = Gauge("turret_drift", "Divergence from recorded answers, 0 to 1", ["of"], **livemax)
        self.drift_noise = Gauge("turret_drift_noise", "The same without any drift", ["of"], **livemax)
        _begin(self.recall_samples, ("answered", "failed"))
        _begin(self.shadow_answers, ("answered", "dropped", "failed"))

    def count_refusal(self, reason: str) -> None:
        """Count a refused request, by one of the reasons that are declared."""
        self.refused.labels(reason).inc()

    def refresh_with(self, refresher: Callable[[], object]) -> None:
        """Call `refresher` before every scrape, and about once a second for scrapes of other workers."""
        self._refreshers.append(refresher)

    def refresh(self) -> None:
        """Refresh this worker's gauges, in the event loop's thread."""
        self.in_flight.set(self.running)
        for refresher in self._refreshers:
            refresher()

    async def scrape(self) -> bytes:
        """Refresh and export, one scrape after the other.

        A scrape takes some milliseconds of the interpreter, and the next scrape waits for nine times as long,
        as scrapes without a pause would halve the speed of all answers.
        """
        async with self._exporting:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._next_export - loop.time())
            self.refresh()
            try:
                return await asyncio.to_thread(self._timed_export)
            finally:
                self._next_export = loop.time() + _PAUSE * self._export_seconds

    def _timed_export(self) -> bytes:
        begun = time.thread_time()
        try:
            return self.export()
        finally:
            self._export_seconds = time.thread_time() - begun

    async def remember(self, now: float) -> None:
        """Keep a scrape for `hour`; `now` is a monotonic time."""
        async with self._exporting:
            self.refresh()
            await asyncio.to_thread(lambda: self._recent.add(self.export().decode(), now))

    async def hour(self, now: float) -> dict[str, Any]:
        """The kept scrapes of the newest hour, as `Recent.listed`."""
        async with self._exporting:
            return await asyncio.to_thread(self._recent.listed, now)

    def export(self) -> bytes:
        """Export the metrics of all workers as they were last refreshed, from any thread."""
        return generate_latest(self.registry)

    def serves(self, version: str | None) -> None:
        """Record the live version and the memory of this worker."""
        if version != self._version:
            for name, value in ((self._version, 0), (version, 1)):
                if name is not None:
                    self.live_version.labels(name).set(value)
                    self.workers_serving.labels(name).set(value)
            self._version = version
        pages = Path("/proc/self/statm")
        if pages.exists():  # on Linux
            resident = int(pages.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            self.resident_bytes.labels(os.getpid()).set(resident)


def _begin(counter: Counter, labels: Iterable[str]) -> None:
    """Begin with all labels at 0: `increase` in Prometheus overlooks the first value of a series."""
    for label in labels:
        counter.labels(label)


class AllocatedDict(MmapedDict):
    """A file of metrics without holes: a mapped page for which a full disk has no room ends the process.

    Where the disk has no room, or the folder is gone, further values stay in this process, and no scrape has
    them.
    """

    _f: Any = None

    def __init__(self, filename: str) -> None:
        self._fname = filename
        try:
            _allocate(filename, _FILE_BYTES)
            super().__init__(filename)  # type: ignore[no-untyped-call]
        except OSError as error:
            self._positions: dict[str, int] = {}
            self._m, self._capacity, self._used = mmap.mmap(-1, _FILE_BYTES), _FILE_BYTES, 8
            self._leave_file(error)

    def _init_value(self, key: str) -> None:
        needed, capacity = self._used + len(key.encode()) + _ENTRY_BYTES, self._capacity
        while capacity < needed:
            capacity *= 2
        if capacity > self._capacity:
            self._grow(capacity)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, capacity: int) -> None:
        content = self._m[: self._used]
        if self._f is not None:
            try:
                _allocate(self._fname, capacity)
                self._m = mmap.mmap(self._f.fileno(), capacity)
            except OSError as error:
                self._f.close()
                self._leave_file(error)
        if self._f is None:
            self._m = mmap.mmap(-1, capacity)
            self._m[: self._used] = content
        self._capacity = capacity

    def _leave_file(self, error: OSError) -> None:
        self._f = None
        words = "so scrapes lack metrics of this worker; make room, and restart the service"
        _log.warning("%s can't be written (%s), %s", self._fname, error.strerror, words)


def _allocate(filename: str, size: int) -> None:
    """Extend a file with zeros up to a size; its content stays. Raises OSError."""
    with open(filename, "ab") as file:
        file.write(bytes(max(0, size - file.tell())))


class _Workers(MultiProcessCollector):
    """The metrics of all workers, without the files that a worker is about to begin.

    Such files are empty, for which the library raises an error.
    """

    def collect(self) -> Iterable[Metric]:
        files = []
        for file in Path(self._path).glob("*.db"):
            with suppress(FileNotFoundError):  # gauges of a worker that has ended
                if file.stat().st_size:
                    files.append(str(file))
        merged: Iterable[Metric] = self.merge(files)  # type: ignore[no-untyped-call]
        return merged
