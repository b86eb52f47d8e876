"""A table whose rows are held by several processes."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import embedding

from turret.tower.layers.gather import gather_rows
from turret.tower.layers.tables import Table
from turret.training.distributed.gathering import exchanged_vectors
from turret.training.distributed.processes import Processes

# Initial rows drawn at once; as a multiple of 16 numbers, for which torch draws the same in pieces.
PIECE = 4096


class SplitTable(Table):
    """The rows of a table [R, D] from `first` to `last`; the other processes hold the others.

    Each process holds ceil(R / processes) rows, the last ones fewer. A look-up asks the owners for the
    distinct rows that it needs, and gets their vectors; gradients take the way back and are summed by the
    owner. All processes have to look up together, with any number of rows.
    """

    is_split: ClassVar[bool] = True

    def __init__(self, rows: int, width: int, padding: int | None, world: Processes) -> None:
        """Hold this process's rows of a table [rows, width]."""
        share = -(-rows // world.size)
        self.first, self.last = (min(rows, share * rank) for rank in (world.rank, world.rank + 1))
        super().__init__(self.last - self.first, width, _weight=torch.empty(self.last - self.first, width))
        self.num_embeddings, self.share, self.world = rows, share, world
        self._padding = padding
        self.begin(1.0)  # as nn.Embedding does, so that later random numbers are those of one process

    @torch.no_grad()
    def begin(self, deviation: float) -> None:
        """Draw the rows that a table held whole would have; the padding row is zero."""
        for start in range(0, self.num_embeddings, PIECE):
            stop = min(start + PIECE, self.num_embeddings)
            piece = torch.empty(stop - start, self.embedding_dim).normal_(std=deviation)
            low, high = max(start, self.first), min(stop, self.last)
            if low < high:
                self.weight[low - self.first : high - self.first] = piece[low - start : high - start]
        if (own := self._own_padding()) is not None:
            self.weight[own] = 0.0

    def forward(self, rows: Tensor) -> Tensor:
        """The vectors [..., D] of `rows` [...]."""
        distinct, positions = torch.unique(rows, return_inverse=True)
        owners = torch.arange(self.world.size + 1) * self.share
        bounds = torch.searchsorted(distinct.cpu(), owners)
        to = bounds.diff().tolist()
        of = self._counts(to)
        asked = self.world.exchanged(distinct, to, of)
        vectors = embedding(
            asked - self.first, self.weight, padding_idx=self._own_padding(), sparse=self.sparse
        )
        return gather_rows(exchanged_vectors(vectors, self.world, of, to), positions)

    def _counts(self, to: list[int]) -> list[int]:
        """How many rows each process asks this one for, if this one asks them for `to`."""
        ones = [1] * self.world.size
        counts: list[int] = self.world.exchanged(torch.tensor(to), ones, ones).tolist()
        return counts

    def _own_padding(self) -> int | None:
        if self._padding is None or not self.first <= self._padding < self.last:
            return None
        return self._padding - self.first
