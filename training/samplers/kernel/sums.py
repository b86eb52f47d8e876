"""Sums of the kernel over blocks of items, and draws by them: of tensors, and of coded vectors on the CPU."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from turret.tower.kernels.compiled import compiled, in_parts
from turret.training.samplers.core.draw import invert
from turret.training.samplers.core.snapshot import not_finite
from turret.training.samplers.kernel.coded_vectors import (
    CodedVectors,
    decode,
    draw_in_blocks,
    empty_coded,
    encode,
    inner_with,
)
from turret.training.samplers.kernel.rejection import draw_groups, sharing

# Blocks whose sums have a sum of their own, so that an update does not add up all blocks again: a fifth of
# its time at 10^7 items.
_GROUP = 32
# Numbers of 8 bytes in a cache line.
_CACHE_LINE = 8


class KernelSums(ABC):
    """Sums of K(h, w) = alpha <h, w>^2 + 1 over a snapshot of N item vectors.

    `alpha` holds the temperature: it is the sampler's alpha over the temperature's square.

    <h, w>^2 is the inner product of h h^T and w w^T. Both are symmetric, so F = D(D+1)/2 features do, with
    those off the diagonal doubled on the side of the query (Blanc & Rendle 2018, section 3.2.2, need D^2).
    Every block of about sqrt(N) rows has the float64 sum of its features, computed anew when one of its rows
    changes: after any updates the sums equal, bit for bit, those of a new snapshot. The kernels of all blocks
    and queries are one matrix product. In float32 a query at right angles to long vectors would have a kernel
    far from one.
    """

    held: ClassVar[int]
    """The most floats that a temporary tensor has."""

    def __init__(
        self, rows: int, width: int, alpha: float, device: torch.device, block: int | None = None
    ) -> None:
        """Allocate for [rows, width] vectors, all zero; a block has `block` rows."""
        self.rows = rows
        self.alpha = alpha
        self.device = device
        self.block = block or max(width, round(rows**0.5))
        self.blocks = -(-rows // self.block)
        upper = torch.triu_indices(width, width, device=device)
        self._upper = upper
        self._twice = torch.where(upper[0] == upper[1], 1.0, 2.0).double()
        self._sizes = torch.full((self.blocks,), float(self.block), dtype=torch.float64, device=device)
        self._sizes[-1] = rows - (self.blocks - 1) * self.block
        groups = -(-self.blocks // _GROUP)
        self._grouped = torch.zeros(groups, _GROUP, upper.shape[1], dtype=torch.float64, device=device)
        self._sums = self._grouped.flatten(0, 1)[: self.blocks]
        self._group_sums = torch.zeros(groups, upper.shape[1], dtype=torch.float64, device=device)
        # The sum of w w^T over all rows.
        self._moments = torch.zeros(width, width, dtype=torch.float64, device=device)

    def update(self, rows: Tensor, vectors: Tensor) -> None:
        """Store `vectors` [n, D] of `rows` [n], all different, and sum their blocks anew.

        Raises:
            TrainingError: a vector isn't finite; nothing has changed then.
        """
        rows, vectors = rows.to(self.device), vectors.detach().to(self.device)
        finite = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64).float().isfinite()
        if not finite.all():
            raise not_finite(int(rows[(~finite).nonzero()[0, 0]]))
        self._store(rows, vectors)
        self._sum(torch.unique(rows // self.block))

    def _sum(self, blocks: Tensor) -> None:
        within = torch.arange(self.block, device=self.device)
        width = len(self._moments)
        for some in self._parts(blocks, (self.block + width) * width):
            members = self.vectors((some.unsqueeze(1) * self.block + within).flatten())
            members = _aligned(members.view(len(some), self.block, width))
            self._sums[some] = (members.mT @ members)[:, self._upper[0], self._upper[1]]
        groups = torch.unique(blocks // _GROUP)
        self._group_sums[groups] = self._grouped[groups].sum(dim=1)
        self._moments[self._upper[0], self._upper[1]] = total = self._group_sums.sum(dim=0)
        self._moments[self._upper[1], self._upper[0]] = total

    def _parts(self, positions: Tensor, floats: int) -> Iterator[Tensor]:
        """`positions` [M] in parts whose tensors of as many `floats` a position have at most `held`."""
        step = max(1, self.held // floats)
        return (positions[start : start + step] for start in range(0, len(positions), step))

    def masses(self, query: Tensor) -> Tensor:
        """Z(h) = sum_i K(h, w_i), float64 [B], of `query` [B, D]."""
        double = query.double()
        squares = ((double @ self._moments) * double).sum(dim=1)
        return (self.alpha * squares).clamp(min=0.0) + self.rows

    def _features(self, query: Tensor) -> Tensor:
        double = query.double()
        return double[:, self._upper[0]] * double[:, self._upper[1]] * self._twice

    def _masses_without(self, query: Tensor, masses: Tensor, excluded: Tensor) -> Tensor:
        """`masses` [B] without the kernels of the rows `excluded` [B] (-1 for none)."""
        kernels = self.kernels(query, excluded.clamp(min=0).unsqueeze(1))[:, 0] * (excluded >= 0)
        return (masses - kernels).clamp(min=max(self.rows - 1.0, 0.5))

    def _pick_blocks(
        self, query: Tensor, counts: Tensor, excluded: Tensor, random: torch.Generator
    ) -> Tensor:
        """For each draw, in order of b, a block by the blocks' masses without the excluded row: [M]."""
        masses = self.alpha * (self._features(query) @ self._sums.T).clamp(min=0.0) + self._sizes
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

    @abstractmethod
    def _store(self, rows: Tensor, vectors: Tensor) -> None:
        """Store finite `vectors` [n, D] of `rows` [n]."""

    @abstractmethod
    def vectors(self, rows: Tensor) -> Tensor:
        """The stored vectors float64 [n, D] of `rows` [n]; zeros for rows from N on that fill a block."""

    @abstractmethod
    def kernels(self, query: Tensor, ids: Tensor) -> Tensor:
        """K(h_b, w_i), float64 [B, K], for the `ids` [B, K]."""

    @abstractmethod
    def draw(self, query: Tensor, masses: Tensor, counts: Tensor, excluded: Tensor, seed: int) -> Tensor:
        """Draw `counts[b]` rows by each query, whose Z is `masses[b]`: int64 [M], in order of b.

        Draws are independent and exact; query b doesn't draw row `excluded[b]` (-1 for none).
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The snapshot; the sums follow from it."""

    @abstractmethod
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a `state`, bit for bit."""


def _aligned(blocks: Tensor) -> Tensor:
    """`blocks` float64 [M, b, D] with D filled by zeros to whole cache lines.

    A matrix product of MKL depends in its last bit on the alignment of its block, so for an odd D on the
    position of the block among the M.
    """
    missing = -blocks.shape[2] % _CACHE_LINE
    return pad(blocks, (0, missing)) if missing else blocks


class TensorSums(KernelSums):
    """The sums over vectors in a tensor, for a GPU."""

    held = 2**26

    def __init__(
        self, rows: int, width: int, alpha: float, device: torch.device, block: int | None = None
    ) -> None:
        """As `KernelSums`; rows beyond the last item are zero and fill its block."""
        super().__init__(rows, width, alpha, device, block)
        self._vectors = torch.zeros(self.blocks * self.block, width, device=device)

    def _store(self, rows: Tensor, vectors: Tensor) -> None:
        self._vectors[rows] = vectors.to(self._vectors)

    def vectors(self, rows: Tensor) -> Tensor:
        """The vectors float64 [n, D] of `rows` [n]."""
        return self._vectors[rows].double()

    def kernels(self, query: Tensor, ids: Tensor) -> Tensor:
        """K(h_b, w_i), float64 [B, K], for the `ids` [B, K]."""
        examples = torch.arange(len(query), device=query.device)
        parts = self._parts(examples, ids.shape[1] * query.shape[1])
        return torch.cat([self._kernels_of(query[some], ids[some]) for some in parts])

    def _kernels_of(self, query: Tensor, ids: Tensor) -> Tensor:
        products = torch.einsum("bd,bkd->bk", query.double(), self._vectors[ids].double())
        return self.alpha * products**2 + 1.0

    def draw(self, query: Tensor, masses: Tensor, counts: Tensor, excluded: Tensor, seed: int) -> Tensor:
        """A block by the blocks' masses, then a row by its kernel; for each draw."""
        random = torch.Generator(self.device).manual_seed(seed)
        blocks = self._pick_blocks(query, counts, excluded, random)
        owners = torch.repeat_interleave(torch.arange(len(query), device=counts.device), counts)
        within = torch.arange(self.block, device=self.device)
        drawn = torch.empty_like(owners)
        for some in self._parts(torch.arange(len(owners), device=self.device), self.block * query.shape[1]):
            rows = blocks[some].unsqueeze(1) * self.block + within
            kernels = self._kernels_of(query[owners[some]], rows)
            kernels[(rows >= self.rows) | (rows == excluded[owners[some]].unsqueeze(1))] = 0.0
            uniform = torch.rand(len(some), 1, generator=random, device=self.device, dtype=torch.float64)
            drawn[some] = rows.gather(1, invert(kernels.cumsum(dim=1), uniform))[:, 0]
        return drawn

    def state(self) -> dict[str, Tensor]:
        return {"vectors": self._vectors[: self.rows]}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.update(torch.arange(self.rows), state["vectors"])


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
        norms, high, low = self.coded
        return {
            "norms": torch.from_numpy(norms),
            "high": torch.from_numpy(high),
            "low": torch.from_numpy(low.view(np.int16)),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
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
