"""What loading a log into a store of histories takes, in SQLite and in a Redis of its own.

The log is synthetic: users of 50 events, prepared from Parquet. Each store is loaded twice: the second time
nothing is new, which is what continuing after a kill costs. Then all is dumped again. Redis keeps an
append-only file, synced every second. At last the hundredth part of the log is appended to the others as
prepared data, beside preparing all of it. Each step runs in a process of its own, with its peak of memory.

With `--long`, logs of 2 and of 20 million events are instead loaded into SQLite as a folder of Parquet files,
as `turret history load LOG` does: the time and the memory include validating and sorting the log.
"""

import argparse
import json
import multiprocessing
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

import turret
from benchmarks.protocol import Options, finish, peak_memory_mb, read_options
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.history.dumping import TimeRange, dump_histories
from turret.history.loading import load_histories
from turret.service.settings import Settings

EVENTS, QUICK = 2_000_000, 200_000
LONG = (2_000_000, 20_000_000)
PART = 1_000_000  # rows of a file of the long log
EVENTS_PER_USER, EVENTS_PER_ITEM = 50, 200
START, PERIOD = 1_600_000_000, 100_000_000  # seconds


def write_log(folder: Path, events: int) -> None:
    """Write a log of so many events, and its first 99 percent and the others as two."""
    random = np.random.default_rng(0)
    columns = {
        "user_id": random.integers(0, events // EVENTS_PER_USER, events),
        "item_id": random.integers(0, events // EVENTS_PER_ITEM, events),
        "timestamp": random.integers(START, START + PERIOD, events),
    }
    log, first = pl.DataFrame(columns), events - events // 100
    for name, frame in (("log", log), ("before", log[:first]), ("added", log[first:])):
        frame.write_parquet(folder / f"{name}.parquet")


def write_parts(folder: Path, events: int) -> None:
    """Write a log of so many events as a folder of Parquet files, of which memory holds one."""
    random = np.random.default_rng(0)
    folder.mkdir()
    for number, first in enumerate(range(0, events, PART)):
        rows = min(PART, events - first)
        columns = {
            "user_id": random.integers(0, events // EVENTS_PER_USER, rows),
            "item_id": random.integers(0, events // EVENTS_PER_ITEM, rows),
            "timestamp": random.integers(START, START + PERIOD, rows),
        }
        pl.DataFrame(columns).write_parquet(folder / f"part-{number:05}.parquet")


def prepare_log(source: Path, target: str) -> int:
    """Prepare a log, and return the number of its events."""
    return prepare(PrepareConfig(source=source), Path(target)).manifest.counts.events


def append_log(source: Path, target: str) -> int:
    """Append a log to prepared data, and return the number of all events."""
    return append(source, Path(target)).prepared.manifest.counts.events


def load(prepared: Path, address: str) -> int:
    """Load the log, and return how many events were new."""
    return load_histories(PreparedData.open(prepared), Settings(store=address)).stored


def load_raw(log: Path, address: str) -> int:
    """Load a log of raw events, and return how many events were new."""
    return turret.load_histories(log, address).stored


def dump(target: Path, address: str) -> int:
    """Dump the store, and return how many events it had."""
    return dump_histories(Settings(store=address), TimeRange.of(None, None), target).events


def _timed(step: Callable[[Path, str], int], path: Path, address: str, results: Any) -> None:
    begun = time.perf_counter()
    count = step(path, address)
    results.put({"seconds": time.perf_counter() - begun, "events": count, "peak_mb": peak_memory_mb()})


def measured(step: Callable[[Path, str], int], path: Path, address: str) -> dict[str, float]:
    """Run a step in a process of its own."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_timed, args=(step, path, address, results))
    process.start()
    taken: dict[str, float] = results.get()
    process.join()
    return taken


@contextmanager
def redis_address(folder: Path) -> Iterator[str | None]:
    """Run a Redis on a free port; None where redis-server isn't installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--save", "", "--appendonly", "yes", "--dir", str(folder)]
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


def measure_store(address: str, prepared: Path, folder: Path, events: int) -> dict[str, Any]:
    """Load, load again and dump, and check what is stored."""
    steps = {"load": (load, prepared), "again": (load, prepared), "dump": (dump, folder / "dump.parquet")}
    rows = {name: measured(step, path, address) for name, (step, path) in steps.items()}
    if [row["events"] for row in rows.values()] != [events, 0, events]:
        raise SystemExit(f"the store doesn't hold the log: {json.dumps(rows)}")
    return {name: {**row, "events_per_second": events / row["seconds"]} for name, row in rows.items()}


def measure_growth(folder: Path) -> dict[str, dict[str, float]]:
    """Prepare the whole log, and append its end to the rest, which have to be the same."""
    prepare_log(folder / "before.parquet", str(folder / "grown"))
    growth = {
        "prepare": measured(prepare_log, folder / "log.parquet", str(folder / "prepared")),
        "append": measured(append_log, folder / "added.parquet", str(folder / "grown")),
    }
    whole, grown = (PreparedData.open(folder / name) for name in ("prepared", "grown"))
    if whole.fingerprint != grown.fingerprint:
        raise SystemExit("appending gives other data than preparing everything; nothing is compared")
    return growth


def measure(options: Options) -> dict[str, Any]:
    """Measure both stores."""
    events = QUICK if options.quick else EVENTS
    with TemporaryDirectory(prefix="turret-history-load-") as work:
        folder = Path(work)
        write_log(folder, events)
        growth = measure_growth(folder)
        stores = {
            "sqlite": measure_store(f"sqlite:///{folder}/h.sqlite", folder / "prepared", folder, events)
        }
        with redis_address(folder) as address:
            if address is not None:
                stores["redis"] = measure_store(address, folder / "prepared", folder, events)
    figures = {
        f"{store}_{step}_events_per_second": row["events_per_second"]
        for store, steps in stores.items()
        for step, row in steps.items()
    }
    ratio = growth["append"]["seconds"] / growth["prepare"]["seconds"]
    figures["append_over_prepare"] = ratio
    return {**figures, "events": events, "stores": stores, "growth": growth}


def measure_long(options: Options) -> dict[str, Any]:
    """Load logs of two lengths: the rate stays, and memory does not grow with the events."""
    rows = []
    for events in (QUICK // 10, QUICK) if options.quick else LONG:
        with TemporaryDirectory(prefix="turret-history-load-") as work:
            log = Path(work) / "log"
            write_parts(log, events)
            row = measured(load_raw, log, f"sqlite:///{work}/h.sqlite")
            if row["events"] != events:
                raise SystemExit(
                    f"{row['events']:,.0f} of {events:,} events were loaded; nothing is compared"
                )
            size = sum(path.stat().st_size for path in Path(work).glob("h.sqlite*")) / 1e6
        rows.append({**row, "events_per_second": events / row["seconds"], "store_mb": size})
    last = rows[-1]
    return {
        "long_events": last["events"],
        "long_events_per_second": last["events_per_second"],
        "long_peak_mb": last["peak_mb"],
        "logs": rows,
    }


def show_long(figures: dict[str, Any]) -> None:
    """Print a table for people."""
    table = Table(title="A log of Parquet files into SQLite")
    for heading in ("events", "seconds", "events/s", "peak MB", "store MB"):
        table.add_column(heading)
    for row in figures["logs"]:
        names = ("events", "seconds", "events_per_second", "peak_mb", "store_mb")
        table.add_row(*(f"{row[name]:,.0f}" for name in names))
    Console().print(table)


def show(figures: dict[str, Any]) -> None:
    """Print a table for people."""
    table = Table(title=f"{figures['events']:,} events")
    for heading in ("store", "step", "events/s", "peak MB"):
        table.add_column(heading)
    for store, steps in figures["stores"].items():
        for step, row in steps.items():
            table.add_row(store, step, f"{row['events_per_second']:,.0f}", f"{row['peak_mb']:.0f}")
    for step, row in figures["growth"].items():
        rate = figures["events"] / row["seconds"]
        table.add_row("prepared data", step, f"{rate:,.0f}", f"{row['peak_mb']:.0f}")
    Console().print(table)


def main() -> None:
    """Run the benchmark."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--long", action="store_true", help="load logs of 2 and of 20 million events")
    options = read_options(__doc__, needs_data=False, more=more)
    if options.given.long:
        figures = measure_long(options)
        show_long(figures)
        finish("history_load_long", options, figures)
        return
    figures = measure(options)
    show(figures)
    finish("history_load", options, figures)


if __name__ == "__main__":
    main()
