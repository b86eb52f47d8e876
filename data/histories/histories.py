"""The histories of all users in files, read by blocks of users, and the filters that need the whole log."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from turret.data.errors import ConfigurationError, EmptyDataError
from turret.data.events.event_arrays import Change, EventFiles, Events, user_blocks
from turret.data.events.ids import vocabulary
from turret.data.events.log import Log
from turret.data.events.sessions import numbered
from turret.data.files import map_ordered
from turret.data.histories.duplicates import Merging
from turret.data.histories.negatives import GIVEN, without_negatives
from turret.data.kinds import target_codes
from turret.data.manifest import Removed
from turret.data.reading.schema import FilterSettings
from turret.data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from turret.data.spark.reading import SparkEvents

Result = TypeVar("Result")
FAST, _DAY = 1_000, 86_400_000
"""The number of events within a day that no person has: one event a minute for 17 hours."""
_LEFT_OUT = "left_out_users.json"
Mask = NDArray[np.bool_]
Core = tuple[Mask, Mask]
"""Masks of the kept users, bool [U], and items, bool [N]; events between a kept user and item are kept."""


def save_left_out(folder: Path, users: Iterable[str]) -> None:
    """Write the users with too many events, by their ids as texts: their later events are left out too."""
    if ids := sorted({*users}):
        Vocabulary(ids).save(folder / _LEFT_OUT)


def left_out_of(folder: Path) -> list[str]:
    """Return the users whom `save_left_out` has written."""
    if not (folder / _LEFT_OUT).exists():
        return []
    return [*map(str, Vocabulary.load(folder / _LEFT_OUT).all_ids)]


@dataclass
class Accounts:
    """Counts the events of each user of a log, before duplicates are left out.

    Attributes:
        most: users with more events are left out.
        has_times: whether the log has times, which show the pace of a user.
        users: the ids of all users.
        left_out: the ids of the users who are left out, as texts.
        removed: the number of rows of the users who are left out.
        events: the number of events of the users who stay.
        others: the most events of a user that is neither left out nor fast.
        fast: the number of events by id, of users with `FAST` events within a day who are not left out.
    """

    most: int | None
    has_times: bool
    users: Vocabulary
    left_out: list[str] = field(default_factory=list)
    removed: int = 0
    events: int = 0
    others: int = 1
    fast: dict[int | str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def people(self, events: Events) -> Events:
        """Count sorted events of whole users, and return the events of the users who stay.

        Given negatives are no events, and go with their user. Several threads may call this method.
        """
        starts = np.flatnonzero(np.diff(events.users, prepend=-1))
        rows, sizes = events.users[starts], np.diff(starts, append=len(events))
        are_events = np.ones(len(events), dtype=bool) if events.labels is None else events.labels == 1
        counts = np.add.reduceat(are_events, starts, dtype=np.int64) if len(starts) else starts
        is_kept = counts <= (np.inf if self.most is None else self.most)
        is_fast = np.zeros(len(starts), dtype=bool)
        for user in np.flatnonzero(is_kept & (counts >= FAST)).tolist() if self.has_times else ():
            times = np.sort(events.times[starts[user] : starts[user] + sizes[user]])
            is_fast[user] = (times[FAST - 1 :] - times[: 1 - FAST]).min() < _DAY
        people = events if is_kept.all() else events.take(np.repeat(is_kept, sizes))
        with self._lock:
            self.others = max(self.others, int(counts[is_kept & ~is_fast].max(initial=1)))
            self.events += int(counts[is_kept].sum())
            if is_fast.any():
                self.fast |= dict(zip(self.users.ids(rows[is_fast]), counts[is_fast].tolist(), strict=True))
            if len(people) < len(events):
                self.left_out += map(str, self.users.ids(rows[~is_kept]))
                self.removed += len(events) - len(people)
        return people


@dataclass(frozen=True)
class Block:
    """All events of consecutive users, in order, which are read from `files` when they are first used.

    `events.users` are relative to `first`, the row of the block's first user; `offsets` int64 [users + 1] are
    the users' bounds in `events`, and `start` is the position of the first event among all events.
    """

    files: EventFiles
    first: int
    start: int
    offsets: NDArray[np.int64]

    @cached_property
    def events(self) -> Events:
        """All events of the users; each block is read once, by the thread that handles it."""
        users = np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))
        return Events(users=users, **self.files.read(self.start, self.start + int(self.offsets[-1])))

    @property
    def users(self) -> slice:
        """The rows of the users."""
        return slice(self.first, self.first + len(self.offsets) - 1)


@dataclass(frozen=True)
class Histories:
    """E events sorted by user, part and time.

    `files` hold items, times and, where the log has them, weights, parts and kinds. `offsets` int64 [U + 1]
    are the bounds of the users, each of whom has an event once they are filtered; `first` and `last` are the
    earliest and the latest time. `splits` int64 [U, 2] are as in `data.prepared.PreparedData` if the source
    states the parts, else None. Every item has an event or a negative; `negatives` counts the negatives in
    the files of `data.histories.negatives`, None for a log without labels. `targets` are the codes of the
    kinds of targets, None where all events are alike. `accounts` tells which users can't be people.
    """

    files: EventFiles
    offsets: NDArray[np.int64]
    first: int | float
    last: int | float
    splits: NDArray[np.int64] | None
    users: Vocabulary = field(default_factory=lambda: Vocabulary([]))
    items: Vocabulary = field(default_factory=lambda: Vocabulary([]))
    removed: tuple[Removed, ...] = ()
    negatives: int | None = None
    targets: list[int] | None = None
    accounts: Accounts | None = None

    def __len__(self) -> int:
        return len(self.files)

    def by_block(self, function: Callable[[Block], Result]) -> Iterator[Result]:
        """Yield `function(block)` for all blocks, in order; several threads call `function`."""
        edges = pairwise(user_blocks(self.offsets).tolist())
        bounds = ((first, self.offsets[first : last + 1]) for first, last in edges)
        blocks = (
            Block(self.files, first, int(offsets[0]), offsets - offsets[0]) for first, offsets in bounds
        )
        return map_ordered(function, blocks)

    def by_user(self, function: Callable[[Block], NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the rows of all users, [U, ...], where `function` gives the rows of a block's users."""
        return np.concatenate(list(self.by_block(function)))


