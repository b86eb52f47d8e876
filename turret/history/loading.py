"""Loads events into a store of histories, in short writes that let a running service write between them."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.data.configuration import load_configuration
from turret.data.errors import ConfigurationError, without_credentials
from turret.data.files import scratch_folder
from turret.data.kinds import negative_kinds, read_kinds
from turret.data.object_stores import Place
from turret.data.prepared import GivenNegatives, PreparedData
from turret.data.progress import progress
from turret.data.ranges import groups, ranges, stable_order
from turret.data.vocabulary import Id
from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import CLOCK_SKEW, Event, HistoryStore, oldest_kept
from turret.service.stores.registry import open_stores, store_kind

Rows = NDArray[np.int64]
_Key = tuple[str, int, str | None]  # item, time and kind of an event
EventKey = tuple[str, str, int, str | None]
"""The user, the item, the time in milliseconds since 1970, and the kind of an event."""
AnswersOf = Callable[[Sequence[str]], Mapping[EventKey, list[str]]]
"""Returns the answers that the events of some users name, those of equal events in their order."""

PORTION = 1 << 17  # events in memory at a time
WRITE_EVENTS = 2_000  # of one write, which locks SQLite's file or keeps a Redis busy for about 10 ms
# The pause after a write, as a share of its duration: SQLite's waiting writers seldom look for the lock.
_PAUSE = 0.5
_MARGIN = 100  # stored events read of a user beyond the number in the log


@dataclass
class LoadReport:
    """The numbers of events read, kept and newly stored, the number of users, and the seconds taken."""

    read: int = 0
    kept: int = 0
    stored: int = 0
    users: int = 0
    seconds: float = 0.0

    def sentence(self, address: str) -> str:
        """Describe the load, for people."""
        older, known = self.read - self.kept, self.kept - self.stored
        place, rate = without_credentials(address), self.kept / max(self.seconds, 1e-9)
        return (
            f"{self.kept:,} events of {self.users:,} users: {self.stored:,} are new in {place}, "
            f"{known:,} were there already ({self.seconds:.1f} s, {rate:,.0f} events/s)"
            + (f"; {older:,} older ones are not loaded, as no answer reads them" if older else "")
        )


def no_answers(users: Sequence[str]) -> Mapping[EventKey, list[str]]:
    """The answers that the events of prepared data name: it keeps none."""
    return {}


def load_histories(data: PreparedData, settings: Settings, answers_of: AnswersOf = no_answers) -> LoadReport:
    """Load the events of `data` that the store of `settings` doesn't hold yet, with the answers they name.

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
    now = time.time_ns() // 1_000_000
    oldest = oldest_kept(settings.keep_days, now)
    portions = logged_events(data, settings.stored_history_limit, oldest, now, answers_of)
    report, begun = LoadReport(), time.monotonic()
    with progress("Loading", data.manifest.counts.events) as advance:
        asyncio.run(_load(portions, settings, report, advance, data.manifest.default_kind))
    report.seconds = time.monotonic() - begun
    return report


async def _load(
    portions: Iterable[tuple[int, list[list[Event]]]],
    settings: Settings,
    report: LoadReport,
    advance: Callable[[int], None],
    default_kind: str | None,
) -> None:
    stores = open_stores(settings)
    try:
        for read, users in portions:
            report.read += read
            sizes = np.cumsum([0, *map(len, users)])
            for first, last in pairwise(groups(sizes, WRITE_EVENTS)):
                new = await _new_events(stores.histories, users[first:last], default_kind)
                for start in range(0, len(new), WRITE_EVENTS):
                    begun = time.monotonic()
                    report.stored += await stores.histories.append(new[start : start + WRITE_EVENTS])
                    await asyncio.sleep(_PAUSE * (time.monotonic() - begun))
            report.users += len(users)
            report.kept += int(sizes[-1])
            advance(read)
    except HistoryDamagedError:
        raise
    except HistoryUnavailableError as error:
        raise ServiceError(
            f"{error}; {report.stored:,} new events are stored, and the same command continues"
        ) from None
    finally:
        await stores.close()


