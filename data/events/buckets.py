"""External sort of events: users are divided into buckets on disk, and each bucket is sorted in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turret.data.events.event_arrays import Events
from turret.data.events.event_files import PIECE, EventFiles
from turret.data.files.parallel import map_ordered
from turret.data.ranges import groups

Change = Callable[[Events], Events]


class UnsortedEvents(Protocol):
    """The events of a log, wherever they lie; users and items are numbers in the order of their discovery."""

    @property
    def columns(self) -> dict[str, DTypeLike]:
        """The types of the columns of `data.events.event_arrays.Events`."""

    def __len__(self) -> int: ...

    def by_user(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, change: Change
    ) -> Iterator[Events]:
        """Yield the events sorted by user, part and time (stable), all events of a user in one block.

        User u becomes the row `users[u]` and item i the row `items[i]`; `change` is applied to each sorted
        block. The events can be read once; `work` is a folder for temporary files.
        """


class LoggedEvents(EventFiles):
    """Events on disk in the order of their log."""

    def by_user(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, change: Change
    ) -> Iterator[Events]:
        """Yield the events sorted by user, part and time (see `UnsortedEvents`)."""
        yield from sorted_buckets(self, users, items, work, change)


def sorted_buckets(
    log: EventFiles,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    work: Path,
    change: Change,
) -> Iterator[Events]:
    """Yield the events of `log` sorted by user, part and time (stable), a bucket of users at a time.

    User u of the log becomes the row `users[u]` and item i the row `items[i]`; `change` is applied to the
    sorted events of each bucket. Buckets are written into the folder `work`, and the log is deleted.
    """
    totals = _totals(log, users)
    first_users = groups(totals, PIECE)
    buckets = _divide(log, users, items, totals, first_users, work)
    log.remove()
    edges = totals[first_users].tolist()

    def sort(bucket: int) -> Events:
        return change(Events(**buckets.read(edges[bucket], edges[bucket + 1])).sorted())

    yield from map_ordered(sort, range(len(edges) - 1))
    buckets.remove()


def _totals(log: EventFiles, users: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of events of all users before each row: int64 [U + 1]."""
    counts = np.zeros(len(users), dtype=np.int64)
    # Larger pieces, because each adds the counts of all users.
    for first in range(0, len(log), 8 * PIECE):
        block = log.read(first, min(first + 8 * PIECE, len(log)), "users")
        counts += np.bincount(block["users"], minlength=len(users))
    totals = np.zeros(len(users) + 1, dtype=np.int64)
    totals[users + 1] = counts
    return np.cumsum(totals)


def _divide(
    log: EventFiles,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    totals: NDArray[np.int64],
    first_users: NDArray[np.int64],
    work: Path,
) -> EventFiles:
    """Write the buckets end to end, the events of each in the order of the log."""
    count = len(first_users) - 1
    # NumPy uses a radix sort for 16-bit integers.
    numbers = np.arange(count, dtype=np.uint16 if count <= 1 << 16 else np.uint32)
    bucket_of = np.repeat(numbers, np.diff(first_users))

    def divide(first: int) -> tuple[Events, NDArray[np.int64]]:
        events = Events(**log.read(first, min(first + PIECE, len(log)))).renumbered(users, items)
        buckets = bucket_of[events.users]
        ends = np.cumsum(np.bincount(buckets, minlength=count))
        return events.take(np.argsort(buckets, kind="stable")), ends

    positions = totals[first_users].tolist()
    with EventFiles(work / "buckets", log.columns) as files:
        for events, ends in map_ordered(divide, range(0, len(log), PIECE)):
            start = 0
            for bucket, end in enumerate(ends.tolist()):
                files.write(events.take(slice(start, end)), positions[bucket])
                positions[bucket] += end - start
                start = end
    return files
