"""What prepared data takes on disk, and preparing it in memory and on disk, by events and by ids.

Logs in Parquet parts with numbers as ids, as `benchmarks.preparation` writes them.
"""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.command_cost import turret_cost
from benchmarks.preparation import write_log
from benchmarks.scale_training import folder_mb
from turret.data.prepared import PreparedData

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


def measure_log(log: Log, folder: Path) -> dict[str, Any]:
    """Prepare one log, and count what it really holds."""
    source, target = folder / "log", folder / "work" / "prepared"
    shutil.rmtree(folder, ignore_errors=True)
    target.parent.mkdir(parents=True)
    write_log(source, log.events, log.users, log.items)
    with watched(target.parent) as most:
        cost = turret_cost("data", "prepare", source, "--to", target)
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
