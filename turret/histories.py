"""From a log of events to the store of the service: `turret.load_histories`."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from pathlib import Path

from turret.arguments import COLUMNS, log_settings, naming_arguments
from turret.data.manifest import MANIFEST
from turret.data.prepared import PreparedData
from turret.history.loading import LoadReport, prepared_log
from turret.history.loading import load_histories as load_events
from turret.service.settings import Settings, read_settings
from turret.tables import Table, table_paths

_LOG = logging.getLogger("turret")


@naming_arguments({**COLUMNS, "--store": "store=..."})
def load_histories(
    events: PreparedData | Table,
    store: str | None = None,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> LoadReport:
    """Load the events of a log into the store of a service, so that their users are recommended by id.

    Events that the store holds are skipped, so the same call continues an interrupted one. The service may
    run meanwhile. Its limits are read from the environment, as `turret serve` reads them.

    Args:
        events: prepared data or its folder, or one row an event: a table in memory, or the path of anything
            that `turret history load` reads.
        store: the address of the store, such as `sqlite:///var/history.sqlite`; by default that of
            `TURRET_STORE`.
        user: the column of user ids of raw events. The same holds for `item` and `time`.
        item: the column of item ids.
        time: the column of times.
        settings: other settings that concern raw events, as for `turret.prepare`.

    Raises:
        DataError: the events can't be read.
        ServiceError: the store can't be used.
    """
    where = read_settings(store=store)
    return _outside_event_loop(partial(_load, events, where, log_settings(user, item, time, settings)))


def _load(events: PreparedData | Table, where: Settings, options: Mapping[str, object]) -> LoadReport:
    if isinstance(events, PreparedData):
        return load_events(events, where)
    if isinstance(events, str | PathLike) and (Path(events) / MANIFEST).is_file():
        return load_events(PreparedData.open(Path(events)), where)
    with table_paths(events) as paths, prepared_log(paths.events, options, _LOG.info) as prepared:
        return load_events(prepared, where)


def _outside_event_loop(call: Callable[[], LoadReport]) -> LoadReport:
    """Call in a thread where this one runs an event loop, as in a notebook: a second loop can't run here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()
