"""Repeated events of a prepared log, and sentences about what may be wrong with it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.events.dropped_rows import names_of
from turret.data.events.event_arrays import Events
from turret.data.histories.build_histories import BuiltHistories
from turret.data.preparing.ingest import IngestedSource
from turret.data.ranges import distinct
from turret.data.reading.queries import ORDER
from turret.data.reading.tables import Table, readable
from turret.data.reading.times import likely_times
from turret.data.vocabulary import Vocabulary

VISIT_GAP = 30 * 60_000
"""The milliseconds without an event of a user that end a visit: the half hour of web analytics."""
_LEAST_LATER = 0.01


@dataclass(frozen=True)
class Repeats:
    """Counts of a log.

    Attributes:
        share: the share of all events whose user has used the item in an earlier visit.
        in_visit: the share of all other events that repeat an item of their user, such as a purchase after
            a view.
        targets: the distinct items of each user in the test part.
        repeated_targets: those that the user has used before it.
    """

    share: float
    in_visit: float
    targets: int
    repeated_targets: int


def count_repeats(
    built: BuiltHistories, splits: NDArray[np.int64], has_times: bool, has_kinds: bool
) -> Repeats:
    """Count the repeats of a log; `splits` as in `data.prepared.PreparedData`.

    Without times all events count as visits of their own. So they do where hardly any user has a second
    visit, as with sessions for users or with numbers for times, unless kinds of events tell a funnel.
    """
    gap = VISIT_GAP if has_times else -math.inf
    counts = built.histories.by_block(
        lambda block: repeats_of(block.events, splits[block.users] - block.start, gap)
    )
    uses, visited, later, targets, repeated = np.sum(list(counts), axis=0).tolist()
    events = len(built.histories)
    if not has_kinds and later < _LEAST_LATER * events:
        visited = events
    return Repeats((visited - uses) / events, 1.0 - visited / events, targets, repeated)


def repeats_of(events: Events, splits: NDArray[np.int64], gap: float) -> tuple[int, int, int, int, int]:
    """Count the distinct items of each user and of each visit, and the events of later visits than the first.

    Also the distinct items of each user in the test part, and those of them that were used before it. A visit
    ends where a user has no event for `gap`. `events` are sorted, with `splits` int64 [U, 2].
    """
    is_test = np.arange(len(events)) >= splits[events.users, 1]
    uses = events.users.astype(np.int64) << 32 | events.items.astype(np.int64) << 1 | is_test
    # All uses of an item by a user are now adjacent, those in the test last.
    uses.sort()
    pairs = uses >> 1
    is_first, is_last = np.diff(pairs, prepend=-1) != 0, np.diff(pairs, append=-1) != 0
    is_used, is_target = uses[is_first] & 1 == 0, uses[is_last] & 1 == 1
    is_begun = np.diff(events.users, prepend=-1) != 0
    visits = np.cumsum(is_begun | (np.diff(events.times, prepend=0) >= gap))
    first_visits = visits[is_begun][np.cumsum(is_begun) - 1]
    visited = distinct(visits << 32 | events.items)
    return (
        int(is_first.sum()),
        len(visited),
        int((visits > first_visits).sum()),
        int(is_target.sum()),
        int((is_target & is_used).sum()),
    )


_QUANTITY = "quantity"
# Texts that exports write for nobody and nothing, and shops for a country or a brand.
_PERHAPS_NULL = ("NA", "N/A", "n/a", "<NA>", "#N/A", "nil", "undefined", "unknown", "anonymous", "guest")
# The share of the events, and its ratio to that of the mean user, of one who may be nobody.
_LARGE_SHARE, _LARGE_RATIO = 0.1, 5


def prepare_warnings(ingested: IngestedSource, built: BuiltHistories, repeats: Repeats) -> Iterator[str]:
    """Yield one sentence per warning."""
    is_log = ingested.columns.time != ORDER
    if is_log:
        yield f"time: {ingested.log.time.note}"
    for _, table in ingested.source.parts:
        if len(table.files) > 1:
            first, *_, last = (file.relative_to(table.path).as_posix() for file in table.files)
            yield f"{table.path}: {len(table.files):,} parts by the numbers in their names, {first} to {last}"
    if ingested.source.unread:
        yield f"not read: {names_of(ingested.source.unread)}"
    yield from ingested.log.time.doubts
    if is_log:
        yield from _wrong_clocks(ingested, built)
    yield from _odd_ids(ingested, built)
    if _has_unused_returns(ingested):
        yield (
            f"column {_QUANTITY!r} holds values of zero and below and is not used; "
            f"--quantity {_QUANTITY} drops such rows as returns"
        )
    if not repeats.targets:
        yield "the split leaves no event for the test, so no model can be evaluated; " + (
            "choose another --split" if is_log else "give more queries, or their parts by --query-split"
        )
    if repeats.in_visit:
        yield (
            f"{repeats.in_visit:.1%} of the events repeat an item of the same visit (no half hour without an "
            "event), such as a purchase after a view; they don't count as users who come back"
        )
    if repeats.repeated_targets:
        where = "an earlier visit of their user" if repeats.in_visit else "their user"
        policy = (
            "strongest, which keeps the event of the largest weight"
            if ingested.log.has_weights
            else "first, which keeps only first uses"
        )
        yield (
            f"{repeats.share:.1%} of the events repeat an item of {where}, and "
            f"{repeats.repeated_targets:,} of {repeats.targets:,} test targets were used before; evaluation "
            "and the service leave out used items by default, so these can't be hit: if users come back for "
            "the same items, train with --set evaluation.exclude_seen=false, else prepare with --duplicates "
            f"{policy}"
        )


def _wrong_clocks(ingested: IngestedSource, built: BuiltHistories) -> Iterator[str]:
    first, last = built.histories.first, built.histories.last
    if first == last and len(ingested.events.events) > len(built.users):
        yield (
            "all events have one time, so their order is that of the file; if this is the time of an export, "
            "name another column with --time"
        )
    earliest, latest = likely_times()
    if ingested.log.time.kind == "timestamp" and not earliest <= first <= last <= latest:
        shown = " to ".join(
            str(np.datetime64(int(end), "ms").astype("datetime64[D]")) for end in (first, last)
        )
        yield f"the times are from {shown}; those before 1990 or in the future may be of wrong clocks"


def _odd_ids(ingested: IngestedSource, built: BuiltHistories) -> Iterator[str]:
    """Ids read otherwise than written, and those that may stand for no value."""
    columns = ingested.columns
    names = {"user": columns.user, "item": columns.item}
    yield from _alike(ingested.events.users, columns.user)
    yield from _alike(ingested.events.items, columns.item)
    for role in sorted(ingested.log.float_ids):
        yield f"the ids of column {names[role]!r} print as floats, and are read as whole numbers: 7 for 7.0"
    counts = np.diff(built.histories.offsets)
    most = int(counts.argmax())
    share = float(counts[most] / counts.sum())
    is_odd = share >= max(_LARGE_SHARE, _LARGE_RATIO / len(counts))
    text = built.users.id(most) if is_odd else None
    if is_odd:
        yield (
            f"user {text!r} has {share:.1%} of the events; if it stands for nobody, leave them out with "
            f"--null {columns.user}={text} --on-bad drop"
        )
    vocabularies: dict[str, Vocabulary] = {"user": built.users, "item": built.items}
    for role, vocabulary in vocabularies.items():
        for found in _PERHAPS_NULL:
            if (row := vocabulary.row(found)) is not None and (role, found) != ("user", text):
                events = f" with {counts[row] / counts.sum():.1%} of the events" if role == "user" else ""
                yield (
                    f"{found!r} is an id of column {names[role]!r}{events}; if it stands for no value, "
                    f"leave it out with --null {names[role]}={found} --on-bad drop"
                )


def _alike(ids: pl.Series, column: str) -> Iterator[str]:
    """Ids that were one, or several, before an export."""
    if ids.dtype != pl.String:
        return
    bare = ids.str.strip_chars()
    padded = ids.filter((ids != bare) & bare.is_in(ids.implode()))
    if len(padded):
        first = padded.min()
        yield (
            f"ids of column {column!r} differ in blanks alone, such as {first!r}, and count as different "
            "ones; remove the blanks from the log"
        )
    rounded = ids.filter(ids.str.contains(r"^\d[.,]\d+E\+\d+$"))
    if len(rounded):
        yield (
            f"ids of column {column!r} such as {rounded.min()!r} were rounded by a spreadsheet, so that "
            "several may be one; export the log without it"
        )


def _has_unused_returns(ingested: IngestedSource) -> bool:
    if ingested.columns.quantity is not None or ingested.columns.weight is not None:
        return False
    return any(_holds_returns(table) for _, table in ingested.source.parts)


def _holds_returns(table: Table) -> bool:
    with readable(table.path):
        dtype = table.frame.collect_schema().get(_QUANTITY, pl.Null())
        if not (dtype.is_numeric() or dtype == pl.String):
            return False
        quantity = pl.col(_QUANTITY).cast(pl.Float64, strict=False)
        returns = table.frame.filter(quantity <= 0).select(_QUANTITY).head(1).collect(engine="streaming")
    return not returns.is_empty()
