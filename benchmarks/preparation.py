"""The cost of preparing a log beside that of a bare sort by user and time, up to 10^8 events.

The log is synthetic: Parquet in parts, each a period, with the popularity of items and the activity of users
falling by powers of their rank, and ids that tell neither. Both sides take turns on the same files, each turn
in a process of its own; the ratio is that of their medians.
The bare sort is done in the fastest of the ways that polars documents, which a smaller log shows.
`over_bare_1e6` and `over_bare_1e8` are the ratios of logs of so many events, `peak_gb_1e8` the memory of the
preparation of the largest.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, peak_memory_mb, run
from benchmarks.processes import alone
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig


def prepare_parts(source: Path, target: Path) -> None:
    """Prepare the events as `turret data prepare` does."""
    prepare(PrepareConfig(source=source), target)


def _sorted(source: Path) -> pl.LazyFrame:
    return pl.scan_parquet(source / "part-*.parquet").sort("user_id", "timestamp")


# The ways that polars documents to sort files that fit memory or exceed it.
BARE: dict[str, Callable[[Path, Path], None]] = {
    "sink_parquet": lambda source, target: _sorted(source).sink_parquet(target),
    "collect, in memory": lambda source, target: (
        _sorted(source).collect(engine="in-memory").write_parquet(target)
    ),
    "collect, streaming": lambda source, target: (
        _sorted(source).collect(engine="streaming").write_parquet(target)
    ),
}
WAYS: dict[str, Callable[[Path, Path], None]] = {"prepare": prepare_parts, **BARE}


def timed_turn(way: str, source: Path, target: Path) -> dict[str, float]:
    """The seconds of a way, and the peak of this process."""
    start = time.perf_counter()
    WAYS[way](source, target)
    return {"seconds": time.perf_counter() - start, "peak_gb": peak_memory_mb() / 1e3}


EVENTS_PER_USER, EVENTS_PER_ITEM = 50, 200
USER_POWER, ITEM_POWER = 1.5, 3.0  # powers of a uniform number; the larger, the more the first ranks have
START, PERIOD = 1_600_000_000, 100_000_000  # seconds
EVENTS_PER_PART = 2_000_000
BYTES_PER_EVENT = 80  # at most on disk at once: the log, both results, and intermediate files


# Events of a log, and the turns that each side takes.
SIZES = ((10**6, 7), (10**7, 3), (10**8, 2))
QUICK = ((10**6, 3), (3 * 10**6, 2))


def write_log(
    folder: Path, events: int, users_count: int | None = None, items_count: int | None = None
) -> None:
    """Write a log of `events` events into the new folder, in parts that follow each other in time.

    By default a user has 50 events and an item 200, in the mean.
    """
    folder.mkdir()
    random = np.random.default_rng(0)
    users = random.permutation(users_count or max(events // EVENTS_PER_USER, 1))
    items = random.permutation(items_count or max(events // EVENTS_PER_ITEM, 1))
    for number, first in enumerate(range(0, events, EVENTS_PER_PART)):
        count = min(EVENTS_PER_PART, events - first)
        begin, end = (START + PERIOD * place // events for place in (first, first + count))
        part = {
            "user_id": users[(len(users) * random.random(count) ** USER_POWER).astype(np.int64)],
            "item_id": items[(len(items) * random.random(count) ** ITEM_POWER).astype(np.int64)],
            "timestamp": np.sort(random.integers(begin, end, count)),
        }
        pl.DataFrame(part).write_parquet(folder / f"part-{number:05}.parquet")


def check(log: Path, folder: Path) -> None:
    """Check that both sides sort alike: the times, and the numbers of events of the users in their order."""
    prepared, bare = folder / "checked", folder / "checked.parquet"
    for way, target in (("prepare", prepared), (next(iter(BARE)), bare)):
        alone(timed_turn, way, log, target)
    opened, rows = PreparedData.open(prepared), pl.read_parquet(bare)
    lengths = rows["user_id"].rle().struct.field("len").to_numpy()
    same_times = np.array_equal(opened.times, 1000 * rows["timestamp"].to_numpy())
    if not same_times or not np.array_equal(np.diff(opened.offsets), lengths):
        raise SystemExit("what was prepared is not what the bare sort gives; nothing is compared")


def measure_size(events: int, count: int, ways: Iterable[str], folder: Path) -> dict[str, Any]:
    """Let `prepare` and the bare ways take turns on a log; return its figures and those of the fastest way.

    The figures are the median of the seconds, and the highest peak.
    """
    log, target = folder / "log", folder / "result"
    write_log(log, events)
    if events == SIZES[0][0]:
        check(log, folder)
    turns: dict[str, list[dict[str, float]]] = {way: [] for way in ("prepare", *ways)}
    for _ in range(count):
        for way, taken in turns.items():
            taken.append(alone(timed_turn, way, log, target))
            shutil.rmtree(target) if target.is_dir() else target.unlink()
    shutil.rmtree(log)
    figures: list[dict[str, Any]] = [
        {
            "way": way,
            "seconds": statistics.median(turn["seconds"] for turn in taken),
            "peak_gb": max(turn["peak_gb"] for turn in taken),
        }
        for way, taken in turns.items()
    ]
    bare = min(figures[1:], key=lambda row: float(row["seconds"]))
    return {"events": events, "prepare": figures[0], "bare": bare}


def measure(options: Options) -> dict[str, Any]:
    """Measure all sizes; the largest only with the bare way that the one before it finds fastest."""
    sizes = QUICK if options.quick else SIZES
    needed = BYTES_PER_EVENT * sizes[-1][0]
    if shutil.disk_usage(gettempdir()).free < needed:
        raise SystemExit(f"{gettempdir()} needs {needed / 1e9:.0f} GB of room; set TMPDIR to another folder")
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="turret-preparation-") as folder:
        for size in sizes:
            ways = [rows[-1]["bare"]["way"]] if size is sizes[-1] else list(BARE)
            rows.append(measure_size(*size, ways, Path(folder)))
    ratios = {f"{row['events']:.0e}".replace("+0", ""): row for row in rows}
    over_bare = {
        f"over_bare_{size}": row["prepare"]["seconds"] / row["bare"]["seconds"]
        for size, row in ratios.items()
    }
    peaks = {f"peak_gb_{size}": row["prepare"]["peak_gb"] for size, row in ratios.items()}
    return {**over_bare, **peaks, "rows": rows}


if __name__ == "__main__":
    run(measure, needs_data=False)