async def _new_events(
    store: HistoryStore, users: Sequence[list[Event]], default_kind: str | None
) -> list[Event]:
    """Return the events that the store doesn't hold.

    An event of the log may be stored under another id, if the service received it and it came into the log
    from there. So equal events, with one user, item, time and kind (if the log has kinds), are counted: those
    beyond the number in the store are new.
    """
    logged = {events[0].user: events for events in users}
    has_kinds = any(event.kind is not None for events in users for event in events)
    counts: dict[str, Counter[_Key]] = {}
    limit = max(map(len, users)) + _MARGIN
    waiting = list(logged)
    while waiting:
        for user, history in (await store.recent(waiting, limit)).items():
            kinds: Iterable[str | None] = repeat(None)
            if has_kinds:
                kinds = (kind or default_kind for kind in history.kinds or repeat(None, len(history.items)))
            counts[user] = Counter(zip(map(str, history.items), history.times, kinds, strict=False))
            # Events before the oldest one that was read may equal it.
            if len(history.items) < limit or history.times[0] < logged[user][0].time:
                waiting.remove(user)
        limit *= 4
    new = []
    for event in chain.from_iterable(users):
        equal = (str(event.item), event.time, event.kind)
        if counts[event.user][equal]:
            counts[event.user][equal] -= 1
        else:
            new.append(event)
    return new


def logged_events(
    data: PreparedData, newest: int, oldest: int, now: int, answers_of: AnswersOf = no_answers
) -> Iterator[tuple[int, list[list[Event]]]]:
    """Yield the number of events read, and the kept ones of each user, oldest first.

    Rows of a negative kind are events too.

    The `newest` events of each user with times from `oldest` on, in milliseconds since 1970, are kept. A time
    more than CLOCK_SKEW after `now` comes from a wrong clock and becomes `now`.

    A portion has the events of whole users. Users come in the order of their ids as text, which is the order
    of the tables of a store in SQLite. An event id is made of time, item, kind and the number among equal
    events, so it is the same whenever the log is read. A log without times has the positions in a user's
    history as times, which precede the times of all later events.
    """
    ids = data.users.ids(range(len(data.users)))
    order = np.arange(len(ids))
    if ids and isinstance(ids[0], int):  # texts are in order already
        order = np.argsort(np.array([str(number).encode() for number in ids]), kind="stable")
    negatives = all_negatives(data, data.offsets[1:])
    sizes = np.diff(data.offsets) + np.bincount(negatives.owners, minlength=len(data.users))
    totals = np.concatenate([[0], np.cumsum(sizes[order])])
    for first, last in pairwise(groups(totals, PORTION)):
        users = order[first:last]
        kept = kept_events(data, negatives, users, newest, now)
        yield int(totals[last] - totals[first]), list(_portion(data, users, kept, oldest, answers_of))


def all_negatives(data: PreparedData, ends: Rows) -> GivenNegatives:
    """The rows of negative kinds before the positions `ends` [U] of all users, by user and time.

    Without times they come before a user's other events.
    """
    negatives = data.given_negatives(np.arange(len(data.users)), ends)
    times = negatives.times if data.manifest.time.kind == "timestamp" else np.zeros_like(negatives.owners)
    chosen = np.flatnonzero(negatives.kinds < 0)  # the others have a label
    chosen = chosen[stable_order([negatives.owners[chosen], times[chosen]])]
    return GivenNegatives(
        negatives.owners[chosen], negatives.items[chosen], times[chosen], negatives.kinds[chosen]
    )


class KeptEvents(NamedTuple):
    """The newest events of some users, by user and time, as a store holds them: all arrays are [E].

    `owners` count the users; `items` are rows; `times` are those of the log, and `stored` those in the store,
    in milliseconds since 1970. `codes` count the `names` of the kinds.
    """

    owners: NDArray[np.int32]
    items: NDArray[Any]
    times: NDArray[Any]
    stored: NDArray[Any]
    codes: NDArray[np.int64]
    names: list[str | None]


