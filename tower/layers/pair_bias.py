"""Biases of attention by the distance and by the time between two steps."""

from typing import cast

import torch
from torch import Tensor, nn

# Two buckets for each doubling of the time, up to 34 years, and one for unknown times.
OCTAVES, PER_OCTAVE = 30, 2
BUCKETS = OCTAVES * PER_OCTAVE + 1


def time_buckets(gaps: Tensor) -> Tensor:
    """The bucket of the time from each event to the moment in which each step asks: int64 [S, T, T].

    A step [s, i] asks when its next event happens, or the request comes: the moment of asking is known, that
    of a target is not. `gaps` [S, T] are seconds from each event to that moment (`tower.times.time_inputs`);
    a negative one marks unknown times. Entries above the diagonal have no meaning.
    """
    # In float32 the seconds of a year have steps of two seconds.
    asked = gaps.clamp(min=0.0).double().cumsum(dim=-1)
    events = asked - gaps.clamp(min=0.0)
    elapsed = (asked.unsqueeze(-1) - events.unsqueeze(-2)).clamp(0.0, 2.0**OCTAVES - 1.0)
    buckets = (PER_OCTAVE * (1.0 + elapsed).float().log2()).long().clamp(max=BUCKETS - 1)
    return buckets.masked_fill((gaps < 0).unsqueeze(-1), BUCKETS)


class PairBias(nn.Module):
    """What a block's attention adds to the scores of two steps, for each head; zero at first.

    By the number of steps between them (Raffel et al. 2020, section 2.1, without its buckets), and by the
    logarithm of the time between them (Zhai et al. 2024, section 3.2).
    """

    def __init__(self, heads: int, length: int, reads_positions: bool, reads_times: bool) -> None:
        super().__init__()
        self.distances = nn.Parameter(torch.zeros(length, heads)) if reads_positions else None
        self.times = nn.Parameter(torch.zeros(BUCKETS + 1, heads)) if reads_times else None

    def forward(self, length: int, buckets: Tensor | None) -> Tensor:
        """The bias [S or 1, H, T, T] of T = `length` steps, -inf for later ones.

        `buckets` [S, T, T] are of `time_buckets`; None where the bias reads no times.
        """
        steps = torch.arange(length, device=self._device())
        distances = steps.unsqueeze(1) - steps
        bias: Tensor = torch.zeros(1, 1, 1, 1, device=steps.device)
        if self.distances is not None:
            rows = nn.functional.embedding(distances.clamp(min=0), self.distances)
            bias = bias + rows.permute(2, 0, 1)
        if self.times is not None:
            assert buckets is not None
            bias = bias + nn.functional.embedding(buckets, self.times).permute(0, 3, 1, 2)
        return bias.masked_fill(distances < 0, -torch.inf)

    def _device(self) -> torch.device:
        return cast(Tensor, next(self.parameters())).device
