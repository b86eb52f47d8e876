"""Repeated events of a prepared log, and sentences about possible faults of the log."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from shlex import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.events.dropped_rows import names_of
from turret.data.events.event_arrays import Events
from turret.data.events.log import Log
from turret.data.histories.histories import FAST, Accounts, Histories
from turret.data.kinds import KindTable, left_out_for, read_kinds
from turret.data.manifest import Columns
from turret.data.progress import counted
from turret.data.ranges import distinct
from turret.data.reading.queries import ORDER
from turret.data.reading.tables import LogSource, Source, readable
from turret.data.reading.times import TimeReader
from turret.data.rows import LOCAL, Engine

VISIT_GAP = 30 * 60_000
"""The milliseconds without an event of a user that end a visit: the half hour of web analytics."""
_LEAST_LATER = 0.01


@dataclass(frozen=True)
class Repeats:
    """Counts of a log.

    Attributes:
        share: the share of the training events whose user has used the item in an earlier visit.
        in_visit: the share of the training events that repeat an item of their user within a visit, such as a
            purchase after a view.
        targets: the number of distinct items of each user's targets in the test part, summed over users.
        repeated_targets: the number of these items that the user has used before the test part, by events
            whose items answers leave out.
    """

    share: float
    in_visit: float
    targets: int
    repeated_targets: int


def count_repeats(
    histories: Histories, splits: NDArray[np.int64], has_times: bool, has_kinds: bool, kinds: KindTable
) -> Repeats:
    """Count the repeats of a log; `splits` are as in `PreparedData`, `kinds` is empty if events are alike.

    Without times, each event counts as a visit of its own. The same holds where hardly any user has a second
    visit, as with sessions for users or with numbers for times, unless kinds of events show a funnel.
    """
    gap = VISIT_GAP if has_times else -math.inf
    consumed = [code for code, span in enumerate(left_out_for(kinds, None)) if span] if kinds else None
    counts = histories.by_block(
        lambda block: repeats_of(
            block.events, splits[block.users] - block.start, gap, histories.targets, consumed
        )
    )
    events, uses, visited, later, targets, repeated = np.sum(list(counts), axis=0).tolist()
    if not has_kinds and later < _LEAST_LATER * events:
        visited = events
    return Repeats((visited - uses) / max(events, 1), (events - visited) / max(events, 1), targets, repeated)


def repeats_of(
    events: Events,
    splits: NDArray[np.int64],
    gap: float,
    targets: list[int] | None = None,
    consumed: list[int] | None = None,
) -> tuple[int, ...]:
    """Count the training events, their distinct items by user and by visit, and the events of later visits.

    The function also counts the distinct items of each user in the test part, and the items among them that
    were used before the test part: by events of the kinds `targets` and `consumed`, None where all events are
    alike. A visit ends where a user has no event for `gap`. `events` are sorted, with `splits` int64 [U, 2].
    """
    place = np.arange(len(events))
    is_train, is_test = place < splits[events.users, 0], place >= splits[events.users, 1]
    uses = events.users.astype(np.int64) << 32 | events.items.astype(np.int64) << 1
    is_begun = np.diff(events.users, prepend=-1) != 0
    visits = np.cumsum(is_begun | (np.diff(events.times, prepend=0) >= gap))
    first_visits = visits[is_begun][np.cumsum(is_begun) - 1]
    trained = (
        int(is_train.sum()),
        len(distinct(uses[is_train])),
        len(distinct((visits << 32 | events.items)[is_train])),
        int((visits > first_visits)[is_train].sum()),
    )
    uses |= is_test
    if events.kinds is not None:
        uses = uses[np.where(is_test, events.are_of(targets), events.are_of(consumed))]
    # All uses of an item by a user are now adjacent, and uses in the test are last.
    uses.sort()
    is_first, is_last = np.diff(uses >> 1, prepend=-1) != 0, np.diff(uses >> 1, append=-1) != 0
    is_used, is_target = uses[is_first] & 1 == 0, uses[is_last] & 1 == 1
    return *trained, int(is_target.sum()), int((is_target & is_used).sum())


# These patterns are for names in small letters, with _ between words.
_QUANTITY = re.compile(r"(?:.*_)?(?:qty|quantity|units|pieces|menge)(?:_(?:ordered|sold|purchased|bought))?")
_STATE = re.compile(r"(?:.*_)?(?:status|state)")
_FLAG = re.compile(r"(?:.*_)?(?:refund(?:ed)?|return(?:ed)?|cancell?ed|charge_?back|voided|storno|storniert)")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
_UNDONE = r"refund|return|cancel|charge_?back|void|storn"
_TRUE = r"^(?:true|t|yes|y|ja|j|x|1(?:\.0)?)$"
# A user with this share of the events, and this ratio to the share of the mean user, may be nobody.
_LARGE_SHARE, _LARGE_RATIO = 0.1, 5
_FEWEST_USES = 1.2  # events an item: below, nearly all occur once
_SHOWN = 3
_EASY = (
    ". A signal shortly before a target of its item makes that easy to tell: with --duplicates strongest "
    "--session-gap 30m they are one event"
)


def doubtful_rows(source: LogSource, time: TimeReader, engine: Engine = LOCAL) -> Iterator[str]:
    """Yield one sentence per cause for which rows that are read as events may be none.

    The function reads the first table of the source, which may be gone with the folder of its copies when all
    is written.
    """
    columns = source.columns
    if columns.time == ORDER:
        return
    if time.doubt:
        yield time.doubt
    read = {name for _, name in columns if name is not None}
    _, table = source.parts[0]
    with readable(table.path):
        unread = {name: dtype for name, dtype in table.frame.collect_schema().items() if name not in read}
    names = {name: _WORDS.sub("_", name).lower() for name, dtype in unread.items() if not dtype.is_nested()}
    quantities, states, flags = (
        [name for name, words in names.items() if pattern.fullmatch(words) and role is None]
        for pattern, role in ((_QUANTITY, columns.quantity), (_STATE, columns.kind), (_FLAG, columns.kind))
    )
    if not (quantities or states or flags):
        return
    state, flag = (
        pl.col(some).cast(pl.String, strict=False).str.strip_chars().str.to_lowercase()
        for some in (states, flags)
    )
    number = pl.col(quantities).cast(pl.String, strict=False).str.replace(",", ".", literal=True)
    number = number.cast(pl.Float64, strict=False)
    with readable(table.path):
        parts = table.rows(engine).collect(
            lambda frame: frame.select(
                (number <= 0).sum(), state.str.contains(_UNDONE).sum(), flag.str.contains(_TRUE).sum()
            )
        )
    counts = parts.sum().row(0, named=True)
    for name in (name for name in quantities if counts[name]):
        yield (
            f"{name!r} is zero or below in {counted(counts[name], 'row')}, as in a return: "
            f"--quantity {quote(name)} leaves these out"
        )
    for name in (name for name in (*states, *flags) if counts[name]):
        yield (
            f"{name!r} tells of returns, refunds or cancellations in {counted(counts[name], 'row')}, which "
            "count as the others do: leave them out, or tell the kinds by "
            f"--kind-column {quote(name)} --kind VALUE --kind VALUE=negative"
        )


def prepare_warnings(
    source: Source, log: Log, columns: Columns, histories: Histories, repeats: Repeats, doubts: Iterable[str]
) -> Iterator[str]:
    """Yield one sentence per choice and per surprise, including the sentences of `doubtful_rows`."""
    is_log = columns.time != ORDER
    if is_log:
        yield f"time: {log.time.note}"
    yield from log.notes
    for _, table in source.parts:
        if len(table.files) > 1:
            first, *_, last = (file.relative_to(table.path).as_posix() for file in table.files)
            yield f"{table.path}: {len(table.files):,} parts by the numbers in their names, {first} to {last}"
    if source.unread:
        yield f"not read: {names_of(source.unread)}"
    yield from doubts
    if is_log:
        yield from _odd(histories, columns)
        if histories.accounts is not None and histories.accounts.fast:
            yield from _too_fast(histories.accounts)
    if not repeats.targets:
        noun = "event" if histories.targets is None else "target"
        yield f"the split leaves no {noun} for the test, so no model can be evaluated; " + (
            "choose another --split" if is_log else "give more queries, or their parts by --query-split"
        )
    if repeats.in_visit:
        yield (
            f"{repeats.in_visit:.1%} of the training events repeat an item of the same visit (no half hour "
            "without an event), such as a purchase after a view; they don't count as users who come back"
            + _EASY
            * (len(read_kinds(log.kinds)) > 1)
        )
    if repeats.repeated_targets:
        where = "an earlier visit of their user" if repeats.in_visit else "their user"
        policy = (
            "strongest, which keeps the event of the largest weight"
            if log.has_weights or log.kinds
            else "first, which keeps only first uses"
        )
        yield (
            f"{repeats.share:.1%} of the training events repeat an item of {where}, and "
            f"{repeats.repeated_targets:,} of {repeats.targets:,} test targets were used before; evaluation "
            "and the service leave out used items by default, so these can't be hit: if users come back for "
            "the same items, train with --set evaluation.exclude_seen=false, else prepare with --duplicates "
            f"{policy}"
        )


def _odd(histories: Histories, columns: Columns) -> Iterator[str]:
    """Warn of equal times, items that do not recur, a user with a large share of the events, and odd ids."""
    if histories.first == histories.last and len(histories) > len(histories.users):
        yield (
            "all events have one time, so their order is that of the file; if this is the time of an export, "
            "name another column with --time"
        )
    if len(histories) < _FEWEST_USES * len(histories.items):
        yield (
            f"nearly all items occur once ({len(histories):,} events have {len(histories.items):,}) and "
            f"can't be learnt; if {columns.item!r} holds orders or lists, name another column with --item"
        )
    counts = np.diff(histories.offsets)
    most = int(counts.argmax())
    share = float(counts[most] / counts.sum())
    if share >= max(_LARGE_SHARE, _LARGE_RATIO / len(counts)):
        user = histories.users.id(most)
        yield (
            f"user {user!r} has {share:.1%} of the events; if it stands for nobody, leave them out with "
            f"--null {columns.user}={user} --on-bad drop"
        )
    for name, vocabulary in ((columns.user, histories.users), (columns.item, histories.items)):
        if vocabulary.kind == "string":
            texts = pl.Series(vocabulary.all_ids, dtype=pl.String)
            digits = texts.filter(texts.str.contains(r"^\d+$"))
            plain = digits.str.strip_chars_start("0")
            if count := len(digits) - plain.n_unique():
                twice = digits.filter(plain == plain.filter(plain.is_duplicated())[0])
                yield (
                    f"{name!r} has ids that differ in zeros in front alone ({count:,}), such as {twice[0]!r} "
                    f"and {twice[1]!r}; if these are one, a program that read them as numbers "
                    "lost the zeros: write all in one form"
                )


def _too_fast(accounts: Accounts) -> Iterator[str]:
    """Warn of accounts that can't be people, by the pace of their events."""
    sizes = accounts.fast.values()
    limit = min(round(math.sqrt(accounts.others * min(sizes))), min(sizes) - 1)
    named = ", ".join([*map(repr, sorted(accounts.fast)[:_SHOWN]), *["..."] * (len(sizes) > _SHOWN)])
    yield (
        f"{sum(sizes) / accounts.events:.1%} of the events are of {counted(len(sizes), 'account')} ({named}) "
        f"with {FAST:,} events and more within a day, which no person has: --max-user-events {limit} leaves "
        f"out users with more than {limit:,} events; the most of another user are {accounts.others:,}"
    )
