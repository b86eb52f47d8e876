"""What tests of losses share: five examples of seven candidates."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tests.oracles.losses import Example
from turret.training.samplers.core.contract import Draw

# Strongly unequal: with a constant q a missing correction does not show.
Q = torch.tensor([0.60, 0.20, 0.10, 0.05, 0.03, 0.02], dtype=torch.float64)
POSITIVES = torch.tensor([1, 3, 0, 5, 4])


@dataclass(frozen=True)
class Scored:
    """Scores [B] and [B, K], and the draw behind them."""

    positive: Tensor
    drawn: Tensor
    draw: Draw

    def rows(self, rows: slice) -> "Scored":
        """Some of the examples, whose candidates are shared."""
        draw = replace(
            self.draw, positive_log_count=self.draw.positive_log_count[rows], valid=self.draw.valid[rows]
        )
        return Scored(self.positive[rows], self.drawn[rows], draw)

    def first(self, size: int) -> "Scored":
        """The first candidates of each example."""
        ids, log_count = self.draw.ids[:size], self.draw.log_count[:size]
        draw = replace(self.draw, ids=ids, log_count=log_count, valid=self.draw.valid[:, :size])
        return replace(self, drawn=self.drawn[:, :size], draw=draw)

    def with_draw(self, **parts: Any) -> "Scored":
        return replace(self, draw=replace(self.draw, **parts))

    def examples(self) -> list[Example]:
        """The batch as the oracles take it."""
        draw, log_counts = self.draw, self.draw.log_count.expand(self.drawn.shape)
        return [
            Example(
                self.positive[line].item(),
                math.exp(draw.positive_log_count[line]),
                self.drawn[line].tolist(),
                log_counts[line].exp().tolist(),
                draw.valid[line].tolist(),
            )
            for line in range(len(self.positive))
        ]


def scored(shared: bool = True, keeps_hits: bool = False) -> Scored:
    """Five examples of seven candidates, with duplicates, hits, and other candidates that are masked."""
    scores = 1.5 * torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(11))
    ids, log_count = torch.tensor([0, 0, 1, 3, 0, 5, 2]), (7 * Q).log()
    if not shared:
        ids = torch.stack([ids, ids.flip(0), ids.roll(2), (ids + 1) % 6, ids])
    draw = Draw(ids, log_count[ids], log_count[POSITIVES], ids != POSITIVES.unsqueeze(1))
    draw = draw.keeping_hits(POSITIVES) if keeps_hits else draw
    draw.valid[0, 3] = draw.valid[2, 6] = draw.valid[4, 2:5] = False
    return Scored(scores.gather(1, POSITIVES[:, None])[:, 0], scores.gather(1, ids.expand(5, -1)), draw)
