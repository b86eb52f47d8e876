"""Loads events into a store of histories, in short writes that leave time for those of a running service."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from turret.data.errors import without_credentials
from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.history.logged_events import KeptEvents, logged_events
from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import Event, HistoryStore
from turret.service.stores.registry import open_stores, store_kind

Result = TypeVar("Result")

WRITE_EVENTS = 2_000  # of one write: SQLite locks its file for about 10 ms, and a Redis is as busy
# After each write, as a share of its duration: waiting writers of SQLite only look for the lock now and then.
_PAUSE = 0.5
_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
_MARGIN = 100  # stored events read of a user beyond the number in the log


@dataclass
class LoadReport:
    """The numbers of events read, of those kept, and of the new ones among these, and the seconds taken."""

    read: int = 0
    kept: int = 0
    stored: int = 0
    users: int = 0
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Kept events a second."""
        return self.kept / max(self.seconds, 1e-9)

    def sentence(self, address: str) -> str:
        """Describe the load, for people."""
        older, known = self.read - self.kept, self.kept - self.stored
        place = without_credentials(address)
        return (
            f"{self.kept:,} events of {self.users:,} users: {self.stored:,} are new in {place}, "
            f"{known:,} were there already ({self.seconds:.1f} s, {self.rate:,.0f} events/s)"
            + (f"; {older:,} older ones are not loaded, as no answer reads them" if older else "")
        )


def load_histories(data: PreparedData, settings: Settings) -> LoadReport:
    """Load the events of `data` into the store of `settings`, those that it doesn't hold yet.

    Raises ServiceError for a store that keeps nothing, for a log without times that the store would expire,
    and for a store that becomes unavailable: the same call continues.
    """
    address = settings.store
    if not store_kind(address).is_lasting:
        raise ServiceError(
            f"{address} is lost with its process, so nothing is loaded into it; "
            "name the store of the service with --store sqlite:///PATH or redis://HOST"
        )
    if settings.keep_days is not None and data.manifest.time.kind != "timestamp":
        raise ServiceError(
            f"{data.folder} has an order but no times, and with TURRET_KEEP_DAYS = {settings.keep_days} the "
            "store deletes events by their time; prepare a log with times, or unset TURRET_KEEP_DAYS"
        )
    kept = KeptEvents.of(settings.stored_history_limit, settings.keep_days)
    with progress("Loading", data.manifest.counts.events) as advance:
        return asyncio.run(_load(logged_events(data, kept), settings, advance))


async def _load(
    portions: Iterable[tuple[int, list[list[Event]]]], settings: Settings, advance: Callable[[int], None]
) -> LoadReport:
    stores = open_stores(settings)
    report = LoadReport()
    try:
        for read, users in portions:
            report.read += read
            for batch in _batches(users):
                await _load_batch(stores.histories, batch, report)
            advance(read)
    finally:
        await stores.close()
    report.seconds = time.monotonic() - report.begun
    return report


async def _load_batch(store: HistoryStore, users: Sequence[list[Event]], report: LoadReport) -> None:
    """Store the events of a few users."""
    new = await _retried(partial(_new_events, store, users), report)
    for first in range(0, len(new), WRITE_EVENTS):
        begun = time.monotonic()
        write = partial(store.append, new[first : first + WRITE_EVENTS])
        report.stored += await _retried(write, report)
        await asyncio.sleep(_PAUSE * (time.monotonic() - begun))
    report.users += len(users)
    report.kept += sum(map(len, users))


async def _new_events(store: HistoryStore, users: Sequence[list[Event]]) -> list[Event]:
    """Return the events that the store doesn't hold.

    An event of the log may be stored under an id of its own, if the service received it and it came into the
    log from there. So of equal events, with one user, item and time, as many are new as the store has fewer.
    """
    logged = {events[0].user: events for events in users}
    counts: dict[str, Counter[tuple[str, int]]] = {}
    limit = max(map(len, users)) + _MARGIN
    waiting = list(logged)
    while waiting:
        for user, history in (await store.recent(waiting, limit)).items():
            counts[user] = Counter(zip(map(str, history.items), history.times, strict=True))
            # The oldest event that was read may have older equals.
            if len(history.items) < limit or history.times[0] < logged[user][0].time:
                waiting.remove(user)
        limit *= 4
    return [event for user, events in logged.items() for event in _missing(events, counts[user])]


def _missing(events: list[Event], stored: Counter[tuple[str, int]]) -> Iterator[Event]:
    for event in events:
        equal = (str(event.item), event.time)
        if stored[equal]:
            stored[equal] -= 1
        else:
            yield event


async def _retried(call: Callable[[], Awaitable[Result]], report: LoadReport) -> Result:
    """Call again after a while where the store is unavailable for a moment, such as locked by the service."""
    for seconds in _RETRY_SECONDS:
        try:
            return await call()
        except HistoryDamagedError:
            raise
        except HistoryUnavailableError:
            await asyncio.sleep(seconds)
    try:
        return await call()
    except HistoryUnavailableError as error:
        raise ServiceError(
            f"{error}; {report.stored:,} new events are stored, and the same command continues"
        ) from None


def _batches(users: Iterable[list[Event]]) -> Iterator[list[list[Event]]]:
    """Group users into batches of about WRITE_EVENTS events."""
    batch: list[list[Event]] = []
    count = 0
    for events in users:
        batch.append(events)
        count += len(events)
        if count >= WRITE_EVENTS:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch
