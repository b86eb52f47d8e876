"""The processor time of a request by catalog and store.

Requests name a user of 50 stored events and ask for ten items. The service keeps to one processor, the load
to another. Other programs on the machine make every request take longer: measure on a quiet one.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import redis_server, turret_cost
from benchmarks.scale_service import (
    CATALOGS,
    QUICK_CATALOGS,
    QUICK_SECONDS,
    QUICK_USERS,
    SECONDS,
    USERS,
    bundles_of,
    measure_requests,
    prepared_shop,
    questions,
)
from turret.data.prepared import PreparedData


def measure_stores(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """The smallest and the largest catalog, with SQLite, and with a Redis where there is one.

    The bundles of `benchmarks.scale service` are used if they are there.
    """
    seconds, users = (QUICK_SECONDS, QUICK_USERS) if quick else (SECONDS, USERS)
    catalogs = QUICK_CATALOGS if quick else (CATALOGS[0], CATALOGS[-1])
    points = []
    for catalog in catalogs:
        data = prepared_shop(catalog.items, folder, users)
        bundles = folder / f"bundles_{catalog.items}_{catalog.dimension}"
        if not (bundles / "current").exists():
            bundles_of(catalog, data, folder)
        items = len(PreparedData.open(data).item_ids)
        point = {"items": items, "dimension": catalog.dimension}
        points.append(point | measure_both(bundles, data, seconds))
    return points


def measure_both(bundles: Path, data: Path, seconds: float) -> dict[str, Any]:
    """The costs of requests with each store."""
    bodies, figures = questions(data), {}
    with tempfile.TemporaryDirectory(prefix="turret-scale-") as work:
        address = f"sqlite:///{work}/h.sqlite"
        turret_cost("history", "load", "--data", data, "--store", address)
        figures["sqlite"] = measure_requests(bundles, address, bodies, seconds)
        with _redis(Path(work)) as (server, process):
            if server is not None:
                turret_cost("history", "load", "--data", data, "--store", server)
                figures["redis"] = measure_requests(bundles, server, bodies, seconds, process)
    return figures


@contextmanager
def _redis(folder: Path) -> Iterator[tuple[str | None, int]]:
    """A Redis with the number of its process, or None and 0."""
    with redis_server(folder) as address:
        if address is None:
            yield None, 0
            return
        from redis import Redis

        with Redis.from_url(address) as client:
            info: Any = client.info("server")
        yield address, int(info["process_id"])
