"""Spans: the targets of a batch, and the events that they may read."""

from dataclasses import dataclass, replace

import numpy as np

from turret.data.ranges import ranges
from turret.training.batches.event_times import Positions


@dataclass(frozen=True)
class Spans:
    """Runs of targets of one user each, as positions among all events.

    Attributes:
        users: int64 [S], the user row.
        contexts: int64 [S], the first event that the targets may read.
        stops: int64 [S], one past the last event that they may read.
        firsts: int64 [S], the first target.
        ends: int64 [S], one past the last target.
        counts: int64 [S], the number of targets: all events between the two, but those of signals.
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
        """The indices of part `part` of `parts` of the spans, which have nearly as many targets each.

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
        one; None keeps the context.
        """
        low, high = np.searchsorted(targets, self.firsts), np.searchsorted(targets, self.ends)
        some = np.flatnonzero(high > low)
        low, high, spans = low[some], high[some], self.take(some)
        spans = replace(spans, firsts=targets[low], ends=targets[high - 1] + 1, counts=high - low)
        if history_length is None:
            return spans
        contexts = np.maximum(spans.contexts, spans.firsts - history_length)
        return replace(spans, contexts=contexts, stops=spans.ends - 1)


def cut_spans(begins: Positions, ends: Positions, longest: int, history_length: int) -> Spans:
    """Cut each user's targets into spans of at most `longest`, which read the events before them.

    The first event of a history is no target: it has no history, and the service answers such a request with
    popular items, not with the tower.

    Args:
        begins: [U], each user's first event.
        ends: [U], one past each user's last training event.
        longest: the maximum number of targets of a span.
        history_length: the maximum number of events that a target reads.
    """
    users, nth, _ = _pieces(np.maximum(ends - begins - 1, 0), longest)
    firsts = begins[users] + 1 + nth * longest
    span_ends = np.minimum(firsts + longest, ends[users])
    contexts = np.maximum(begins[users], firsts - history_length)
    return _spans(users, contexts, span_ends - 1, firsts, span_ends)


def cut_segments(begins: Positions, ends: Positions, history_length: int) -> Spans:
    """Cut each user's events into spans whose targets all read from the same position on.

    Each span has at most `history_length` targets. Cutting starts at the newest event, so the short span is
    the oldest. For the arguments see `cut_spans`.
    """
    users, nth, pieces = _pieces(np.maximum(ends - begins - 1, 0), history_length)
    span_ends = ends[users] - (pieces[users] - 1 - nth) * history_length
    firsts = np.maximum(begins[users] + 1, span_ends - history_length)
    return _spans(users, firsts - 1, span_ends - 1, firsts, span_ends)


def cut_sets(begins: Positions, ends: Positions, longest: int, history_length: int) -> Spans:
    """Cut each user's events into spans of at most `longest` targets, which read the user's newest events.

    Users with one event have no span. For the arguments see `cut_spans`.
    """
    events = ends - begins
    users, nth, _ = _pieces(np.where(events > 1, events, 0), longest)
    firsts = begins[users] + nth * longest
    contexts = np.maximum(begins[users], ends[users] - history_length)
    return _spans(users, contexts, ends[users], firsts, np.minimum(firsts + longest, ends[users]))


def cut_queries(begins: Positions, ends: Positions, longest: int) -> Spans:
    """Cut the pairs of each query into spans of at most `longest`, which read no event."""
    users, nth, _ = _pieces(ends - begins, longest)
    firsts = begins[users] + nth * longest
    span_ends = np.minimum(firsts + longest, ends[users])
    return _spans(users, firsts, firsts, firsts, span_ends)


def _spans(
    users: Positions, contexts: Positions, stops: Positions, firsts: Positions, ends: Positions
) -> Spans:
    """Spans in which every event is a target."""
    return Spans(users, contexts, stops, firsts, ends, ends - firsts)


def _pieces(targets: Positions, longest: int) -> tuple[Positions, Positions, Positions]:
    """Cut counts of targets [U] into pieces of `longest`: user and number of each, pieces per user."""
    pieces = -(-targets // longest)
    users = np.repeat(np.arange(len(targets), dtype=np.int64), pieces)
    return users, ranges(np.zeros(len(targets), dtype=np.int64), pieces), pieces
