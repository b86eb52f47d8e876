"""Events as arrays: in memory, in files, and sorted on disk by buckets of users."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turret.data.files import ArrayFile, map_ordered
from turret.data.ranges import groups, stable_order


@dataclass(frozen=True)
class Events:
    """E events as arrays.

    `users` and `items` are int32 [E] rows, `times` int64 or float64 [E], `weights` float32 [E] or None,
    `parts` int8 [E] (0 train, 1 validation, 2 test) where the source states the part of each event, `labels`
    int8 [E] (1, or 0 for a negative) where it has negatives, `kinds` int8 [E] codes (`data.kinds`) where
    events have kinds with a meaning, and `sessions` [E] where the log names sessions: hashes of their ids
    (int64), or numbers within a user (int32, `data.events.sessions`), -1 for none. Where the log names
    answers, `places` uint16 [E] (0 for none) and `propensities` float32 [E] (NaN for none) are those of the
    item in the answer. `contexts` int32 [E] number the distinct
    contexts where the log has columns of contexts.
    """

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: NDArray[Any]
    weights: NDArray[np.float32] | None = None
    parts: NDArray[np.int8] | None = None
    labels: NDArray[np.int8] | None = None
    kinds: NDArray[np.int8] | None = None
    sessions: NDArray[np.int64] | NDArray[np.int32] | None = None
    places: NDArray[np.uint16] | None = None
    propensities: NDArray[np.float32] | None = None
    contexts: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.users)

    def take(self, positions: NDArray[Any] | slice) -> "Events":
        """Return the events at `positions` (indices, a mask [E], or a slice)."""
        columns = {name: values for name, values in vars(self).items() if values is not None}
        return Events(**{name: values[positions] for name, values in columns.items()})

    def are_of(self, kinds: Sequence[int] | None) -> NDArray[np.bool_]:
        """Mask the events of the kinds with these codes, bool [E]; all events if they are alike."""
        if self.kinds is None or kinds is None:
            return np.ones(len(self), dtype=np.bool_)
        return np.isin(self.kinds, kinds)

    def sorted(self) -> "Events":
        """Return the events sorted by user, part and time (stable)."""
        parts = [] if self.parts is None else [self.parts]
        return self.take(stable_order([self.users, *parts, self.times]))

    def renumbered(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> "Events":
        """Return the events with user row u as `users[u]` and item row i as `items[i]`."""
        return replace(self, users=users[self.users], items=items[self.items])


PIECE = 1 << 20  # events held in memory at a time
_LEAST_BLOCK, _BLOCKS = 1 << 16, 32
Change = Callable[[Events], Events]


def user_blocks(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first user of each block of whole users, and U, for `offsets` int64 [U + 1].

    A log that fits a piece is divided too: several threads take its blocks, whose columns fit the caches of a
    processor, in two thirds of the time of one block.
    """
    return groups(offsets, min(PIECE, max(_LEAST_BLOCK, int(offsets[-1]) // _BLOCKS)))


class EventFiles:
    """Columns of `data.events.event_arrays.Events`, each in the file `NAME.npy` of one folder.

    Write inside the `with` block, read after it.
    """

    def __init__(self, folder: Path, columns: Mapping[str, DTypeLike]) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.columns = dict(columns)
        self._arrays = {name: ArrayFile(folder / f"{name}.npy", dtype) for name, dtype in columns.items()}
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for array in self._arrays.values():
            array.close()

    def __len__(self) -> int:
        return self._length

    def write(self, events: Events, position: int | None = None) -> None:
        """Write events at `position`, or append them."""
        position = self._length if position is None else position
        for name, array in self._arrays.items():
            array.write(getattr(events, name), position)
        self._length = max(self._length, position + len(events))

    def read(self, first: int, last: int, *names: str) -> dict[str, NDArray[Any]]:
        """Return the named columns (all by default) of events `first` to `last` (exclusive)."""
        return {name: self._arrays[name].read(first, last) for name in names or self._arrays}

    def by_user(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, change: Change
    ) -> Iterator[Events]:
        """Yield the events sorted by user, part and time (stable), all events of a user in one block.

        User u, a number in the order of discovery, becomes the row `users[u]`, and item i the row `items[i]`;
        `change` is applied to each block, a bucket of users. Buckets are written into the folder `work`, and
        the log is deleted.
        """
        counts = np.zeros(len(users), dtype=np.int64)
        # The pieces are larger here, because each piece adds the counts of all users.
        for first in range(0, len(self), 8 * PIECE):
            block = self.read(first, min(first + 8 * PIECE, len(self)), "users")
            counts += np.bincount(block["users"], minlength=len(users))
        totals = np.zeros(len(users) + 1, dtype=np.int64)  # the events before each row
        totals[users + 1] = counts
        totals = np.cumsum(totals)
        first_users = user_blocks(totals)
        count, edges = len(first_users) - 1, totals[first_users].tolist()
        # NumPy uses a radix sort for 16-bit integers.
        numbers = np.arange(count, dtype=np.uint16 if count <= 1 << 16 else np.uint32)
        bucket_of = np.repeat(numbers, np.diff(first_users))

        def divide(first: int) -> tuple[Events, NDArray[np.int64]]:
            last = min(first + PIECE, len(self))
            events = Events(**self.read(first, last)).renumbered(users, items)
            buckets = bucket_of[events.users]
            ends = np.cumsum(np.bincount(buckets, minlength=count))
            return events.take(np.argsort(buckets, kind="stable")), ends

        def sort(bucket: int) -> Events:
            return change(Events(**files.read(edges[bucket], edges[bucket + 1])).sorted())

        # The buckets are end to end, the events of each in the order of the log.
        positions = [*edges]
        with EventFiles(work / "buckets", self.columns) as files:
            for events, ends in map_ordered(divide, range(0, len(self), PIECE)):
                start = 0
                for bucket, end in enumerate(ends.tolist()):
                    files.write(events.take(slice(start, end)), positions[bucket])
                    positions[bucket] += end - start
                    start = end
        shutil.rmtree(self.folder)
        yield from map_ordered(sort, range(count))
        shutil.rmtree(files.folder)
