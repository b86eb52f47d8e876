"""The metrics of a service, by prometheus_client, whose multiprocess mode adds up the worker processes."""

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

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
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

_ATTEMPTS = 20  # to read the files of all workers
_NAMESPACE = "turret"  # the name of each metric begins with it
_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STAGE_SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

REASONS = ("unknown", "memory", "checksum", "soundness", "golden", "recall", "overlap", "crashed")
SOURCES = ("towers", "popular", "fresh")
_REFUSALS = ("overload", "rate", "key", "scope", "size", "time")
_SAMPLES = ("answered", "dropped", "failed")
_PARTS = ("history", "events", "items", "engine")

Mode = Literal["livesum", "livemax"]


class Metrics:
    """A worker's metrics; any worker exports those of all.

    The workers of a service write files in `folder`, which their parent process makes and empties: the
    successor of a worker has its number and continues its counters; the parent removes its gauges by
    `mark_process_dead`. Without a folder there is one process. A label has only values that the service
    chooses, never those of clients. `registry` has the metrics of all workers, `computed` those that are
    computed from them at each scrape. `running` is the number of running requests, as a gauge would cost
    each of them two writes.
    """

    def __init__(self, folder: Path | None = None, worker: int = 0) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry, self.computed = CollectorRegistry(), CollectorRegistry()
        self._own = self.registry if folder is None else None
        if folder is None:
            values.ValueClass = values.MutexValue
        else:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            values.ValueClass = values.MultiProcessValue(lambda: worker)  # type: ignore[no-untyped-call]
            self.registry.register(_Workers(folder))
        self._declare_requests()
        self._declare_state()
        self._declare_quality()
        self.running = 0
        self._version: str | None = None
        self._refreshers: list[Callable[[], object]] = []
        self.workers.set(1)
        self.worker_starts.inc()

    def _declare_requests(self) -> None:
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.requests = counter("requests", "Answered requests", route=(), status=())
        self.seconds = histogram("request_seconds", "Time until the response", _SECONDS, "route", "class")
        self.stages = histogram("stage_seconds", "Time of each stage", _STAGE_SECONDS, "stage")
        self.in_flight = gauge("in_flight", "Running requests")
        self.under_way = gauge("under_way", "Requests that hold a place of their lane", "lane")
        self.held_bytes = gauge("held_bytes", "Bytes of bodies that arrive or are answered")
        self.refused = counter("refused", "Refused requests, by reason", reason=_REFUSALS)
        self.answers = counter("answers", "Recommendations, by their source", source=SOURCES)
        self.empty_answers = counter("empty_answers", "Recommendations without any item")
        self.degraded = counter("degraded", "Answers without an unavailable part, by part", part=_PARTS)
        self.history_items = counter("history_items", "Items of the histories that were read")
        self.unknown_items = counter("unknown_items", "Items of histories that the version does not have")
        self.events_stored = counter("events_stored", "Stored events")

    def _declare_state(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.breaker_open = gauge("breaker_open", "Workers whose circuit to the store is open", "circuit")
        self.breaker_openings = counter(
            "breaker_openings", "Openings of a circuit to the store", circuit=("read", "write")
        )
        self.fresh_items = gauge("fresh_items", "Items added since the live version was made", mode="livemax")
        self.activations = counter("activations", "Activations", outcome=("activated", "refused"))
        self.reload_failures = counter("reload_failures", "Refused versions, by reason", reason=REASONS)
        self.changed_files = counter("changed_files", "Changed files of a live version")
        self.replicas = gauge("replicas", "Replicas that report, this one included", mode="livemax")
        self.replicas_behind = gauge("replicas_behind", "Replicas that are silent or late", mode="livemax")
        self.dropped = counter("telemetry_dropped", "Dropped log lines and spans", sink=("logs", "traces"))
        self.workers = gauge("workers", "Living worker processes")
        self.worker_starts = counter("worker_starts", "Worker starts")
        self.live_version = gauge("live_version", "1 if live, 0 if it was", "version", mode="livemax")
        self.workers_serving = gauge("workers_serving", "Workers in which a version is live", "version")
        self.resident_bytes = gauge(
            "worker_resident_bytes", "Resident memory, shared pages counted in each", "process"
        )
        self.loop_stall = gauge(
            "loop_stall_seconds", "Longest delay of the event loop of any worker", "clock", mode="livemax"
        )

    def _declare_quality(self) -> None:
        counter, histogram, summary = self._counter, self._histogram, self._summary
        self.recall = summary("recall_at_k", "Recall of live answers against exact search", "k")
        self.recall_samples = counter("recall_samples", "Exact searches, by outcome", outcome=_SAMPLES)
        self.shadow_overlap = summary("shadow_overlap", "Share of an answer that the shadow gave too")
        self.shadow_answers = counter("shadow_answers", "Answers of the shadow, by outcome", outcome=_SAMPLES)
        self.top_score_rank = histogram(
            "top_score_rank", "Share of recorded answers with a lower best score", TENTHS
        )
        self.item_popularity = histogram(
            "item_popularity", "Share of training events of more popular items than a recommended one", TENTHS
        )

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

    def export(self) -> bytes:
        """Export the metrics of all workers as they were last refreshed, from any thread."""
        for _ in range(_ATTEMPTS):
            with suppress(struct.error):  # a worker that begins has just made a file, which is empty
                return generate_latest(self.registry) + generate_latest(self.computed)
        return generate_latest(self.registry) + generate_latest(self.computed)

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

    def _counter(self, name: str, text: str, **labels: Sequence[str]) -> Counter:
        """Declare a counter; that of one label begins with all its values at 0.

        `increase` in Prometheus overlooks the first value of a series.
        """
        made = Counter(name, text, tuple(labels), namespace=_NAMESPACE, registry=self._own)
        for listed in labels.values():
            for value in listed:
                made.labels(value)
        return made

    def _gauge(self, name: str, text: str, *labels: str, mode: Mode = "livesum") -> Gauge:
        return Gauge(name, text, labels, namespace=_NAMESPACE, registry=self._own, multiprocess_mode=mode)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, namespace=_NAMESPACE, registry=self._own, buckets=buckets)

    def _summary(self, name: str, text: str, *labels: str) -> Summary:
        return Summary(name, text, labels, namespace=_NAMESPACE, registry=self._own)


class _Workers(Collector):
    """The metrics of all workers, without the files that a worker is about to begin, which are empty.

    prometheus_client's own collector raises an error for an empty file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        files = [str(file) for file in self._folder.glob("*.db") if _has_content(file)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return merged


def _has_content(file: Path) -> bool:
    with suppress(FileNotFoundError):  # gauges of a worker that has ended
        return file.stat().st_size > 0
    return False
