"""Histories packed end to end, and their segments."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


def ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """The integers `start ... start + length - 1` of every range [R], end to end: int64 [sum of lengths]."""
    before = lengths.cumsum(0) - lengths
    positions = (starts - before).repeat_interleave(lengths)
    return positions + torch.arange(len(positions), device=starts.device)


def step_at(history: Tensor, position: Tensor) -> Tensor:
    """The step at `position` [B] of padded steps [B, T, D]: [B, D]."""
    return history.gather(1, position.reshape(-1, 1, 1).expand(-1, 1, history.shape[2])).squeeze(1)


@dataclass(frozen=True)
class PackedHistories:
    """Examples over histories that are packed without padding.

    Example b reads the items `rows[starts[b]:ends[b]]`, oldest first, without the item at `left_out[b]`.

    Attributes:
        rows: int64 [P], item rows of all histories of the batch, end to end.
        starts: int64 [B], where each example's window begins in `rows`.
        ends: int64 [B], where the window ends; larger than the start, but for queries without a history.
        users: int64 [B], the user row of each example.
        ages: float32 [B], how long before the end of training the example happened, as a share of the
            training period; zero when served.
        left_out: int64 [B], the position in `rows` of the example's target, -1 where its window doesn't hold
            it; None where no window does.
        gaps, clocks: float32 [P], the time from each event to the next (or to the request, after the last
            one read), and the time of the week of the latter, as `tower.times.time_inputs` gives them; None
            where they are unknown, or the tower reads none.
        kinds: int64 [P], the code of each event's kind (`data.kinds`), -1 where it is unknown; None where the
            towers read none.
        contexts: int64 [B], the row of each example's context in prepared data; None where the towers read
            none, or all are unknown.
    """

    rows: Tensor
    starts: Tensor
    ends: Tensor
    users: Tensor
    ages: Tensor
    left_out: Tensor | None = None
    gaps: Tensor | None = None
    clocks: Tensor | None = None
    kinds: Tensor | None = None
    contexts: Tensor | None = None

    def to(self, device: torch.device) -> "PackedHistories":
        """The same histories on another device."""
        return self._each(lambda column: column.to(device, non_blocking=True))

    def pinned(self) -> "PackedHistories":
        """The same histories in pinned memory."""
        return self._each(lambda column: column.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> "PackedHistories":
        columns: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        present = {name: change(column) for name, column in columns.items() if column is not None}
        return replace(self, **present)

    def distinct(self) -> tuple[Tensor, Tensor]:
        """The examples [S] with another user or window than the one before; the index in [S] of each of [B].

        Neighbours that leave different items out of one window differ, and so do those of two contexts.
        """
        columns = [self.users, self.starts, self.ends]
        columns += [column for column in (self.left_out, self.contexts) if column is not None]
        new = torch.ones_like(self.starts, dtype=torch.bool)
        new[1:] = torch.stack([column[1:] != column[:-1] for column in columns]).any(dim=0)
        return new.nonzero().squeeze(1), new.cumsum(0) - 1

    def take(self, examples: Tensor | slice) -> "PackedHistories":
        """The windows of `examples` alone; all events stay."""
        return replace(
            self,
            starts=self.starts[examples],
            ends=self.ends[examples],
            users=self.users[examples],
            ages=self.ages[examples],
            left_out=None if self.left_out is None else self.left_out[examples],
            contexts=None if self.contexts is None else self.contexts[examples],
        )

    def part(self, examples: slice) -> tuple["PackedHistories", slice]:
        """The windows of `examples` with the events from first to last, and the slice of these events."""
        some = self.take(examples)
        low = int(some.starts.min())
        events = slice(low, int(some.ends.max()))
        columns = {name: getattr(self, name) for name in ("rows", "gaps", "clocks", "kinds")}
        held: dict[str, Any] = {
            name: column[events] for name, column in columns.items() if column is not None
        }
        if some.left_out is not None:
            held["left_out"] = torch.where(some.left_out < 0, some.left_out, some.left_out - low)
        return replace(some, starts=some.starts - low, ends=some.ends - low, **held), events


# Segments are padded to the longest of their group; a group ends where padding would take a larger share.
MOST_PADDING = 0.15


@dataclass(frozen=True)
class SegmentLayout:
    """Segments in groups of similar lengths, for a network that reads each from its start.

    A group of S_g segments takes S_g x L_g slots, one group after the other; a segment shorter than L_g is
    padded at its end with slots that no example reads.

    Attributes:
        positions: int64 [P'], the packed position of each slot; padding repeats the last one.
        shapes: (S_g, L_g) of each group.
        reads: int64 [B], the slot of the last step of each example's window.
    """

    positions: Tensor
    shapes: list[tuple[int, int]]
    reads: Tensor

    def groups(self, slots: Tensor) -> list[Tensor]:
        """Values of all slots [P', ...], split into groups: [S_g, L_g, ...] each."""
        parts = torch.split(slots, [count * length for count, length in self.shapes])
        return [part.view(*shape, *slots.shape[1:]) for part, shape in zip(parts, self.shapes, strict=True)]

    def spread(self, values: Tensor) -> Tensor:
        """Repeat one value a segment [S], in the order of the groups, over its slots: [P']."""
        parts = torch.split(values, [count for count, _ in self.shapes])
        return torch.cat(
            [part.repeat_interleave(length) for part, (_, length) in zip(parts, self.shapes, strict=True)]
        )


def lay_out(starts: Tensor, ends: Tensor) -> SegmentLayout:
    """The segments of windows `starts` and `ends` [B]; neighbours with the same start share a segment."""
    firsts, of_example = torch.unique_consecutive(starts, return_inverse=True)
    lengths = torch.zeros_like(firsts).scatter_reduce(0, of_example, ends - starts, "amax")
    begins, positions, shapes, slots = torch.empty_like(firsts), [], [], 0
    for group in groups_by_length(lengths):
        longest = int(lengths[group[-1]])
        steps = torch.arange(longest, device=starts.device)
        within = torch.minimum(steps, lengths[group].unsqueeze(1) - 1)
        positions.append((firsts[group].unsqueeze(1) + within).flatten())
        begins[group] = slots + longest * torch.arange(len(group), device=starts.device)
        shapes.append((len(group), longest))
        slots += len(group) * longest
    return SegmentLayout(torch.cat(positions), shapes, begins[of_example] + (ends - starts) - 1)


def groups_by_length(lengths: Tensor) -> list[Tensor]:
    """Segments of `lengths` [S] in groups of similar lengths: indices [S_g] of each, shortest first."""
    order = lengths.argsort()
    ordered = lengths[order].tolist()
    groups, first, total = [], 0, 0
    for i, length in enumerate(ordered):
        total += length
        if total < (1.0 - MOST_PADDING) * length * (i - first + 1):
            groups.append(order[first:i])
            first, total = i, length
    return [*groups, order[first:]] if len(order) else groups
