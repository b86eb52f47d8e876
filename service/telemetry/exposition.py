"""The shared table in the Prometheus text format."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from turret.service.telemetry.table import Cells, Family, Table, described, recent

Computed = Callable[[], Iterable[Metric]]


class Exposition(Collector):
    """Sums the workers' parts of a table; `computed` adds further metrics at each scrape."""

    def __init__(self, table: Table, window: Callable[[], int], computed: Computed) -> None:
        self._table = table
        self._window = window
        self._computed = computed
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Export all metrics."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return nothing; otherwise the registry would collect once to learn the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every family with the sums of its workers' parts."""
        parts = [self._table.part(worker) for worker in range(self._table.workers)]
        alive = self._table.alive()
        for family in self._table.families.values():
            if family.kind != "shares":
                yield self._family(family, alive if family.kind in ("gauge", "largest") else parts)
        yield from _workers(alive)
        yield from self._computed()

    def _family(self, family: Family, parts: list[Cells]) -> Metric:
        names = [name for name, _ in family.labels]
        if family.kind == "histogram":
            return self._histogram(family, names, parts)
        if family.kind == "counter":
            counter = CounterMetricFamily(family.name, family.help, labels=names)
            for values, at in self._table.offsets[family.name].items():
                total = sum(part[at] for part in parts)
                if total or not family.sparse:
                    counter.add_metric(values, total)
            return counter
        gauge = GaugeMetricFamily(family.name, family.help, labels=names)
        for values, at in self._table.offsets[family.name].items():
            value = self._gauge(family, parts, at)
            if value is not None:
                gauge.add_metric(values, value)
        return gauge

    def _gauge(self, family: Family, parts: list[Cells], at: int) -> float | None:
        if family.kind == "mean":
            window = self._window()
            sums = [recent(part, at, 3, window) for part in parts]
            count = sum(number for _, number in sums)
            return sum(total for total, _ in sums) / count if count else None
        values = [float(part[at]) for part in parts]
        return max(values, default=0.0) if family.kind == "largest" else sum(values)

    def _histogram(self, family: Family, names: list[str], parts: list[Cells]) -> Metric:
        histogram = HistogramMetricFamily(family.name, family.help, labels=names)
        bounds = [*(str(bound) for bound in family.buckets), "+Inf"]
        for values, at in self._table.offsets[family.name].items():
            so_far, buckets = 0.0, []
            for index, bound in enumerate(bounds, at):
                so_far += sum(part[index] for part in parts)
                buckets.append((bound, so_far))
            if so_far or not family.sparse:
                total = sum(part[at + len(bounds)] for part in parts)
                histogram.add_metric(values, buckets, total)
        return histogram


def _workers(alive: list[Cells]) -> Iterator[Metric]:
    yield GaugeMetricFamily("turret_workers", "Worker processes that are alive", value=len(alive))
    live = GaugeMetricFamily("turret_live_version", "1 for a version that is live", labels=["version"])
    serving = GaugeMetricFamily(
        "turret_workers_serving", "Worker processes in which a version is live", labels=["version"]
    )
    generation = GaugeMetricFamily(
        "turret_worker_generation", "Versions that a worker has made live", labels=["process"]
    )
    resident = GaugeMetricFamily(
        "turret_worker_resident_bytes", "Resident memory, shared pages counted in each", labels=["process"]
    )
    counts: dict[str, int] = {}
    for part in alive:
        process, version, number = described(part)
        if version:
            counts[version] = counts.get(version, 0) + 1
        generation.add_metric([str(process)], number)
        if (size := _resident(process)) is not None:
            resident.add_metric([str(process)], size)
    for version, count in counts.items():
        live.add_metric([version], 1)
        serving.add_metric([version], count)
    yield from (live, serving, generation, resident)


def _resident(process: int) -> int | None:
    """Resident bytes of a process, on Linux."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as status:
            lines = [line for line in status if line.startswith("VmRSS:")]
    except OSError:
        return None
    return int(lines[0].split()[1]) * 1024 if lines else None
