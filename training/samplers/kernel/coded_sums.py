"""The quadratic kernel on the CPU: sums over coded vectors, and draws by rejection or by blocks."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.tower.kernels.compiled import compiled
from turret.tower.kernels.threads import in_parts
from turret.training.samplers.kernel.blocks import draw_in_blocks
from turret.training.samplers.kernel.coded_vectors import (
    CodedVectors,
    decode,
    empty_coded,
    encode,
    inner_with,
)
from turret.training.samplers.kernel.rejection import draw_groups, sharing
from turret.training.samplers.kernel.sums import KernelSums

# The cost of a draw by blocks, in units of a proposal that is tested: a block's mass for each of D + 1, and a
# row of the block that is drawn.
BLOCK_WORK = 0.8
ROW_WORK = 0.5
# The fewest kernels that a further thread is used for.
LEAST_KERNELS = 4096


class CodedSums(KernelSums):
    """The sums over coded vectors, for the CPU.

    Where few proposals are rejected, a query is drawn by rejection, whose cost doesn't grow with N: for
    unit vectors of 64 coordinates an eighth of the cost by blocks at 10^5 items. Others are drawn by blocks.
    """

    held = 2**22

    def __init__(self, rows: int, width: int, alpha: float, block: int | None = None) -> None:
        """Allocate for [rows, width] vectors, all zero; a block has `block` rows."""
        super().__init__(rows, width, alpha, torch.device("cpu"), block)
        self.coded = empty_coded(rows, width)
        self.greatest_norm = 0.0
        # The most that rejection may cost, as a share of the cost by blocks.
        self.most_work = 1.0

    @property
    def bytes(self) -> int:
        """The memory of all arrays."""
        return sum(array.nbytes for array in (*self.coded, self._grouped.numpy(), self._group_sums.numpy()))

    def _store(self, rows: Tensor, vectors: Tensor) -> None:
        of, values = rows.numpy(), as_float32(vectors)
        in_parts(len(of), lambda a, b: encode(values[a:b], of[a:b], self.coded), least=256)
        self.greatest_norm = float(self.coded.norms.max())

    def vectors(self, rows: Tensor) -> Tensor:
        """The vectors float64 [n, D] of `rows` [n], as the sums count them."""
        of, vectors = rows.numpy(), torch.zeros(len(rows), self.coded.high.shape[1], dtype=torch.float64)
        in_parts(len(of), lambda a, b: decode(self.coded, of[a:b], vectors.numpy()[a:b]), least=1024)
        return vectors

    def kernels(self, query: Tensor, ids: Tensor) -> Tensor:
        """K(h_b, w_i), float64 [B, K], for the `ids` [B, K]."""
        queries, kernels = as_float32(query), np.empty(ids.shape)
        rows = np.ascontiguousarray(ids.numpy())
        work = partial(write_kernels, self.alpha, queries, self.coded, rows, kernels)
        in_parts(len(queries), work, least=-(-LEAST_KERNELS // max(1, rows.shape[1])))
        return torch.from_numpy(kernels)

    def draw(self, query: Tensor, masses: Tensor, counts: Tensor, excluded: Tensor, seed: int) -> Tensor:
        """Draw each query's rows in the cheaper way. They depend on the seed, not on threads."""
        squares = query.double().square().sum(dim=1)
        highest = self.alpha * squares * self.greatest_norm**2 + 1.0
        proposals = self.rows * highest / self._masses_without(query, masses, excluded)
        read = self.block * counts.clamp(max=self.blocks)
        by_blocks = BLOCK_WORK * (query.shape[1] + 1) * self.blocks + ROW_WORK * read
        easy = counts * proposals <= self.most_work * by_blocks
        drawn = np.empty(int(counts.sum()), np.int64)
        if easy.any():
            share = sharing(1.0 / float(proposals[easy].min()))
            work = partial(
                draw_groups,
                self.alpha,
                as_float32(query),
                squares.numpy(),
                self.greatest_norm,
                share,
                self.coded,
                excluded.numpy(),
                np.uint64(seed),
                (counts * easy).numpy(),
                counts.cumsum(dim=0).numpy(),
                drawn,
            )
            in_parts(-(-len(query) // share), work)
        if not easy.all():
            of = torch.repeat_interleave(~easy, counts).numpy()
            drawn[of] = self._draw_by_blocks(query[~easy], counts[~easy], excluded[~easy], seed)
        return torch.from_numpy(drawn)

    def _draw_by_blocks(
        self, query: Tensor, counts: Tensor, excluded: Tensor, seed: int
    ) -> NDArray[np.int64]:
        blocks = self._pick_blocks(query, counts, excluded, torch.Generator().manual_seed(seed)).numpy()
        ends, drawn = np.concatenate([np.zeros(1, np.int64), counts.numpy().cumsum()]), np.empty_like(blocks)
        work = partial(
            draw_in_blocks,
            self.alpha,
            self.block,
            as_float32(query),
            excluded.numpy(),
            self.coded,
            ends,
            blocks,
            np.uint64(seed),
            drawn,
        )
        in_parts(len(query), work)
        return drawn

    def state(self) -> dict[str, Tensor]:
        """The coded snapshot, without the sums."""
        norms, high, low = self.coded
        return {
            "norms": torch.from_numpy(norms),
            "high": torch.from_numpy(high),
            "low": torch.from_numpy(low.view(np.int16)),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a `state`, with the sums computed anew: bit for bit the same."""
        norms, high, low = (state[name].numpy() for name in ("norms", "high", "low"))
        self.coded.norms[:], self.coded.high[:], self.coded.low[:] = norms, high, low.view(np.uint16)
        self.greatest_norm = float(self.coded.norms.max())
        self._sum(torch.arange(self.blocks))


@compiled
def write_kernels(
    alpha: float,
    queries: NDArray[np.float32],
    coded: CodedVectors,
    ids: NDArray[np.int64],
    kernels: NDArray[np.float64],
    start: int,
    stop: int,
) -> None:
    """Write K(h, w) of `queries[start:stop]` and their `ids` [B, K]."""
    for b in range(start, stop):
        for k in range(ids.shape[1]):
            product = inner_with(coded, ids[b, k], queries[b])
            kernels[b, k] = alpha * product * product + 1.0


def as_float32(vectors: Tensor) -> NDArray[np.float32]:
    """A contiguous array of the values of `vectors`."""
    array: NDArray[np.float32] = vectors.detach().float().contiguous().numpy()
    return array