def write_histories(
    blocks: Iterable[Events],
    folder: Path,
    columns: Mapping[str, DTypeLike],
    user_count: int,
    has_parts: bool = False,
    has_positions: bool = False,
) -> Histories:
    """Write sorted `blocks` of events, with all events of a user in one block, into `folder`.

    `columns` are the columns to write. A user may have no event. `has_parts` tells whether events have parts;
    with `has_positions`, the times are the positions in a user's history.
    """
    counts = np.zeros((user_count, 3 if has_parts else 1), dtype=np.int64)
    times: list[int | float] = []
    with EventFiles(folder, columns) as files:
        for events in filter(len, blocks):
            first, last = events.users[[0, -1]].tolist()
            parts = 0 if events.parts is None else events.parts
            places = (events.users - first) * counts.shape[1] + parts
            of_users = counts[first : last + 1]
            of_users[:] = np.bincount(places, minlength=of_users.size).reshape(of_users.shape)
            if has_positions:
                begin = np.searchsorted(events.users, events.users)
                events = replace(events, times=np.arange(len(events), dtype=np.int64) - begin)
            times += [events.times.min().item(), events.times.max().item()]
            files.write(events)
    ends = np.cumsum(counts).reshape(counts.shape)
    offsets = np.append(0, ends[:, -1])
    splits = ends[:, :2] if has_parts else None
    return Histories(files, offsets, min(times, default=0), max(times, default=0), splits)


