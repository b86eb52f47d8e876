"""What prepared data takes on disk, and preparing it in memory and on disk, by events and by ids.

Logs in Parquet parts with numbers as ids, as `benchmarks.preparation` writes them, and a file of their items
with a title, genres, a price and a time of release.
"""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.preparation import PERIOD, START, write_log
from benchmarks.processes import turret_cost
from benchmarks.scale_training import folder_mb
from turret.data.prepared import PreparedData
from turret.data.synthetic.titles import GENRES

POLL = 0.05  # seconds between two looks at a folder that grows


@dataclass(frozen=True)
class Log:
    """How many events a log has, and how many users and items they are drawn from."""

    events: int
    users: int
    items: int


LOGS = (
    Log(1_000_000, 20_000, 5_000),
    Log(10_000_000, 200_000, 50_000),
    Log(10_000_000, 2_000_000, 50_000),
    Log(10_000_000, 200_000, 1_000_000),
    Log(30_000_000, 600_000, 150_000),
)
QUICK = (Log(20_000, 400, 100),)


@contextmanager
def watched(folder: Path) -> Iterator[list[float]]:
    """Gives the megabytes of the folder, of which the last are the most so far."""
    most, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(POLL):
            try:
                most.append(max(most[-1], folder_mb(folder)))
            except FileNotFoundError:  # renamed meanwhile
                continue

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def write_items(path: Path, items: int) -> None:
    """Write so many items with titles of four words, as the synthetic shop has them."""
    random = np.random.default_rng(1)
    genres = np.array(list(GENRES))
    words = np.array(sorted({word for pair in GENRES.values() for part in pair for word in part.split()}))

    def joined(choices: NDArray[np.str_], count: int, separator: str) -> pl.Expr:
        columns = [pl.lit(pl.Series(random.choice(choices, items))) for _ in range(count)]
        return pl.concat_str(columns, separator=separator)

    pl.select(
        item_id=pl.int_range(items),
        title=joined(words, 4, " "),
        genres=joined(genres, 2, "|"),
        price=pl.lit(pl.Series(random.gamma(2, 10, items).round(2))),
        released=pl.lit(pl.Series(START + random.integers(0, PERIOD, items))),
    ).write_parquet(path)


def measure_log(log: Log, folder: Path) -> dict[str, Any]:
    """Prepare one log with its items, and count its users, items and events."""
    source, target, items = folder / "log", folder / "work" / "prepared", folder / "items.parquet"
    shutil.rmtree(folder, ignore_errors=True)
    target.parent.mkdir(parents=True)
    write_log(source, log.events, log.users, log.items)
    write_items(items, log.items)
    with watched(target.parent) as most:
        cost = turret_cost("data", "prepare", source, "--items", items, "--to", target)
    data = PreparedData.open(target)
    return {
        "events": log.events,
        "users": len(data.users),
        "items": len(data.item_ids),
        **asdict(cost),
        "prepared_mb": folder_mb(target),
        "work_mb": max(most[-1], folder_mb(target)),
        "log_mb": folder_mb(source),
    }


def measure_preparation(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """All logs, one after the other."""
    return [measure_log(log, folder / "log") for log in (QUICK if quick else LOGS)]
