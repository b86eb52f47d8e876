"""The quadratic kernel sampler (Blanc & Rendle 2018, section 3), by sums over blocks of items."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import pad

from turret.tower.kernels.compiled import in_parts
from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import (
    Draw,
    DrawContext,
    Sampler,
    drawn_from,
    invert,
)
from turret.training.samplers.core.settings import BuildContext, ExcludingSettings
from turret.training.samplers.core.snapshot import SnapshotSampler, SnapshotSettings
from turret.training.samplers.fixed.complement import check_others
from turret.training.samplers.kernel.compiled_draws import draw_groups, draw_in_blocks, sharing, write_kernels

# So many blocks have a common sum, so that an update does not add up all blocks again, which takes a fifth of
# its time at 10^7 items.
_GROUP = 32
# A cache line has so many numbers of 8 bytes.
_CACHE_LINE = 8
# A temporary tensor has at most so many floats, by device.
_HELD = {"cpu": 2**22, "cuda": 2**26}
# The cost of a draw by blocks, in units of a tested proposal: BLOCK_WORK (D + 1) for the mass of each block,
# and ROW_WORK for each row of the drawn block.
BLOCK_WORK, ROW_WORK = 0.8, 0.5
# A further thread is used for at least so many kernels.
LEAST_KERNELS = 4096


class KernelSums:
    """Sums of K(h, w) = alpha <h, w>^2 + 1 over N item vectors.

    `alpha` holds the temperature: it is the sampler's alpha over the temperature's square.

    <h, w>^2 is the inner product of h h^T and w w^T. Both are symmetric, so F = D(D+1)/2 features do, with
    those off the diagonal doubled on the side of the query (Blanc & Rendle 2018, section 3.2.2, need D^2).
    Every block of about sqrt(N) rows has the float64 sum of its features, computed anew when one of its rows
    changes: after any updates the sums equal, bit for bit, those of a new snapshot. In float32 a query at
    right angles to long vectors would have a kernel far from one.

    On the CPU draws are compiled: a query for which few proposals are rejected is drawn by rejection, and the
    others by blocks. Any other device draws by blocks, in tensors.
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
        for part in self._parts(last - first, (self.block + width) * width):
            start, stop = first + part.start, first + part.stop
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
            return torch.cat([self._kernels_of(query[part], ids[part]) for part in parts])
        kernels, rows = np.empty(ids.shape), ids.contiguous().numpy()
        work = partial(write_kernels, self.alpha, _float32(query), self.vectors.numpy(), rows, kernels)
        in_parts(len(query), work, least=-(-LEAST_KERNELS // max(1, ids.shape[1])))
        return torch.from_numpy(kernels)

    def _kernels_of(self, query: Tensor, ids: Tensor) -> Tensor:
        products = torch.einsum("bd,bkd->bk", query.double(), self.vectors[ids].double())
        return self.alpha * products**2 + 1.0

    def draw(self, query: Tensor, masses: Tensor, counts: Tensor, excluded: Tensor, seed: int) -> Tensor:
        """Draw `counts[b]` rows by each query, whose Z is `masses[b]`: int64 [M], in order of b.

        Draws are independent and exact; query b doesn't draw row `excluded[b]` (-1 for none). Draws depend on
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
        """The rows [M], by tensors: for each draw a block by the blocks' masses, then a row by its kernel."""
        random = torch.Generator(self.device).manual_seed(seed)
        blocks = self._pick_blocks(query, counts, excluded, random)
        within = torch.arange(self.block, device=self.device)
        drawn = torch.empty_like(owners)
        for part in self._parts(len(owners), self.block * query.shape[1]):
            rows = blocks[part].unsqueeze(1) * self.block + within
            kernels = self._kernels_of(query[owners[part]], rows.clamp(max=self.rows - 1))
            kernels[(rows >= self.rows) | (rows == excluded[owners[part]].unsqueeze(1))] = 0.0
            uniform = torch.rand(len(rows), 1, generator=random, device=self.device, dtype=torch.float64)
            drawn[part] = rows.gather(1, invert(kernels.cumsum(dim=1), uniform))[:, 0]
        return drawn

    def _masses_without(self, query: Tensor, masses: Tensor, excluded: Tensor) -> Tensor:
        """`masses` [B] without the kernels of the rows `excluded` [B] (-1 for none)."""
        kernels = self.kernels(query, excluded.clamp(min=0).unsqueeze(1))[:, 0] * (excluded >= 0)
        return (masses - kernels).clamp(min=max(self.rows - 1.0, 0.5))

    def _pick_blocks(
        self, query: Tensor, counts: Tensor, excluded: Tensor, random: torch.Generator
    ) -> Tensor:
        """A block for each draw, in order of b, by the blocks' masses without the excluded row: [M]."""
        double = query.double()
        features = double[:, self._upper[0]] * double[:, self._upper[1]] * self._twice
        masses = self.alpha * (features @ self._sums.T).clamp(min=0.0) + self._sizes
        queries = (excluded >= 0).nonzero()[:, 0]
        if len(queries):
            block = excluded[queries] // self.block
            kernels = self.kernels(query[queries], excluded[queries].unsqueeze(1))[:, 0]
            # Each of the other rows has a kernel of at least one, in spite of rounding.
            masses[queries, block] = torch.maximum(masses[queries, block] - kernels, self._sizes[block] - 1.0)
        most = int(counts.max())
        uniform = torch.rand(len(query), most, generator=random, device=self.device, dtype=torch.float64)
        picked = invert(masses.cumsum(dim=1), uniform)
        return picked[torch.arange(most, device=self.device) < counts.unsqueeze(1)]


def _float32(vectors: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = vectors.detach().float().contiguous().numpy()
    return array


# The dense closed form scores so many rows at once.
BLOCK = 65_536


class QuadraticConfig(SnapshotSettings, ExcludingSettings):
    """The kernel alpha s^2 + 1 of the tempered score s (Blanc & Rendle 2018).

    Args:
        negatives: K, the number of candidates.
        refresh_every: the greatest age of a copied item vector, in steps.
        exclude_positive: whether each example draws without its positive, which is masked otherwise.
        alpha: the weight of s^2 in the kernel.
        per: "example" draws for each example, "batch" once by the sum of the kernels of the batch.

    Draws:
        int64 [B, K], candidates of each example; [K], shared by the batch, with per = "batch".

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.quadratic(negatives=4).build(catalog)
        >>> sampler.refresh(vectors)
        >>> sampler.draw(users, positives, step).ids.shape
        torch.Size([2, 4])
    """

    kind: Literal["quadratic"] = "quadratic"
    alpha: Annotated[float, Field(gt=0.0, le=1e9)] = 100.0
    per: Literal["example", "batch"] = "example"

    @model_validator(mode="after")
    def _fits(self) -> "QuadraticConfig":
        if self.per == "batch" and self.exclude_positive:
            raise ValueError(
                "one draw for the batch can't leave out each example's own positive (which is masked "
                'anyway); set per = "example" or exclude_positive = false'
            )
        return self

    @property
    def reads_batch(self) -> bool:
        return self.per == "batch"

    def build(self, context: BuildContext) -> Sampler:
        return (BatchQuadraticSampler if self.per == "batch" else QuadraticSampler)(self, context)


class QuadraticSampler(SnapshotSampler):
    """K candidates an example, independent and with replacement, by the kernel of its own query.

    The temperature is a factor of the query's side alone, and no snapshot holds it: where a model learns a
    temperature and divides its user vectors by it, each draw follows the temperature of its own step.
    With `exclude_positive` the candidates come from q_j / (1 - q_y).
    """

    def __init__(self, settings: QuadraticConfig, context: BuildContext) -> None:
        """Draw by `settings`. Raises TrainingError for `exclude_positive` with one item."""
        super().__init__(settings, context)
        self.exclude_positive = settings.exclude_positive
        if self.exclude_positive:
            check_others(self.item_count)
        # In units of <h, w>^2: a score is <h, w> over the temperature.
        self.scale = settings.alpha / context.scoring.temperature**2
        self.sums: KernelSums | None = None

    def follow(self, rows: slice) -> None:
        if self.sums is not None and self.sums.vectors is self.vectors:
            self.sums.follow(rows)
        else:
            self.sums = KernelSums(self.vectors, self.scale)

    def checked_sums(self, query: Tensor) -> KernelSums:
        """The sums over the snapshot.

        Raises:
            TrainingError: before the first refresh, user vectors of another width than the items', or that
                aren't finite.
        """
        if query.shape[1] != (width := self.vectors.shape[1]):
            raise TrainingError(
                f"objective.sampler: user vectors are {query.shape[1]} wide and item vectors {width}; a "
                "kernel of both needs one width."
            )
        if not query.isfinite().all():
            example = int((~query.isfinite().all(dim=1)).nonzero()[0])
            raise TrainingError(
                f"objective.sampler: the user vector of example {example} isn't finite, so nothing can be "
                "drawn by it; lower training.learning_rate or raise tower.scoring.temperature."
            )
        assert self.sums is not None
        return self.sums

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids, each example's own. Raises TrainingError as `checked_sums`."""
        sums = self.checked_sums(query)
        masses = sums.masses(query)
        log_mass, of_positive = self._log_mass(sums.kernels(query, positives.unsqueeze(1))[:, 0], masses)
        counts = torch.full_like(positives, self.negatives)
        excluded = positives if self.exclude_positive else torch.full_like(positives, -1)
        seed = int(context.random.integers(2**63))
        ids = sums.draw(query, masses, counts, excluded, seed).view(len(query), self.negatives)
        log_q = sums.kernels(query, ids).log() - log_mass.unsqueeze(1)
        return drawn_from(ids, log_q.float(), of_positive.float(), positives)

    def _log_mass(self, kernels: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
        """The log of the divisor of candidates' kernels, and log q of the positives: both [B]."""
        if not self.exclude_positive:
            return masses.log(), (kernels / masses).log()
        # Each of the others has a kernel of at least one, in spite of rounding.
        others = (masses - kernels).clamp(min=self.item_count - 1.0)
        return others.log(), torch.full_like(others, -math.inf)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """K(h, w_i) / Z(h), before an excluded positive is left out: [B, N]."""
        masses = self.checked_sums(query).masses(query).unsqueeze(1)
        blocks = [(query.double() @ part.double().T) ** 2 for part in torch.split(self.vectors, BLOCK)]
        return torch.cat([((self.scale * block + 1.0) / masses).float() for block in blocks], dim=1)


class BatchQuadraticSampler(QuadraticSampler):
    """K candidates shared by the batch, with q in proportion to the sum of the examples' kernels.

    That sum is a mixture: an example is drawn in proportion to its Z, then an item by its kernel.
    """

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [K] ids. Raises TrainingError as `checked_sums`."""
        sums = self.checked_sums(query)
        masses = sums.masses(query)
        shares = (masses / masses.sum()).cpu().numpy()
        counts = torch.from_numpy(context.random.multinomial(self.negatives, shares)).to(query.device)
        seed = int(context.random.integers(2**63))
        nobody = torch.full_like(positives, -1)
        ids = sums.draw(query, masses, counts, nobody, seed)
        ids = ids[torch.from_numpy(context.random.permutation(self.negatives)).to(ids.device)]
        return Draw(
            ids=ids,
            log_count=self._log_counts(query, ids, masses),
            positive_log_count=self._log_counts(query, positives, masses),
            valid=ids != positives.unsqueeze(1),
        )

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The q [N] that the batch of queries shares, for each of them: [B, N]."""
        masses = self.checked_sums(query).masses(query)
        parts = [self._log_q(query, part, masses).exp().float() for part in torch.split(self.vectors, BLOCK)]
        return torch.cat(parts).expand(len(query), -1)

    def _log_counts(self, query: Tensor, ids: Tensor, masses: Tensor) -> Tensor:
        """log(K q) of `ids` [n], by the whole batch of queries."""
        return (self._log_q(query, self.vectors[ids], masses) + math.log(self.negatives)).float()

    def _log_q(self, query: Tensor, vectors: Tensor, masses: Tensor) -> Tensor:
        # The sum over b of <h_b, w>^2 is w' (H'H) w.
        vectors, moments = vectors.double(), query.double().T @ query.double()
        kernels = self.scale * ((vectors @ moments) * vectors).sum(dim=1) + len(query)
        return kernels.log() - masses.sum().log()