def kept_events(
    data: PreparedData,
    negatives: GivenNegatives,
    users: Rows,
    newest: int,
    now: int,
    ends: Rows | None = None,
) -> KeptEvents:
    """The `newest` events of each of the `users` (rows [U]) before the positions `ends` [U] (None: all)."""
    lengths = (data.offsets[users + 1] if ends is None else ends) - data.offsets[users]
    positions = ranges(np.asarray(data.offsets[users]), lengths)
    owners = np.repeat(np.arange(len(users), dtype=np.int32), lengths)
    times = np.asarray(data.times[positions])
    if data.manifest.split.kind == "files":  # in others the parts of a history follow in time
        order = stable_order([owners, times])
        positions, times = positions[order], times[order]
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(positions))
    if data.manifest.time.kind != "timestamp":
        times = lengths[owners] - from_end
    is_newest = from_end <= newest
    positions, owners, times = positions[is_newest], owners[is_newest], times[is_newest]
    items = np.asarray(data.event_items[positions])
    names: list[str | None] = [None]
    codes = np.zeros(len(positions), dtype=np.int64)
    if data.kinds is not None:
        # A negative code, such as -1, counts from the end.
        names = [*read_kinds(data.manifest.kinds), *reversed(negative_kinds(data.manifest.kinds))]
        codes = data.kinds[positions].astype(np.int64)
    first, end = (np.searchsorted(negatives.owners, users, side) for side in ("left", "right"))
    if (end > first).any():
        negative_rows = ranges(first, end - first)
        # At the same time, an item is returned before another one is bought.
        owners = np.concatenate([np.repeat(np.arange(len(users), dtype=np.int32), end - first), owners])
        times = np.concatenate([negatives.times[negative_rows], times])
        items = np.concatenate([negatives.items[negative_rows], items])
        codes = np.concatenate([negatives.kinds[negative_rows], codes])
        order = stable_order([owners, times])
        owners, times, items, codes = owners[order], times[order], items[order], codes[order]
    stored = np.where(times > now + CLOCK_SKEW, now, np.maximum(times, 0))
    return KeptEvents(owners, items, times, stored, codes, names)


def _portion(
    data: PreparedData, users: Rows, kept: KeptEvents, oldest: int, answers_of: AnswersOf
) -> Iterator[list[Event]]:
    """Yield the events of each of the `users` (rows [U]) from `oldest` on; users without any are left out."""
    owners, items, times, stored_times, codes, names = kept
    numbers = _numbers(owners, items, times)
    is_kept = stored_times >= oldest
    rows = zip(
        data.item_ids.ids(items[is_kept]),
        times[is_kept].tolist(),
        stored_times[is_kept].tolist(),
        numbers[is_kept].tolist(),
        codes[is_kept].tolist(),
        strict=True,
    )
    counts = np.bincount(owners[is_kept], minlength=len(users)).tolist()
    texts = [*map(str, data.users.ids(users))]
    answers = answers_of(texts)

    def event(user: str, item: Id, time: Any, stored: int, number: int, kind: str | None) -> Event:
        named = answers.get((user, str(item), time, kind)) if answers else None
        return Event(
            _event_id(time, number, item, kind), user, item, stored, kind, named.pop(0) if named else None
        )

    for user, count in zip(texts, counts, strict=True):
        if count:
            yield [
                event(user, item, time, stored, number, names[code])
                for item, time, stored, number, code in islice(rows, count)
            ]


def _event_id(time: float, number: int, item: Id, kind: str | None) -> str:
    """The id of an event; with a kind, it differs from the id of the same event loaded without kinds."""
    return f"log:{time}:{number}:{item}" + ("" if kind is None else f":{kind}")


def _numbers(owners: NDArray[np.int32], items: NDArray[Any], times: NDArray[Any]) -> Rows:
    """Return the number of earlier events with the same owner, item and time: int64 [E]."""
    keys = (owners, items, times)
    order = stable_order(keys)
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    places = np.arange(len(order))
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return numbers


@contextmanager
def prepared_log(
    source: Place | str | None,
    settings: Mapping[str, Any],
    report: Callable[[str], object],
    path: Path | None = None,
) -> Iterator[tuple[PreparedData, AnswersOf]]:
    """Prepare `source`, or the sources of the settings, and report dropped and doubtful rows.

    `settings` by their dotted names win over those of the TOML file `path`. The answers that events name are
    those of the column `columns.answer`, or `answer_id`.

    The result lasts for the block. This needs Polars, which a service lacks.
    """
    from turret.data.events.dropped_rows import headline_of
    from turret.data.preparing.prepare import prepare
    from turret.data.reading.schema import PrepareConfig
    from turret.history.named_answers import NamedAnswers

    config = load_configuration(PrepareConfig, path, {**settings, "source": source})
    lost = ConfigurationError(
        f"the kinds of the column {config.columns.kind!r} would be lost, as no table has them; give each "
        "with --kind NAME=ROLE, as the live version has it, or leave out --kind-column if all are alike"
    )
    if config.columns.kind is not None and not (config.kinds or config.kinds_auto):
        raise lost
    named = list[NamedAnswers]()
    with scratch_folder() as work:
        prepared = prepare(config, work / "prepared", on_log=lambda log: named.append(NamedAnswers(log)))
        if config.columns.kind is not None and not prepared.manifest.kinds:  # the log is no funnel
            raise lost
        (answers,) = named
        for sentence in (*headline_of(prepared.manifest), *prepared.doubts, *answers.sentences()):
            report(sentence)
        yield PreparedData.open(prepared.folder), answers.of