def build_histories(
    log: Log,
    events: "EventFiles | SparkEvents",
    user_ids: pl.Series,
    item_ids: pl.Series,
    filters: FilterSettings,
    folder: Path,
    work: Path,
    keep_items: bool = False,
    change: Change | None = None,
) -> Histories:
    """Sort and filter the events of a log, and write their arrays into `folder`.

    Users and items of `events` are positions in `user_ids` and `item_ids`, the distinct ids. `change` is
    applied to each sorted block before the filters; `work` is a folder for temporary files. Users and, unless
    `keep_items`, items without remaining events are dropped, and the others get new rows. Raises
    EmptyDataError naming the filter that leaves nothing.
    """
    policy, count, merging = filters.duplicates, len(events), Merging()
    if policy != "keep" or filters.session_gap is not None:
        _check_duplicates(log, filters)
        merging = Merging.of(policy, filters.session_gap, log.kinds)
    targets = target_codes(log.kinds) if log.kinds else None
    users, user_rows = vocabulary(user_ids, log.numeric["user"])
    items, item_rows = vocabulary(item_ids, log.numeric["item"])
    accounts = Accounts(filters.max_user_events, log.time.kind == "timestamp", users)
    limit = f"max_user_events = {accounts.most}"

    def filtered(block: Events) -> Events:
        block = accounts.people(block if change is None else change(block))
        block = block if policy == "keep" else distinct_events(block, merging)
        return block if block.sessions is None else numbered(block, filters.session_gap)

    is_whole = filters.min_user_events == filters.min_item_events == 1
    is_whole = is_whole and accounts.most is None and not log.has_labels
    left_out = {"users", *([] if log.has_labels else ["labels"]), *(["parts"] if is_whole else [])}
    columns = {name: dtype for name, dtype in events.columns.items() if name not in left_out}
    columns |= {"sessions": np.int32} if "sessions" in columns else {}
    blocks = events.by_user(user_rows, item_rows, work, filtered)
    place, has_positions = folder if is_whole else work / "all", log.time.kind == "position"
    whole = write_histories(blocks, place, columns, len(users), "parts" in events.columns, has_positions)
    if not len(whole):
        raise EmptyDataError(f"the filter {limit} leaves none of {count:,} events; loosen it")
    if accounts.left_out:
        save_left_out(folder, accounts.left_out)
    # The sorted events include the negatives, which are divided from them after the filters.
    lost = {limit: accounts.removed, f"duplicates = {policy}": count - accounts.removed - len(whole)}
    removed = tuple(Removed(filter=name, events=count) for name, count in lost.items() if count)
    whole = replace(whole, users=users, items=items, removed=removed, targets=targets, accounts=accounts)
    return whole if is_whole else _filter_core(whole, filters, folder, has_positions, keep_items)


def _check_duplicates(log: Log, filters: FilterSettings) -> None:
    """Raise ConfigurationError for filters that compare values which the log doesn't have."""
    if filters.duplicates == "exact" and log.time.kind == "position":
        raise ConfigurationError(
            'duplicates = "exact" compares times, but the events are in file order; use "first" or "last"'
        )
    if filters.duplicates == "strongest" and not log.has_weights and not log.kinds:
        raise ConfigurationError(
            'duplicates = "strongest" compares weights and kinds; name the column of weights with --weight, '
            "or kinds with --kind"
        )
    if filters.session_gap is not None and log.time.kind != "timestamp":
        raise ConfigurationError(
            f"session_gap needs timestamps, and the times of {log.path} are of the kind {log.time.kind!r} "
            f"({log.time.note}); name their column with --time, or leave --session-gap out"
        )


