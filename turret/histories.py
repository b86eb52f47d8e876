"""`turret.load_histories`: loads a log of events into the store of the service."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from turret.arguments import checked
from turret.data.errors import DataError, is_path
from turret.data.manifest import MANIFEST
from turret.data.prepared import PreparedData
from turret.history.loading import LoadReport, prepared_log
from turret.history.loading import load_histories as load_events
from turret.logs import Table, log_settings, table_paths
from turret.service.settings import read_settings

_LOG = logging.getLogger("turret")


@checked
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
    run meanwhile. The limits of the service are read from the environment, as `turret serve` reads them.

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
    if not isinstance(events, PreparedData) and is_path(events) and (Path(events) / MANIFEST).is_file():
        events = PreparedData.open(Path(events))
    if isinstance(events, PreparedData) and (user or item or time or settings):
        raise DataError("prepared data has its columns: leave out user, item, time and settings")

    def load() -> LoadReport:
        if isinstance(events, PreparedData):
            return load_events(events, where)
        overrides = log_settings(user, item, time, settings)
        with table_paths(events) as (source, _), prepared_log(source, overrides, _LOG.info) as log:
            prepared, answers_of = log
            return load_events(prepared, where, answers_of)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return load()
    with ThreadPoolExecutor(1) as pool:  # a notebook's thread has a running event loop, and can't run another
        return pool.submit(load).result()
