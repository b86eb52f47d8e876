"""Sums of the quadratic kernel over blocks of items, and draws by them."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from turret.tower.kernels.compiled import in_parts
from turret.training.samplers.core.draw import invert
from turret.training.samplers.kernel.compiled_draws import (
    draw_groups,
    draw_in_blocks,
    sharing,
    write_kernels,
)

# Blocks whose sums have a sum of their own, so that an update does not add up all blocks again: a fifth of
# its time at 10^7 items.
_GROUP = 32
# Numbers of 8 bytes in a cache line.
_CACHE_LINE = 8
# The most floats that a temporary tensor has.
_HELD = {"cpu": 2**22, "cuda": 2**26}
# The cost of a draw by blocks, in units of a proposal that is tested: a block's mass for each of D + 1, and a
# row of the block that is drawn.
BLOCK_WORK, ROW_WORK = 0.8, 0.5
# The fewest kernels that a further thread is used for.
LEAST_KERNELS = 4096


class KernelSums:
    """Sums of K(h, w) = alpha <h, w>^2 + 1 over N item vectors.

    `alpha` holds the temperature: it is the sampler's alpha over the temperature's square.

    <h, w>^2 is the inner product of h h^T and w w^T. Both are symmetric, so F = D(D+1)/2 features do, with
    those off the diagonal doubled on the side of the query (Blanc & Rendle 2018, section 3.2.2, need D^2).
    Every block of about sqrt(N) rows has the float64 sum of its features, computed anew when one of its rows
    changes: after any updates the sums equal, bit for bit, those of a new snapshot. The kernels of all blocks
    and queries are one matrix product. In float32 a query at right angles to long vectors would have a kernel
    far from one.

    On the CPU draws are compiled: a query for which few proposals are rejected is drawn by rejection, whose
    cost doesn't grow with N (for unit vectors of 64 coordinates an eighth of the cost by blocks at 10^5
    items), and the others by blocks. Any other device draws by blocks, in tensors.
    """

    def __init__(self, vectors: Tensor, alpha: float, block: int | None = None) -> None:
        """Sum over `vectors` float32 [N, D], which stay the caller's; a block has `block` rows."""
        self.vectors, self.alpha, self.device = vectors, alpha, vectors.device
        self.rows, width = vectors.shape
        self.block = block or max(width, round(self.rows**0.5))
        self.blocks = -(-self.rows // self.block)
        self.is_compiled = self.device.type == "cpu"
        # The most that rejection may cost, as a share of the cost by blocks.
        self.most_work = 1.0
        self._upper = upper = torch.triu_indices(width, width, device=self.device)
        self._twice = torch.where(upper[0] == upper[1], 1.0, 2.0).double()
        self._sizes = self._zeros(self.blocks) + self.block
        self._sizes[-1] = self.rows - (self.blocks - 1) * self.block
        self._grouped = self._zeros(-(-self.blocks // _GROUP), _GROUP, upper.shape[1])
        self._sums = self._grouped.flatten(0, 1)[: self.blocks]
        self._group_sums = self._zeros(len(self._grouped), upper.shape[1])
        # The sum of w w^T over all rows.
        self._moments = self._zeros(width, width)
        self._norms = torch.zeros(self.rows, device=self.device)
        self.follow(slice(0, self.rows))

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=self.device)

    @property
    def bytes(self) -> int:
        """The memory of the vectors and of the sums."""
        held = (self.vectors, self._grouped, self._group_sums, self._norms)
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def follow(self, rows: slice) -> None:
        """Sum the blocks of `rows` anew, whose vectors have changed."""
        self._norms[rows] = torch.linalg.vector_norm(self.vectors[rows], dim=1, dtype=torch.float64).float()
        self.greatest_norm = float(self._norms.max())
        first, last = rows.start // self.block, -(-rows.stop // self.block)
        width = self.vectors.shape[1]
        for some in self._parts(last - first, (self.block + width) * width):
            start, stop = first + some.start, first + some.stop
            members = self.vectors[start * self.block : stop * self.block].double()
            # A matrix product of MKL depends in its last bit on the alignment of its block, so for an odd D
            # on its position: zeros fill D to whole cache lines, and the last block to its size.
            missing = (stop - start) * self.block - len(members)
            members = pad(members, (0, -width % _CACHE_LINE, 0, missing)).view(stop - start, self.block, -1)
            self._sums[start:stop] = (members.mT @ members)[:, self._upper[0], self._upper[1]]
        groups = slice(first // _GROUP, -(-last // _GROUP))
        self._group_sums[groups] = self._grouped[groups].sum(dim=1)
        self._moments[self._upper[0], self._upper[1]] = total = self._group_sums.sum(dim=0)
        self._moments[self._upper[1], self._upper[0]] = total

    def _parts(self, count: int, floats: int) -> Iterator[slice]:
        """range(`count`) in parts whose tensors of `floats` a position fit into temporary memory."""
        step = max(1, _HELD.get(self.device.type, 2**22) // floats)
        return (slice(start, min(start + step, count)) for start in range(0, count, step))

    def masses(self, query: Tensor) -> Tensor:
        """Z(h) = sum_i K(h, w_i), float64 [B], of `query` [B, D]."""
        double = query.double()
        squares = ((double @ self._moments) * double).sum(dim=1)
        return (self.alpha * squares).clamp(min=0.0) + self.rows

    def kernels(self, query: Tensor, ids: Tensor) -> Tensor:
        """K(h_b, w_i), float64 [B, K], for the `ids` [B, K]."""
        if not self.is_compiled:
            parts = self._parts(len(query), ids.shape[1] * query.shape[1])
            return torch.cat([self._kernels_of(query[some], ids[some]) for some in parts])
        kernels, rows = np.empty(ids.shape), ids.contiguous().numpy()
        work = partial(write_kernels, self.alpha, _float32(query), self.vectors.numpy(), rows, kernels)
        in_parts(len(query), work, least=-(-LEAST_KERNELS // max(1, ids.shape[1])))
        return torch.from_numpy(kernels)

    def _kernels_of(self, query: Tensor, ids: Tensor) -> Tensor:
        products = torch.einsum("bd,bkd->bk", query.double(), self.vectors[ids].double())
        return self.alpha * products**2 + 1.0

    def draw(self, query: Tensor, masses: Tensor, counts: Tensor, excluded: Tensor, seed: int) -> Tensor:
        """Draw `counts[b]` rows by each query, whose Z is `masses[b]`: int64 [M], in order of b.

        Draws are independent and exact; query b doesn't draw row `excluded[b]` (-1 for none). They depend on
        the seed, not on threads.
        """
        owners = torch.repeat_interleave(torch.arange(len(query), device=self.device), counts)
        if not self.is_compiled:
            return self._draw_tensors(query, counts, excluded, owners, seed)
        # A query is drawn in the cheaper way.
        squares = query.double().square().sum(dim=1)
        highest = self.alpha * squares * self.greatest_norm**2 + 1.0
        proposals = self.rows * highest / self._masses_without(query, masses, excluded)
        read = self.block * counts.clamp(max=self.blocks)
        by_blocks = BLOCK_WORK * (query.shape[1] + 1) * self.blocks + ROW_WORK * read
        easy = counts * proposals <= self.most_work * by_blocks
        drawn = np.empty(len(owners), np.int64)
        if easy.any():
            share = sharing(1.0 / float(proposals[easy].min()))
            work = partial(
                draw_groups,
                self.alpha,
                _float32(query),
                self.greatest_norm,
                share,
                self.vectors.numpy(),
                excluded.numpy(),
                np.uint64(seed),
                (counts * easy).numpy(),
                counts.cumsum(dim=0).numpy(),
                drawn,
            )
            in_parts(-(-len(query) // share), work)
        if not easy.all():
            drawn[~easy[owners].numpy()] = self._draw_in_blocks(
                query[~easy], counts[~easy], excluded[~easy], seed
            )
        return torch.from_numpy(drawn)

    def _draw_in_blocks(
        self, query: Tensor, counts: Tensor, excluded: Tensor, seed: int
    ) -> NDArray[np.int64]:
        blocks = self._pick_blocks(query, counts, excluded, torch.Generator().manual_seed(seed)).numpy()
        owners = np.repeat(np.arange(len(query)), counts.numpy())
        keys = blocks * len(query) + owners
        order = np.argsort(keys, kind="stable")
        groups = np.flatnonzero(np.diff(keys[order], prepend=-1, append=-1))
        drawn = np.empty_like(blocks)
        work = partial(
            draw_in_blocks,
            self.alpha,
            self.block,
            _float32(query),
            self.greatest_norm,
            self.vectors.numpy(),
            excluded.numpy(),
            np.uint64(seed),
            blocks,
            owners,
            order,
            groups,
            drawn,
        )
        in_parts(len(groups) - 1, work)
        return drawn

    def _draw_tensors(
        self, query: Tensor, counts: Tensor, excluded: Tensor, owners: Tensor, seed: int
    ) -> Tensor:
        """A block by the blocks' masses, then a row by its kernel; for each draw."""
        random = torch.Generator(self.device).manual_seed(seed)
        blocks = self._pick_blocks(query, counts, excluded, random)
        within = torch.arange(self.block, device=self.device)
        drawn = torch.empty_like(owners)
        for some in self._parts(len(owners), self.block * query.shape[1]):
            rows = blocks[some].unsqueeze(1) * self.block + within
            kernels = self._kernels_of(query[owners[some]], rows.clamp(max=self.rows - 1))
            kernels[(rows >= self.rows) | (rows == excluded[owners[some]].unsqueeze(1))] = 0.0
            uniform = torch.rand(len(rows), 1, generator=random, device=self.device, dtype=torch.float64)
            drawn[some] = rows.gather(1, invert(kernels.cumsum(dim=1), uniform))[:, 0]
        return drawn

    def _masses_without(self, query: Tensor, masses: Tensor, excluded: Tensor) -> Tensor:
        """`masses` [B] without the kernels of the rows `excluded` [B] (-1 for none)."""
        kernels = self.kernels(query, excluded.clamp(min=0).unsqueeze(1))[:, 0] * (excluded >= 0)
        return (masses - kernels).clamp(min=max(self.rows - 1.0, 0.5))

    def _pick_blocks(
        self, query: Tensor, counts: Tensor, excluded: Tensor, random: torch.Generator
    ) -> Tensor:
        """For each draw, in order of b, a block by the blocks' masses without the excluded row: [M]."""
        double = query.double()
        features = double[:, self._upper[0]] * double[:, self._upper[1]] * self._twice
        masses = self.alpha * (features @ self._sums.T).clamp(min=0.0) + self._sizes
        has = (excluded >= 0).nonzero()[:, 0]
        if len(has):
            own = excluded[has] // self.block
            kernels = self.kernels(query[has], excluded[has].unsqueeze(1))[:, 0]
            # Each of the other rows has a kernel of at least one, in spite of rounding.
            masses[has, own] = torch.maximum(masses[has, own] - kernels, self._sizes[own] - 1.0)
        most = int(counts.max())
        uniform = torch.rand(len(query), most, generator=random, device=self.device, dtype=torch.float64)
        picked = invert(masses.cumsum(dim=1), uniform)
        return picked[torch.arange(most, device=self.device) < counts.unsqueeze(1)]


def _float32(vectors: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = vectors.detach().float().contiguous().numpy()
    return array