def _filter_core(
    whole: Histories, filters: FilterSettings, folder: Path, has_positions: bool, keep_items: bool
) -> Histories:
    """Write the histories of the users and items that have enough events into `folder`."""
    core = k_core(whole, filters.min_user_events, filters.min_item_events)
    name = f"min_user_events = {filters.min_user_events}, min_item_events = {filters.min_item_events}"
    if filters.min_user_events == filters.min_item_events == 1:
        name = "users without an event"  # such users have negatives alone
    if not core[0].any():
        raise EmptyDataError(f"the filter {name} leaves none of {len(whole):,} events; loosen it")
    if keep_items:
        core = (core[0], np.ones_like(core[1]))
    users, items = (np.cumsum(is_kept, dtype=np.int32) - 1 for is_kept in core)

    def cut(block: Block) -> Events:
        events = replace(block.events, users=block.first + block.events.users)
        return events.take(_kept(core, block)).renumbered(users, items)

    blocks, counts = whole.by_block(cut), Counter[str]()
    has_parts, has_labels = (name in whole.files.columns for name in ("parts", "labels"))
    columns = {name: dtype for name, dtype in whole.files.columns.items() if name not in ("parts", "labels")}
    if has_labels:
        blocks = without_negatives(filter(len, blocks), folder, columns, whole.targets, counts, has_positions)
    kept = write_histories(blocks, folder, columns, int(core[0].sum()), has_parts, has_positions)
    lost = {name: len(whole) - len(kept) - counts.total(), **counts}
    negatives = lost.pop(GIVEN, None)
    removed = tuple(Removed(filter=name, events=count) for name, count in lost.items() if count)
    return replace(
        kept,
        users=_at(whole.users, core[0]),
        items=_at(whole.items, core[1]),
        removed=whole.removed + removed,
        negatives=negatives,
        targets=whole.targets,
        accounts=whole.accounts,
    )


def _at(ids: Vocabulary, is_kept: Mask) -> Vocabulary:
    return Vocabulary(ids.ids(np.flatnonzero(is_kept)))  # type: ignore[arg-type]


def distinct_events(events: Events, merging: Merging) -> Events:
    """Leave out the duplicates of sorted events of whole users; negatives are no duplicates and stay."""
    chosen = np.flatnonzero(np.ones(len(events)) if events.labels is None else events.labels == 1)
    some, is_kept = events.take(chosen), np.ones(len(events), dtype=bool)
    is_kept[chosen] = merging.kept(some.users, some.items, some.times, some.kinds, some.weights)
    return events.take(is_kept)


def k_core(histories: Histories, min_user_events: int, min_item_events: int) -> Core:
    """Return the users and items with enough events, filtered repeatedly until all have enough.

    Dropping an item shortens histories and dropping a user makes items rarer; the largest set that meets both
    conditions does not depend on the order of application. The minima are one or more. Negatives count
    neither for users nor for items, but an item with negatives alone stays where the minimum is one.
    """
    core = np.ones(len(histories.offsets) - 1, dtype=bool), np.ones(len(histories.items), dtype=bool)
    while True:
        users, items = _count(histories, core, min_item_events > 1)
        # Dropped events are not counted, so the core only shrinks.
        smaller = users >= min_user_events, items >= min_item_events
        if all(np.array_equal(*masks) for masks in zip(smaller, core, strict=True)):
            return core
        core = smaller


def _kept(core: Core, block: Block) -> Mask:
    """Return the mask of the events of a block that are kept, bool [E]."""
    return core[0][block.users][block.events.users] & core[1][block.events.items]


def _count(
    histories: Histories, core: Core, events_of_items: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the events that `core` keeps of every user and of every item, by row.

    For items, negatives count too, unless `events_of_items`.
    """

    def count(block: Block) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = block.events.take(_kept(core, block))
        events = rows if rows.labels is None else rows.take(rows.labels == 1)
        users = np.bincount(events.users, minlength=len(block.offsets) - 1)
        counted = events if events_of_items else rows
        return users, np.bincount(counted.items, minlength=len(core[1]))

    users: list[NDArray[np.int64]] = []
    items = np.zeros(len(core[1]), dtype=np.int64)
    for of_users, of_items in histories.by_block(count):
        users.append(of_users)
        items += of_items
    return np.concatenate(users), items
