"""Spans: the targets of a batch, and the events that they may read."""

from dataclasses import dataclass, replace

import numpy as np

from turret.data.ranges import ranges
from turret.tower.towers.user import SETS, Context
from turret.training.batches.event_times import Positions


@dataclass(frozen=True)
class Spans:
    """Runs of targets, each of one user, as positions among all events.

    Attributes:
        users: int64 [S], the user row.
        contexts: int64 [S], the first event that the targets may read.
        stops: int64 [S], one past the last event that they may read.
        firsts: int64 [S], the first target.
        ends: int64 [S], one past the last target.
        counts: int64 [S], the number of targets: all events from `firsts` to `ends` without signals.
    """

    users: Positions
    contexts: Positions
    stops: Positions
    firsts: Positions
    ends: Positions
    counts: Positions

    def __len__(self) -> int:
        return len(self.users)

    def take(self, indices: Positions) -> "Spans":
        """The spans at `indices`, in that order."""
        return Spans(**{name: column[indices] for name, column in vars(self).items()})

    def share(self, part: int, parts: int) -> Positions:
        """The indices of the spans of part `part` of `parts`, which have nearly equal numbers of targets.

        A span belongs to the part that its middle target lies in; a part may be empty.
        """
        middles = np.cumsum(self.counts) - (self.counts + 1) // 2
        first, last = np.searchsorted(middles * parts, np.array([part, part + 1]) * self.counts.sum())
        return np.arange(first, last)

    def starting_at(self, firsts: Positions, history_length: int | None) -> "Spans":
        """Drop targets before `firsts` [U] of their user; they are still read as history.

        `history_length` limits the context before the first target; None keeps the context.
        """
        firsts = np.maximum(self.firsts, firsts[self.users])
        spans = replace(self, firsts=firsts, counts=self.ends - firsts)
        if history_length is not None:
            spans = replace(spans, contexts=np.maximum(self.contexts, firsts - history_length))
        return spans.take(np.flatnonzero(self.ends > firsts))

    def of_targets(self, targets: Positions, history_length: int | None) -> "Spans":
        """Keep the events at `targets` (ascending) as targets; the others are only read as history.

        `history_length` limits the context before the first target, and targets read nothing after the last
        target; None keeps the context.
        """
        low, high = np.searchsorted(targets, self.firsts), np.searchsorted(targets, self.ends)
        some = np.flatnonzero(high > low)
        low, high, spans = low[some], high[some], self.take(some)
        spans = replace(spans, firsts=targets[low], ends=targets[high - 1] + 1, counts=high - low)
        if history_length is None:
            return spans
        contexts = np.maximum(spans.contexts, spans.firsts - history_length)
        return replace(spans, contexts=contexts, stops=spans.ends - 1)


def cut_spans(
    begins: Positions, ends: Positions, context: Context, longest: int, history_length: int
) -> Spans:
    """Cut each user's targets into spans of at most `longest`, which read the events of their `context`.

    "causal_window": a target reads the events before it. The first event of a history is no target: it has no
    history, and the service answers such a request with popular items, not with the tower.
    "causal_segment": the same, but all targets of a span, at most `history_length`, read from one position
    on; cutting starts at the newest event, so the short span is the oldest. Sets: a target reads the user's
    newest events; users with one event have no span. "none", for queries: a target reads no event.

    Args:
        begins: [U], each user's first event.
        ends: [U], one past each user's last training event.
        context: the context of the user tower.
        longest: the maximum number of targets of a span.
        history_length: the maximum number of events that a target reads.
    """
    oldest = begins if context in (*SETS, "none") else np.minimum(begins + 1, ends)
    targets = np.where(ends - oldest > 1, ends - oldest, 0) if context in SETS else ends - oldest
    longest = history_length if context == "causal_segment" else longest
    pieces = -(-targets // longest)
    users = np.repeat(np.arange(len(targets), dtype=np.int64), pieces)
    nth = ranges(np.zeros(len(targets), dtype=np.int64), pieces)
    begins, ends, firsts = begins[users], ends[users], oldest[users] + nth * longest
    span_ends = np.minimum(firsts + longest, ends)
    if context == "causal_segment":
        span_ends = ends - (pieces[users] - 1 - nth) * longest
        firsts = np.maximum(begins + 1, span_ends - longest)
        contexts, stops = firsts - 1, span_ends - 1
    elif context in SETS:
        contexts, stops = np.maximum(begins, ends - history_length), ends
    elif context == "none":
        contexts, stops = firsts, firsts
    else:
        contexts, stops = np.maximum(begins, firsts - history_length), span_ends - 1
    return Spans(users, contexts, stops, firsts, span_ends, span_ends - firsts)
