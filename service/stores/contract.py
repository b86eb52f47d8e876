"""The contracts of stores: histories, item changes, the members' record, and the registry entry.

Methods run in the event loop, so they must not block it: a wait is awaited, or runs in a thread. On return
from a change, every later call of any process reads it, and a lasting store keeps it when the process dies.

`tests/contracts` tests every store against these contracts. Another package adds a store by an entry point in
the group `turret.stores`: its name is the URL scheme, its value a `StoreKind` (docs/histories.md).
"""

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, runtime_checkable

from turret.service.settings import Settings

# Counting a user's events up to this limit takes a tenth of a second.
COUNT_LIMIT = 1_000_000
# The changes that one call reads; a Redis runs nothing else during the call.
CHANGES_PAGE = 1_000
# The events that one call of `arrivals` reads, and the newest ones that a store keeps in their order.
ARRIVALS_PAGE, ARRIVALS_KEPT = 5_000, 100_000
CLOCK_SKEW = 300_000  # milliseconds by which the time of an event may be in the future
_DAY = 86_400_000  # milliseconds
_ITEM, _TIME, _KIND = map(itemgetter, range(3))  # of a row


class Event(NamedTuple):
    """One event: `user` is the id as text (7 and "7" are one user), `time` milliseconds since 1970.

    `answer_id` is the id of the answer that led to the event, if the client has named one.
    """

    event_id: str
    user: str
    item: int | str
    time: int
    kind: str | None = None
    answer_id: str | None = None


class History(NamedTuple):
    """A user's items, oldest first, the time of each in milliseconds since 1970, and its kind.

    `kinds` has None for an event without a kind, and is empty where no event has a kind.
    """

    items: Sequence[int | str]
    times: Sequence[int]
    kinds: Sequence[str | None] = ()

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> "History":
        """The history of rows of item, time and kind, oldest first."""
        items, times = list(map(_ITEM, rows)), list(map(_TIME, rows))
        return cls(items, times, list(map(_KIND, rows)) if any(map(_KIND, rows)) else ())


class Moved(NamedTuple):
    """The numbers of events that moved to another user: `new` ones, and ones whose ids that user had already.

    The `known` events are dropped, like any event whose id its user has already.
    """

    new: int
    known: int


class Arrival(NamedTuple):
    """A stored event without its user; `digest` is that of `event_digest`."""

    digest: str
    item: int | str
    time: int
    kind: str | None


class Arrivals(NamedTuple):
    """Events in the order in which they were stored, and the position behind the last one."""

    position: str
    events: Sequence[Arrival] = ()


def event_digest(user: str, event_id: str) -> str:
    """Sixteen hexadecimal digits that tell an event from others, and not whose it is."""
    text = f"{len(user)}:{user}{event_id}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


class HistoryStore(Protocol):
    """Events by user, ordered by time and then by arrival.

    With `keep_days`, older events (by the service's clock) are neither stored nor read, and are deleted in
    time. Every method raises HistoryUnavailableError while the store is unavailable.
    """

    async def append(self, events: Sequence[Event]) -> int:
        """Store all events or none; return the number of new ones.

        An event id is unique per user: the first event stays, later ones with the same id are ignored, so
        events can be sent again safely. A call that is cancelled stores nothing after a later `forget`.
        """

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        """Return the newest `limit` events of each user; an unknown user has an empty history."""

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's event count (at most COUNT_LIMIT) and newest `limit` events, oldest first."""

    def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of all users with first <= time < last, in portions of bounded size.

        Each event that is stored during the whole scan comes once; the events of a user come one after
        another, oldest first. Users come in any order. Other calls need not wait for a scan.
        """

    async def forget(self, user: str) -> int:
        """Delete a user's events with their ids and return their number.

        A forgotten event that is sent again is new. A long history is deleted in portions, oldest first;
        after an error the next call continues.
        """

    async def move(self, user: str, to: str) -> Moved:
        """Move a user's events, with their ids, to another user.

        If two calls move the events of one `user` at once, each event goes to one of the two targets. An
        event that is stored for `user` during the call is moved or stays. After an error each event belongs
        to one of the two users or to both, and repeating the call completes the move.
        """

    async def health_warnings(self) -> list[str]:
        """Return a sentence for each setting of the store that risks acknowledged events."""

    async def close(self) -> None:
        """Finish running calls and release all resources."""


@runtime_checkable
class ListsArrivals(Protocol):
    """A history store that lists its events in the order of their arrival.

    A service with a store that lacks this method has no popular items of late.
    """

    async def arrivals(self, after: str | None) -> Arrivals | None:
        """Return up to `ARRIVALS_PAGE` events that were stored after a position, or the present end (None).

        A new event is listed as soon as any call reads it, and once: events that move to another user are not
        listed again, and forgotten ones stay, as nobody's. The store keeps the last `ARRIVALS_KEPT` events at
        least; the return is None if it may have dropped events after the position.
        """


def clamp_times(events: Sequence[Event], now: int, skew: int = CLOCK_SKEW) -> list[Event]:
    """Clamp the times of events to those from 1970 until `skew` milliseconds from `now`.

    A time further in the future comes from a wrong clock and would stay its user's newest event for good: it
    becomes now. A time before 1970 becomes 1970.
    """
    return [
        event if 0 <= event.time <= now + skew else event._replace(time=min(max(event.time, 0), now))
        for event in events
    ]


def now_ms() -> int:
    """The time by the clock of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def oldest_kept(keep_days: float | None, now: int | None = None) -> int:
    """Return the earliest time that is kept, in milliseconds since 1970; -2^63 if all are."""
    if keep_days is None:
        return -(2**63)
    return (now_ms() if now is None else now) - round(keep_days * _DAY)


