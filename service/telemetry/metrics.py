"""The metrics of a service, each declared once: its family, with all values of its labels."""

import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Generic, TypeVar

from prometheus_client.core import Metric

from turret.service.telemetry.exposition import Exposition
from turret.service.telemetry.table import (
    Buckets,
    Cell,
    Child,
    Family,
    Kind,
    Labelled,
    Mean,
    Shares,
    Table,
    describe,
)

WINDOW_SECONDS = 300

_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_STAGE_SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
_SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

ROUTES = (
    "/v1/recommend",
    "/v1/recommend/batch",
    "/v1/items/{item_id:path}/similar",
    "/v1/items/{item_id:path}",
    "/v1/items",
    "/v1/fields",
    "/v1/map",
    "/v1/map/points",
    "/v1/map/colours",
    "/v1/map/items",
    "/v1/events",
    "/v1/random-user",
    "/v1/users/{user_id:path}",
    "/v1/version",
    "/v1/versions",
    "/v1/activations",
    "/admin/activate",
    "/admin/rollback",
    "/admin/routes",
    "/admin/comparison",
    "/admin/comparison/recommend",
    "/admin/comparison/overlap",
    "/admin/comparison/catalog",
    "/livez",
    "/readyz",
    "/metrics",
    "/",
    "/page/settings.json",
    "/page/{path:path}",
    "/docs",
    "/openapi.json",
    "unknown",
)
RECALL_KS = ("10", "100", "1000")
REASONS = ("unknown", "memory", "checksum", "soundness", "golden", "recall", "overlap", "crashed", "other")
_STATUSES = (*(str(status.value) for status in HTTPStatus if status >= 200), "499", "other")
_CLASSES = ("2xx", "3xx", "4xx", "5xx", "other")
_STAGES = ("parse", "history", "rows", "encode", "search", "answer", "other")
_LIMITERS = ("recommend", "batch", "store", "other", "open", "unknown", "probe")
_REFUSALS = ("overload", "rate", "key", "scope", "size", "time", "other")
_SAMPLES = ("answered", "dropped", "failed")

Bound = TypeVar("Bound")


class Declared(Generic[Bound]):
    """A family as an attribute of `Metrics`; its first use binds it to the cells of the worker."""

    def __init__(self, family: Family, bind: Callable[["Metrics"], Bound]) -> None:
        self.family = family
        self.bind = bind

    def __set_name__(self, owner: type["Metrics"], name: str) -> None:
        self._name = name

    def __get__(self, metrics: "Metrics", owner: type["Metrics"]) -> Bound:
        bound = metrics.__dict__[self._name] = self.bind(metrics)
        return bound


class _Kind(Generic[Child]):
    """Declares families of a kind."""

    def __init__(self, child: type[Child], kind: Kind) -> None:
        self._child: type[Child] = child
        self._kind: Kind = kind

    def __call__(
        self, name: str, text: str, buckets: tuple[float, ...] = (), **labels: tuple[str, ...]
    ) -> Declared[Labelled[Child]]:
        """Declare a family with labels, each with all its values."""
        family = Family(name, self._kind, text, tuple(labels.items()), buckets)
        return Declared(
            family, lambda metrics: Labelled(self._child, metrics.table, name, metrics.cells, metrics.window)
        )

    def single(self, name: str, text: str, buckets: tuple[float, ...] = ()) -> Declared[Child]:
        """Declare a family without labels."""
        labelled = self(name, text, buckets)
        return Declared(labelled.family, lambda metrics: labelled.bind(metrics).labels())


_counter, _gauge, _largest = _Kind(Cell, "counter"), _Kind(Cell, "gauge"), _Kind(Cell, "largest")
_histogram, _mean, _shares = _Kind(Buckets, "histogram"), _Kind(Mean, "mean"), _Kind(Shares, "shares")


