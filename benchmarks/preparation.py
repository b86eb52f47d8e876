"""What preparing a log costs beside a bare sort of it by user and time, up to 10^8 events.

The log is synthetic: Parquet in parts, each a period, with the popularity of items and the activity of users
falling by powers of their rank, and ids that tell neither. Both sides take turns on the same files, each turn
in a process of its own; the ratio is that of their medians.
The bare sort is done in the fastest of the ways that polars documents, as one of the smaller logs tells.
"""

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
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


# The ways that polars documents to sort files of more or of less than fits memory.
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
USER_POWER, ITEM_POWER = 1.5, 3.0  # of a uniform number; the larger, the more the first ranks have
START, PERIOD = 1_600_000_000, 100_000_000  # seconds
EVENTS_PER_PART = 2_000_000
BYTES_PER_EVENT = 80  # at most on disk at once: the log, both results, and what lies between


@dataclass(frozen=True)
class Size:
    """How many events a log has, and how many turns each side takes."""

    events: int
    turns: int

    @property
    def label(self) -> str:
        """The number of events, as keys end with it: 1e8."""
        return f"{self.events:.0e}".replace("e+0", "e")


SIZES = (Size(10**6, 7), Size(10**7, 3), Size(10**8, 2))
QUICK = (Size(10**6, 3), Size(3 * 10**6, 2))


def write_log(
    folder: Path, events: int, users_count: int | None = None, items_count: int | None = None
) -> None:
    """Write a log of so many events into the new folder, in parts that follow each other in time.

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


def turn(way: str, log: Path, target: Path) -> dict[str, float]:
    """Take one turn in a process of its own; returns its `seconds` and `peak_gb`."""
    return alone(timed_turn, way, log, target)


def check(log: Path, folder: Path) -> None:
    """See that both sides sort the same: the times, and how many events the users have in their order."""
    prepared, bare = folder / "checked", folder / "checked.parquet"
    for way, target in (("prepare", prepared), (next(iter(BARE)), bare)):
        turn(way, log, target)
    opened, rows = PreparedData.open(prepared), pl.read_parquet(bare)
    lengths = rows["user_id"].rle().struct.field("len").to_numpy()
    same_times = np.array_equal(opened.times, 1000 * rows["timestamp"].to_numpy())
    if not same_times or not np.array_equal(np.diff(opened.offsets), lengths):
        raise SystemExit("what was prepared is not what the bare sort gives; nothing is compared")


def measure_size(size: Size, ways: tuple[str, ...], folder: Path, is_first: bool) -> dict[str, Any]:
    """Let `prepare` and the bare ways take turns on a log of one size; returns figures by way."""
    log, target = folder / "log", folder / "result"
    write_log(log, size.events)
    if is_first:
        check(log, folder)
    turns: dict[str, list[dict[str, float]]] = {way: [] for way in ("prepare", *ways)}
    for _ in range(size.turns):
        for way, taken in turns.items():
            taken.append(turn(way, log, target))
            shutil.rmtree(target) if target.is_dir() else target.unlink()
    shutil.rmtree(log)
    return {way: summary(taken) for way, taken in turns.items()}


def summary(taken: list[dict[str, float]]) -> dict[str, Any]:
    """The median and all times of one way's turns, and the highest of their peaks."""
    seconds = [turn["seconds"] for turn in taken]
    return {
        "seconds": statistics.median(seconds),
        "turns": seconds,
        "peak_gb": max(turn["peak_gb"] for turn in taken),
    }


def fastest(row: dict[str, Any]) -> str:
    """The bare way that took least."""
    return min((way for way in row if way in BARE), key=lambda way: row[way]["seconds"])


def measure(options: Options) -> dict[str, Any]:
    """Measure all sizes; the largest only with the bare way that the one before it finds fastest."""
    sizes = QUICK if options.quick else SIZES
    needed = BYTES_PER_EVENT * sizes[-1].events
    if shutil.disk_usage(gettempdir()).free < needed:
        raise SystemExit(f"{gettempdir()} needs {needed / 1e9:.0f} GB of room; set TMPDIR to another folder")
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="turret-preparation-") as folder:
        for size in sizes:
            ways = tuple(BARE) if size is not sizes[-1] else (fastest(rows[-1]),)
            rows.append(measure_size(size, ways, Path(folder), is_first=not rows))
    figures: dict[str, Any] = {}
    for size, row in zip(sizes, rows, strict=True):
        ours, bare = row["prepare"], row[fastest(row)]
        figures |= {
            f"over_bare_{size.label}": ours["seconds"] / bare["seconds"],
            f"peak_gb_{size.label}": ours["peak_gb"],
            f"bare_peak_gb_{size.label}": bare["peak_gb"],
            f"nanoseconds_per_event_{size.label}": 1e9 * ours["seconds"] / size.events,
            f"bare_nanoseconds_per_event_{size.label}": 1e9 * bare["seconds"] / size.events,
        }
    return {
        **figures,
        "sizes": [size.label for size in sizes],
        "configuration": {
            "events_per_user": EVENTS_PER_USER,
            "events_per_item": EVENTS_PER_ITEM,
            "user_power": USER_POWER,
            "item_power": ITEM_POWER,
            "events_per_part": EVENTS_PER_PART,
        },
        "rows": [{"events": size.events, **row} for size, row in zip(sizes, rows, strict=True)],
    }


if __name__ == "__main__":
    run(measure, needs_data=False)