def drop_expired(events: Sequence[Event], oldest: int) -> list[Event]:
    """Drop the events before `oldest`."""
    return [event for event in events if event.time >= oldest]


@dataclass(frozen=True)
class Change:
    """The last change of an item; `item` is the id as text (7 and "7" are one item).

    `number` counts all changes of a store; `time` is in milliseconds since 1970. `features` and `fields` are
    JSON objects as the client sent them. A withdrawn item has no features, and its `fields` are the JSON
    object of the `features` and `fields` that it had, or None.
    """

    item: str
    number: int
    time: int
    features: bytes | None
    fields: bytes | None

    @property
    def is_withdrawn(self) -> bool:
        """Whether the item is withdrawn from recommendation until it is put again."""
        return self.features is None


class NewChange(NamedTuple):
    """A change to store: an item's features and fields as JSON objects, as in a `Change`.

    With `after`, the change is stored only if the item's last change has that number (0: it has no change).
    """

    item: str
    time: int
    features: bytes | None = None
    fields: bytes | None = None
    after: int | None = None


class Changes(NamedTuple):
    """Changed items in the order of their numbers, complete up to the number `last` (0: no item has changed).

    A `last` that is below an earlier one means another store, or an older copy of the store.
    """

    last: int
    items: Sequence[Change]


class ItemStore(Protocol):
    """The last change of each item that was put or withdrawn. Repeating a change is harmless.

    Every method raises ItemsUnavailableError while the store is unavailable.
    """

    async def change(self, changes: Sequence[NewChange]) -> list[int]:
        """Store changes of different items in their order, and return the number of each; 0: not stored.

        After an error any of the changes may be stored.
        """

    async def last(self, items: Sequence[str]) -> list[Change | None]:
        """Return the last change of each item, None where there is none."""

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        """Return the first `limit` items whose last change has a number above `since`.

        `last` is the number of the last item if there are `limit` items, else the store's last number.
        """

    async def close(self) -> None:
        """Finish running calls and release all resources."""


class Revision(NamedTuple):
    """The numbers of a record's state, by which members notice changes.

    `record` differs after each replacement of the record (0: there is none). `items` is the number of the
    last change of an item (0: none).
    """

    record: int
    items: int


class Late(NamedTuple):
    """The processes of this service, and the other replicas, that lack a change; they go on trying.

    `warning` says that no member could be asked.
    """

    processes: list[int]
    replicas: list[str]
    warning: str | None = None

    def shown(self) -> dict[str, Any]:
        """The fields of a response that name the late processes and replicas, if there are any."""
        named = (("behind", self.processes), ("replicas_behind", self.replicas), ("warning", self.warning))
        return {name: value for name, value in named if value}


class Member(NamedTuple):
    """The last report of a member, and its age in seconds."""

    name: str
    age: float
    report: bytes


class RecordStore(Protocol):
    """One record that all members (worker processes) of a service share, and a report of each member.

    Every method raises ReplicasUnavailableError while the store is unavailable.
    """

    async def poll(self) -> Revision:
        """Return the numbers by which changes are noticed; cheap enough for 20 calls a second per member."""

    async def read(self) -> bytes:
        """Return the record, empty for none."""

    async def swap(self, before: bytes, after: bytes) -> bytes:
        """Replace the record by `after` if it is `before` (empty: none), and return the record.

        `after` is not empty. After an error the record may have been replaced.
        """

    async def members(
        self, name: str = "", report: bytes = b"", forget_after: float = 0
    ) -> tuple[Member, ...]:
        """Return the last report of each member, in any order.

        With a `name`, first store its report and drop the reports older than `forget_after` seconds.
        """

    async def leave(self, name: str) -> None:
        """Forget a member that ends."""

    async def announce(self, items: int) -> None:
        """Raise the number of the last item change to `items`; a store that also keeps the items knows it."""

    async def take_lease(self, holder: str, seconds: float) -> bool:
        """Take or prolong the lease for `seconds`, or return it with 0; False if another holder has it."""

    async def close(self) -> None:
        """Finish running calls and release all resources."""


class Stores(NamedTuple):
    """The history store and the item store of one address."""

    histories: HistoryStore
    items: ItemStore

    async def close(self) -> None:
        """Close both stores."""
        await self.histories.close()
        await self.items.close()


@dataclass(frozen=True)
class StoreKind:
    """A registry entry: the builder of stores of one scheme, and their capabilities.

    `open` takes the settings, whose `store` is the address, and raises ServiceError for a faulty address; it
    should not wait for a remote server. The stores are opened and closed once before the workers start.
    `is_lasting`: acknowledged changes survive the process. `is_shared`: several processes may open one
    address and read each other's changes.
    `open_records` opens the record of members on several machines; None: all members are on one machine.
    """

    open: Callable[[Settings], Stores]
    is_lasting: bool = True
    is_shared: bool = True
    open_records: Callable[[Settings], RecordStore] | None = None