class Metrics:
    """One worker's metrics in the table that all workers share; any worker exports the sum.

    The service's parent process makes `Table(FAMILIES, workers)` before it forks, and each worker its own
    `Metrics(table, worker)`. A family without labels is a series (`metrics.events_stored.inc(3)`), one with
    labels has them (`metrics.activations.labels("refused").inc()`). A series is written by one thread, that
    of the event loop unless its line says otherwise. `window_seconds` is the time over which means and shares
    are taken.
    """

    # Requests
    requests = _counter("turret_requests", "Answered requests", route=ROUTES, status=_STATUSES)
    seconds = _histogram(
        "turret_request_seconds",
        "Response time, by the class of the status",
        _SECONDS,
        route=ROUTES,
        **{"class": _CLASSES},
    )
    stages = _histogram("turret_stage_seconds", "Time of each stage", _STAGE_SECONDS, stage=_STAGES)
    batch_size = _histogram.single("turret_batch_size", "Recommendations in a batch", _SIZES)
    in_flight = _gauge.single("turret_in_flight", "Running requests")
    queue_length = _gauge.single("turret_queue_length", "Requests waiting for a time slice")
    under_way = _gauge("turret_under_way", "Requests whose response is not fully sent", lane=_LIMITERS)
    held_bytes = _gauge.single("turret_held_bytes", "Buffered bytes of requests and responses")
    refused = _counter("turret_refused", "Refused requests, by reason", reason=_REFUSALS)

    # Answers
    answers = _counter(
        "turret_answers", "Recommendations, by their source", source=("towers", "popular", "fresh", "other")
    )
    empty_answers = _counter.single("turret_empty_answers", "Recommendations without any item")
    short_answers = _counter.single("turret_short_answers", "Recommendations of fewer items than requested")
    degraded = _counter(
        "turret_degraded",
        "Answers without an unavailable part, by part",
        part=("history", "events", "items", "engine", "other"),
    )
    history_items = _counter.single("turret_history_items", "Items of the histories that were read")
    unknown_items = _counter.single(
        "turret_unknown_items", "Items of histories that the version does not have"
    )

    # Events and items
    events_stored = _counter.single("turret_events_stored", "Stored events")
    event_duplicates = _counter.single("turret_event_duplicates", "Events that were stored before")
    breaker_open = _gauge(
        "turret_breaker_open", "Workers whose circuit to the history store is open", circuit=("read", "write")
    )
    breaker_openings = _counter(
        "turret_breaker_openings", "Openings of a circuit to the history store", circuit=("read", "write")
    )
    fresh_items = _largest.single("turret_fresh_items", "Items added since the live version was made")
    withdrawn_items = _largest.single("turret_withdrawn_items", "Withdrawn items")

    # Versions
    activations = _counter(
        "turret_activations", "Attempts to activate a version", outcome=("activated", "refused", "other")
    )
    reload_failures = _counter("turret_reload_failures", "Refused versions, by reason", reason=REASONS)
    changed_files = _counter.single("turret_changed_files", "Changed files of a live version")
    replicas = _largest.single(
        "turret_replicas", "Replicas that report, this one included; 0 without a record of replicas"
    )
    replicas_behind = _largest.single(
        "turret_replicas_behind", "Replicas that are silent, or don't serve the live version and its routes"
    )

    # Quality
    recall = _mean(  # written by the sampler's thread
        "turret_recall_at_k", "Recall of live answers against exact search, recently", k=RECALL_KS
    )
    recall_samples = _counter(  # `dropped` is written by the loop's thread, the others by the sampler's
        "turret_recall_samples", "Live answers sampled for an exact search, by outcome", outcome=_SAMPLES
    )
    shadow_overlap = _mean.single(
        "turret_shadow_overlap", "Share of a live answer that the shadow also gave, recently"
    )
    shadow_answers = _counter(
        "turret_shadow_answers", "Answers of the shadow, by outcome", outcome=(*_SAMPLES, "other")
    )
    top_score_rank = _histogram.single(
        "turret_top_score_rank",
        "Share of recorded answers whose best score is below that of an answer",
        _TENTHS,
    )
    item_popularity = _histogram.single(
        "turret_item_popularity",
        "Share of training events of more popular items than a recommended one",
        _TENTHS,
    )
    drift_hits = _shares(
        "turret_drift_hits", "Live answers by tenth, recently", _TENTHS, of=("scores", "popularity")
    )

    # Telemetry and workers
    dropped = _counter(
        "turret_telemetry_dropped", "Dropped log lines, traced requests and spans", sink=("logs", "traces")
    )
    worker_starts = _counter.single("turret_worker_starts", "Worker starts")
    loop_stall = _largest(
        "turret_loop_stall_seconds",
        "Longest delay of the event loop of any worker since that worker started",
        clock=("wall", "processor"),
    )

    def __init__(
        self, table: Table | None = None, worker: int = 0, window_seconds: int = WINDOW_SECONDS
    ) -> None:
        self.table = Table(FAMILIES) if table is None else table
        self.cells = self.table.attach(worker)
        self._seconds = window_seconds
        self._refreshers: list[Callable[[], object]] = []
        self._computed: list[Callable[[], Iterable[Metric]]] = []
        self._exposition = Exposition(self.table, self.window, self._compute)
        self.worker_starts.inc()

    def text(self) -> bytes:
        """Export the metrics of all workers in the Prometheus text format."""
        self.refresh()
        return self._exposition.text()

    def window(self) -> int:
        """The number of the current window."""
        return int(time.time() // self._seconds)

    def serves(self, version: str | None, generation: int = 0) -> None:
        """Record the live version of this worker and its generation."""
        describe(self.cells, version, generation)

    def refresh_with(self, refresher: Callable[[], object]) -> None:
        """Call `refresher` before every scrape, and about once a second for scrapes of other workers."""
        self._refreshers.append(refresher)

    def compute_with(self, computed: Callable[[], Iterable[Metric]]) -> None:
        """Add metrics computed at every scrape that this worker answers."""
        self._computed.append(computed)

    def refresh(self) -> None:
        """Refresh this worker's gauges."""
        for refresher in self._refreshers:
            refresher()

    def _compute(self) -> list[Metric]:
        return [metric for computed in self._computed for metric in computed()]


FAMILIES = tuple(declared.family for declared in vars(Metrics).values() if isinstance(declared, Declared))
