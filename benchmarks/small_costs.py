"""What single steps of the service cost that every request takes, and that no request may wait for.

`filter_ms`: a mask over 200,000 items. `look_us`: whether something has changed in the memory that workers
share. `overlay_look_us`: the fresh items, of which there are none. `note_us`: the metrics of an answer.
`log_put_us` and `log_close_s`: a line to a log that nobody reads, and the end of that log. Each is the best
of some turns, as other work on the machine only adds to it.
"""

import asyncio
import logging
import os
import time
import timeit
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Options, run
from benchmarks.serving_shop import VERSIONS, served_shop
from turret.service.observing.logs import Logs
from turret.service.observing.observation import Observation
from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.settings import Settings
from turret.service.stores.sqlite.items import SqliteItems
from turret.service.versions.follower import Stops
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.filters import compile_filter

ITEMS, SHOP_ITEMS = 200_000, 2_000
TURNS = 7
END_SECONDS = 0.2  # that a blocked log is given at the end


def best(step: Callable[[], object], count: int) -> float:
    """The seconds of a step in the best of some turns of `count` steps."""
    return min(timeit.repeat(step, number=count, repeat=TURNS)) / count


def of_filter() -> float:
    """The seconds of a mask by a list and a range."""
    years = np.random.default_rng(0).integers(1900, 2020, ITEMS).tolist()
    genres = [["drama", "war", "noir"][: year % 4] for year in years]
    catalog = Catalog.build(range(ITEMS), {"year": years, "genres": genres})
    asked = compile_filter({"genres": {"any_of": ["war"]}, "year": {"gte": 1990, "lt": 2000}}, catalog)
    return best(lambda: asked.condition.mask(catalog), 3)


async def of_overlay() -> float:
    """The seconds of a look at the overlay of a bundle without fresh items."""
    bundle = Bundle.open(served_shop(SHOP_ITEMS).bundles / VERSIONS[0])
    overlay = ItemOverlayCache(SqliteItems())
    await overlay.of(bundle)
    return best(lambda: overlay.current(bundle), 1000)


async def of_note() -> float:
    """The seconds of noting an answer of ten items."""
    observation = Observation(Settings(), lambda: None, {})
    rows = np.arange(10)
    note = AnswerRecord("towers", 10, 50, 0, np.ones(8, np.float32), rows, None, rows, np.ones(10))
    return best(lambda: observation.answered(None, [note]), 1000)  # type: ignore[arg-type]


def of_blocked_log() -> tuple[float, float]:
    """The seconds of a line, and of the end."""
    readable, writable = os.pipe()
    logs = Logs(form="json", descriptor=writable)
    logs.start()
    logs.answered(logging.ERROR, {"route": "x" * 1_000_000})  # more than a pipe takes
    line = best(lambda: logs.answered(logging.ERROR, {"route": "/v1/recommend"}), 1000)
    begun = time.perf_counter()
    logs.close(END_SECONDS)
    seconds = time.perf_counter() - begun
    os.close(readable)
    return line, seconds


def measure(options: Options) -> dict[str, float]:
    """Every step; a quick run is no quicker."""
    stops = Stops()
    line, log_end = of_blocked_log()
    return {
        "filter_ms": 1e3 * of_filter(),
        "look_us": 1e6 * best(lambda: stops.count, 10_000),
        "overlay_look_us": 1e6 * asyncio.run(of_overlay()),
        "note_us": 1e6 * asyncio.run(of_note()),
        "log_put_us": 1e6 * line,
        "log_close_s": log_end,
    }


if __name__ == "__main__":
    run(measure, needs_data=False)
