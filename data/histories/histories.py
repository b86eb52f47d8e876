"""The histories of all users in files, read by blocks of users."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turret.data.events.event_arrays import PIECE, EventFiles, Events
from turret.data.files import map_ordered
from turret.data.ranges import groups

Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """All events of consecutive users, in order.

    `events.users` are relative to `first`, the row of the block's first user; `offsets` int64 [users + 1] are
    the users' bounds in `events`, and `start` is the position of the first event among all events.
    """

    first: int
    start: int
    offsets: NDArray[np.int64]
    events: Events

    @property
    def users(self) -> slice:
        """The rows of the users."""
        return slice(self.first, self.first + len(self.offsets) - 1)


@dataclass(frozen=True)
class Histories:
    """E events sorted by user, part and time.

    `files` hold items, times and, where the log has them, weights and parts. `offsets` int64 [U + 1] are the
    bounds of the users, each of whom has an event; `first` and `last` are the earliest and the latest time.
    `splits` int64 [U, 2] are as in `data.prepared.PreparedData` if the source states the parts, else None.
    """

    files: EventFiles
    offsets: NDArray[np.int64]
    first: int | float
    last: int | float
    splits: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.files)

    def by_block(self, function: Callable[[Block], Result]) -> Iterator[Result]:
        """Yield `function(block)` for all blocks, in order; several threads call it."""
        return map_ordered(lambda users: function(self._block(*users)), pairwise(groups(self.offsets, PIECE)))

    def _block(self, first: int, last: int) -> Block:
        start, end = self.offsets[[first, last]].tolist()
        offsets = self.offsets[first : last + 1] - start
        users = np.repeat(np.arange(last - first, dtype=np.int32), np.diff(offsets))
        return Block(first, start, offsets, Events(users=users, **self.files.read(start, end)))


def write_histories(
    blocks: Iterable[Events], folder: Path, columns: Mapping[str, DTypeLike], has_positions: bool
) -> Histories:
    """Write sorted `blocks` of events, with all events of a user in one block, into `folder`.

    `columns` are those to write. With `has_positions`, the times are the positions in a user's history.
    """
    lengths: list[NDArray[np.int64]] = []
    splits: list[NDArray[np.int64]] = []
    ends: list[int | float] = []
    with EventFiles(folder, columns) as files:
        for events in blocks:
            events = replace(events, users=events.users - events.users[0])
            offsets = events.offsets(int(events.users[-1]) + 1)
            if has_positions:
                events = events.with_positions(offsets)
            if events.parts is not None:
                splits.append(len(files) + by_part(events.parts, offsets))
            lengths.append(np.diff(offsets))
            ends += [events.times.min().item(), events.times.max().item()]
            files.write(events)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.concatenate(lengths))])
    return Histories(files, offsets, min(ends), max(ends), np.concatenate(splits) if splits else None)


def by_part(parts: NDArray[np.int8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Follow `parts` int8 [E] (0 train, 1 validation, 2 test), ascending within every user."""
    return np.column_stack([count_true(parts < part, offsets) for part in (1, 2)])


def count_true(is_before: NDArray[np.bool_], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return offsets[u] plus the number of true values of user u, int64 [U]."""
    counts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(is_before, dtype=np.int64)])
    return offsets[:-1] + counts[offsets[1:]] - counts[offsets[:-1]]
