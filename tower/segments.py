"""Windows of a packed batch that are read as one: the examples whose windows begin at the same place."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tower.gather import ranges

# Segments are padded to the longest of their group; a group ends where that would cost more than this.
MOST_PADDING = 0.15


@dataclass(frozen=True)
class Segments:
    """S runs of packed places, laid end to end without what lies between or overlaps.

    Attributes:
        places: int64 [P'], the packed place of each step.
        starts: int64 [S], where each segment begins among the steps.
        lengths: int64 [S], how many steps it has.
        reads: int64 [B], the step at which each example has read its whole window.
    """

    places: Tensor
    starts: Tensor
    lengths: Tensor
    reads: Tensor


def segments_of(starts: Tensor, ends: Tensor) -> Segments:
    """The segments of windows `starts` and `ends` [B]; neighbours with the same start share one."""
    firsts, of_example = torch.unique_consecutive(starts, return_inverse=True)
    lengths = torch.zeros_like(firsts).scatter_reduce(0, of_example, ends - starts, "amax")
    begins = lengths.cumsum(0) - lengths
    return Segments(
        places=ranges(firsts, lengths),
        starts=begins,
        lengths=lengths,
        reads=begins[of_example] + (ends - starts) - 1,
    )


def groups_by_length(lengths: Tensor) -> list[Tensor]:
    """Segments of `lengths` [S] in groups of alike lengths: places [S_g] of each, shortest first."""
    order = lengths.argsort()
    ordered = lengths[order].tolist()
    groups, first, held = [], 0, 0
    for place, length in enumerate(ordered):
        held += length
        if held < (1.0 - MOST_PADDING) * length * (place - first + 1):
            groups.append(order[first:place])
            first, held = place, length
    return [*groups, order[first:]] if len(order) else groups


class PaddedGroups:
    """How segments are laid out for attention: in groups of alike lengths, with little padding in each.

    Attributes:
        layouts: for each group the step [S_g, L_g] that stands at each place; the number of all steps where
            none does.
        back: int64 [P], where each step stands among all places of all groups.
    """

    def __init__(self, segments: Segments) -> None:
        self.steps = len(segments.places)
        self.layouts: list[Tensor] = []
        back = torch.empty_like(segments.places)
        before = 0
        for group in groups_by_length(segments.lengths):
            lengths = segments.lengths[group]
            offsets = torch.arange(int(lengths.max()), device=lengths.device)
            real = offsets < lengths.unsqueeze(1)
            layout = (segments.starts[group].unsqueeze(1) + offsets).masked_fill(~real, self.steps)
            places = torch.arange(layout.numel(), device=lengths.device).view(layout.shape)
            back[layout[real]] = before + places[real]
            before += layout.numel()
            self.layouts.append(layout)
        self.back = back
