"""The metrics of a service, by prometheus_client, whose multiprocess mode adds up the worker processes."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
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

_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STAGE_SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
_SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

REASONS = ("unknown", "memory", "checksum", "soundness", "golden", "recall", "overlap", "crashed")
SOURCES = ("towers", "popular", "fresh")
_REFUSALS = ("overload", "rate", "key", "scope", "size", "time")
_SAMPLES = ("answered", "dropped", "failed")

Computed = Callable[[], Iterable[Metric]]


class Metrics:
    """A worker's metrics; any worker exports those of all.

    The workers of a service write files in `folder`, which their parent process makes and empties: the
    successor of a worker has its number and continues its counters; the parent removes its gauges by
    `mark_process_dead`. Without a folder there is one process. A label has only values that the service
    chooses, never those of clients; counters of one label begin with all its values at 0, as `increase` in
    Prometheus overlooks the first value of a series.
    """

    def __init__(self, folder: Path | None = None, worker: int = 0) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._computed = CollectorRegistry()
        self.labels_of: dict[str, tuple[str, ...]] = {}
        self._own = self.registry if folder is None else None
        if folder is None:
            values.ValueClass = values.MutexValue
        else:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            values.ValueClass = values.MultiProcessValue(lambda: worker)  # type: ignore[no-untyped-call]
            self.registry.register(_Workers(folder))
        self._declare_requests()
        self._declare_answers()
        self._declare_events_and_items()
        self._declare_versions()
        self._declare_quality()
        self._declare_workers()
        self.running = 0  # requests, of which the gauge is set at each refresh
        self._version: str | None = None
        self._refreshers: list[Callable[[], object]] = []
        self.workers.set(1)
        self.worker_starts.inc()

    def _declare_requests(self) -> None:
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.requests = counter("turret_requests", "Answered requests", route=(), status=())
        self.seconds = histogram(
            "turret_request_seconds", "Response time, by the class of the status", _SECONDS, "route", "class"
        )
        self.stages = histogram("turret_stage_seconds", "Time of each stage", _STAGE_SECONDS, "stage")
        self.batch_size = histogram("turret_batch_size", "Recommendations in a batch", _SIZES)
        self.in_flight = gauge("turret_in_flight", "Running requests")
        self.under_way = gauge("turret_under_way", "Requests that hold a place of their lane", "lane")
        self.held_bytes = gauge("turret_held_bytes", "Bytes of bodies that arrive or are answered")
        self.refused = counter("turret_refused", "Refused requests, by reason", reason=_REFUSALS)

    def _declare_answers(self) -> None:
        counter = self._counter
        parts = ("history", "events", "items", "engine")
        self.answers = counter("turret_answers", "Recommendations, by their source", source=SOURCES)
        self.empty_answers = counter("turret_empty_answers", "Recommendations without any item")
        self.short_answers = counter("turret_short_answers", "Recommendations of fewer items than requested")
        self.degraded = counter("turret_degraded", "Answers without an unavailable part, by part", part=parts)
        self.history_items = counter("turret_history_items", "Items of the histories that were read")
        self.unknown_items = counter(
            "turret_unknown_items", "Items of histories that the version does not have"
        )

    def _declare_events_and_items(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.events_stored = counter("turret_events_stored", "Stored events")
        self.event_duplicates = counter("turret_event_duplicates", "Events that were stored before")
        self.breaker_open = gauge(
            "turret_breaker_open", "Workers whose circuit to the history store is open", "circuit"
        )
        self.breaker_openings = counter(
            "turret_breaker_openings",
            "Openings of a circuit to the history store",
            circuit=("read", "write"),
        )
        self.fresh_items = gauge(
            "turret_fresh_items", "Items added since the live version was made", mode="livemax"
        )
        self.withdrawn_items = gauge("turret_withdrawn_items", "Withdrawn items", mode="livemax")

    def _declare_versions(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.activations = counter(
            "turret_activations", "Attempts to activate a version", outcome=("activated", "refused")
        )
        self.reload_failures = counter(
            "turret_reload_failures", "Refused versions, by reason", reason=REASONS
        )
        self.changed_files = counter("turret_changed_files", "Changed files of a live version")
        self.replicas = gauge(
            "turret_replicas",
            "Replicas that report, this one included; 0 without a record of replicas",
            mode="livemax",
        )
        self.replicas_behind = gauge(
            "turret_replicas_behind",
            "Replicas that are silent, or don't serve the live version and its routes",
            mode="livemax",
        )

    def _declare_quality(self) -> None:
        counter, histogram = self._counter, self._histogram
        self.recall = self._summary("turret_recall_at_k", "Recall of live answers against exact search", "k")
        self.recall_samples = counter(
            "turret_recall_samples",
            "Live answers sampled for an exact search, by outcome",
            outcome=_SAMPLES,
        )
        self.shadow_overlap = self._summary(
            "turret_shadow_overlap", "Share of a live answer that the shadow also gave"
        )
        self.shadow_answers = counter(
            "turret_shadow_answers", "Answers of the shadow, by outcome", outcome=_SAMPLES
        )
        self.top_score_rank = histogram(
            "turret_top_score_rank",
            "Share of recorded answers whose best score is below that of an answer",
            _TENTHS,
        )
        self.item_popularity = histogram(
            "turret_item_popularity",
            "Share of training events of more popular items than a recommended one",
            _TENTHS,
        )

    def _declare_workers(self) -> None:
        counter, gauge = self._counter, self._gauge
        self.dropped = counter(
            "turret_telemetry_dropped", "Dropped log lines and spans", sink=("logs", "traces")
        )
        self.workers = gauge("turret_workers", "Worker processes that are alive")
        self.worker_starts = counter("turret_worker_starts", "Worker starts")
        self.live_version = gauge(
            "turret_live_version",
            "1 for a version that is live, 0 for one that was",
            "version",
            mode="livemax",
        )
        self.workers_serving = gauge(
            "turret_workers_serving", "Worker processes in which a version is live", "version"
        )
        self.worker_resident_bytes = gauge(
            "turret_worker_resident_bytes", "Resident memory, shared pages counted in each", "process"
        )
        self.loop_stall = gauge(
            "turret_loop_stall_seconds",
            "Longest delay of the event loop of any worker since that worker started",
            "clock",
            mode="livemax",
        )

    def count_refusal(self, reason: str) -> None:
        """Count a refused request, by one of the reasons that are declared."""
        self.refused.labels(reason).inc()

    def text(self) -> bytes:
        """Export the metrics of all workers in the Prometheus text format, this worker's up to date."""
        self.refresh()
        return self.export()

    def export(self) -> bytes:
        """Export the metrics of all workers as they were last refreshed, from any thread."""
        return generate_latest(self.registry) + generate_latest(self._computed)

    def tenths(self) -> dict[str, list[float]]:
        """The counts of both histograms of tenths, added up over the workers."""
        of = {"turret_top_score_rank": "scores", "turret_item_popularity": "popularity"}
        counts = {name: [0.0] * len(_TENTHS) for name in of.values()}
        for metric in self.registry.collect():
            if metric.name in of:
                bounds = [sample for sample in metric.samples if sample.name.endswith("_bucket")]
                up_to = [sample.value for sample in bounds if sample.labels["le"] != "+Inf"]
                counts[of[metric.name]] = [
                    high - low for low, high in zip([0.0, *up_to], up_to, strict=False)
                ]
        return counts

    def serves(self, version: str | None) -> None:
        """Record the live version of this worker."""
        if version != self._version:
            for name, value in ((self._version, 0), (version, 1)):
                if name is not None:
                    self.live_version.labels(name).set(value)
                    self.workers_serving.labels(name).set(value)
            self._version = version
        if (size := _resident_bytes()) is not None:
            self.worker_resident_bytes.labels(os.getpid()).set(size)

    def refresh_with(self, refresher: Callable[[], object]) -> None:
        """Call `refresher` before every scrape, and about once a second for scrapes of other workers."""
        self._refreshers.append(refresher)

    def compute_with(self, computed: Computed) -> None:
        """Add metrics computed at every scrape that this worker answers."""
        self._computed.register(_ComputedMetrics(computed))

    def refresh(self) -> None:
        """Refresh this worker's gauges."""
        self.in_flight.set(self.running)
        for refresher in self._refreshers:
            refresher()

    def _counter(self, name: str, text: str, **labels: Sequence[str]) -> Counter:
        self.labels_of[name] = tuple(labels)
        made = Counter(name, text, tuple(labels), registry=self._own)
        for listed in labels.values():
            for value in listed:
                made.labels(value)
        return made

    def _gauge(
        self, name: str, text: str, *labels: str, mode: Literal["livesum", "livemax"] = "livesum"
    ) -> Gauge:
        self.labels_of[name] = labels
        return Gauge(name, text, labels, registry=self._own, multiprocess_mode=mode)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        self.labels_of[name] = labels
        return Histogram(name, text, labels, registry=self._own, buckets=buckets)

    def _summary(self, name: str, text: str, *labels: str) -> Summary:
        self.labels_of[name] = labels
        return Summary(name, text, labels, registry=self._own)


class _Workers(Collector):
    """The metrics of all workers, without the files that a worker is about to begin, which are empty.

    prometheus_client's own collector raises an error for an empty file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        files = [file for file in self._folder.glob("*.db") if _has_content(file)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(map(str, files))  # type: ignore[no-untyped-call]
        return merged


class _ComputedMetrics(Collector):
    """Metrics that a function computes at each scrape."""

    def __init__(self, computed: Computed) -> None:
        self._computed = computed

    def collect(self) -> Iterator[Metric]:
        yield from self._computed()


def tenth(share: float) -> int:
    """The tenth (0 to 9) of a share from 0 to 1; a bound belongs to the lower one, as in histograms."""
    return min(bisect_left(_TENTHS, share), len(_TENTHS) - 1)


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # gauges of a worker that has ended
        return False


def _resident_bytes() -> int | None:
    """Resident bytes of this process, on Linux."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
