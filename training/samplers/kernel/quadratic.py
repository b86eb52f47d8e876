"""The quadratic kernel sampler (Blanc & Rendle 2018, section 3), and its snapshot of the item vectors."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import DrawContext, Encode, Sampler, State
from turret.training.samplers.core.draw import (
    Draw,
    check_positives,
    drawn_by_example,
    without_accidental_hits,
)
from turret.training.samplers.core.settings import ExcludingSettings, Negatives, SamplerContext, Steps
from turret.training.samplers.core.snapshot import Snapshot, SnapshotSampler, check_size, no_vectors
from turret.training.samplers.fixed.complement import check_others
from turret.training.samplers.kernel.sums import CodedSums, KernelSums, TensorSums


class KernelSnapshot(Snapshot):
    """The copy of the item vectors as kernel sums."""

    def __init__(
        self,
        item_count: int,
        refresh_every: int,
        device: torch.device,
        make_sums: Callable[[int, int], KernelSums],
    ) -> None:
        """Take `make_sums`, which allocates sums for [rows, width] vectors."""
        super().__init__(item_count, refresh_every, device)
        self.make_sums = make_sums
        self.width = 0
        self._sums: KernelSums | None = None

    @property
    def sums(self) -> KernelSums:
        """The kernel sums. Raises TrainingError before the first refresh."""
        if self._sums is None:
            raise no_vectors()
        return self._sums

    def refresh(self, item_vectors: Tensor) -> None:
        check_size(item_vectors, self.item_count)
        sums, width = self._sums, item_vectors.shape[1]
        if sums is None or width != self.width:
            sums = self.make_sums(self.item_count, width)
        sums.update(torch.arange(self.item_count), item_vectors)
        self._sums, self.width, self.position = sums, width, 0

    def update(self, encode: Encode) -> slice:
        sums, part = self.sums, self.next_rows()
        rows = torch.arange(part.start, part.stop, device=self.device)
        sums.update(rows, encode(rows))
        self.position = part.stop % self.item_count
        return part

    def check_query(self, query: Tensor) -> None:
        """Raise TrainingError for user vectors of another width than the items', or that aren't finite."""
        _ = self.sums
        if query.shape[1] != self.width:
            raise TrainingError(
                f"objective.sampler: user vectors are {query.shape[1]} wide and item vectors {self.width}; a "
                "kernel of both needs one width."
            )
        if not query.isfinite().all():
            example = int((~query.isfinite().all(dim=1)).nonzero()[0])
            raise TrainingError(
                f"objective.sampler: the user vector of example {example} isn't finite, so nothing can be "
                "drawn by it; lower training.learning_rate or raise tower.scoring.temperature."
            )

    def state(self) -> State:
        """The vectors of the sums and the position of the next update; nothing before the first refresh."""
        if self._sums is None:
            return {}
        return {**self._sums.state(), "position": torch.tensor([self.position, self.width])}

    def restore(self, state: State) -> None:
        if state:
            self.position, self.width = state["position"].tolist()
            self._sums = self.make_sums(self.item_count, self.width)
            self._sums.restore(state)


# Rows scored at once by the dense closed form.
BLOCK = 65_536


def quadratic_sums(alpha: float, device: torch.device, rows: int, width: int) -> KernelSums:
    """Compiled draws from coded vectors on the CPU, tensors on any other device.

    `alpha` is the factor of <h, w>^2.
    """
    return CodedSums(rows, width, alpha) if device.type == "cpu" else TensorSums(rows, width, alpha, device)


class QuadraticConfig(ExcludingSettings):
    """The kernel alpha s^2 + 1 of the tempered score s (Blanc & Rendle 2018).

    `per` draws for each example, or once for the batch by the sum of its kernels. No copy of an item
    vector is older than `refresh_every` steps.
    """

    kind: Literal["quadratic"] = "quadratic"
    negatives: Negatives = 64
    alpha: Annotated[float, Field(gt=0.0, le=1e9)] = 100.0
    per: Literal["example", "batch"] = "example"
    refresh_every: Steps = 100

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

    def build(self, context: SamplerContext) -> Sampler:
        kind = BatchQuadraticSampler if self.per == "batch" else QuadraticSampler
        return kind(self, context.item_count, context.scoring.temperature, context.device)


class QuadraticSampler(SnapshotSampler):
    """K candidates an example, independent and with replacement, by the kernel of its own query.

    The kernel is large where the score is, of either sign, so that few candidates show most of the softmax;
    and it is symmetric, as the absolute softmax needs (their section 3.3). The temperature is a factor of the
    query's side alone, and no snapshot holds it: where a model learns one and divides its user vectors by
    it, each draw follows the temperature of its own step.
    With `exclude_positive` the candidates come from q_j / (1 - q_y).
    """

    def __init__(
        self, settings: QuadraticConfig, item_count: int, temperature: float, device: torch.device
    ) -> None:
        """Set up for N items, whose vectors come with `refresh`; `temperature` divides <h, w> in a score.

        Raises TrainingError for `exclude_positive` with one item.
        """
        if settings.exclude_positive:
            check_others(item_count)
        # In units of <h, w>^2.
        self.scale = settings.alpha / temperature**2
        self.negatives = settings.negatives
        self.exclude_positive = settings.exclude_positive
        make_sums = partial(quadratic_sums, self.scale, device)
        self.snapshot: KernelSnapshot = KernelSnapshot(item_count, settings.refresh_every, device, make_sums)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids, each example's own.

        Raises:
            TrainingError: before the first refresh, a positive outside the catalog, user vectors of another
                width, or that aren't finite.
        """
        self.snapshot.check_query(query)
        check_positives(positives, self.snapshot.item_count)
        sums, masses = self.snapshot.sums, self.snapshot.sums.masses(query)
        log_mass, of_positive = self._log_mass(query, positives, masses)
        counts = torch.full_like(positives, self.negatives)
        excluded = positives if self.exclude_positive else torch.full_like(positives, -1)
        seed = int(context.random.integers(2**63))
        ids = sums.draw(query, masses, counts, excluded, seed).view(len(query), self.negatives)
        log_q = sums.kernels(query, ids).log() - log_mass.unsqueeze(1)
        return drawn_by_example(ids, log_q.float(), of_positive.float(), positives)

    def _log_mass(self, query: Tensor, positives: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
        """The log of the divisor of candidates' kernels, and log q of the positives: both [B]."""
        kernels = self.snapshot.sums.kernels(query, positives.unsqueeze(1))[:, 0]
        if not self.exclude_positive:
            return masses.log(), (kernels / masses).log()
        # Each of the others has a kernel of at least one, in spite of rounding.
        others = (masses - kernels).clamp(min=self.snapshot.item_count - 1.0)
        return others.log(), torch.full_like(others, -math.inf)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """K(h, w_i) / Z(h), before an excluded positive is left out: [B, N]."""
        self.snapshot.check_query(query)
        masses = self.snapshot.sums.masses(query).unsqueeze(1)
        blocks = [(query.double() @ self.snapshot.sums.vectors(some).T) ** 2 for some in self._blocks(query)]
        return torch.cat([((self.scale * block + 1.0) / masses).float() for block in blocks], dim=1)

    def _blocks(self, query: Tensor) -> Iterator[Tensor]:
        rows = torch.arange(self.snapshot.item_count, device=query.device)
        return (rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK))


class BatchQuadraticSampler(QuadraticSampler):
    """K candidates shared by the batch, with q in proportion to the sum of the examples' kernels.

    That sum is a mixture: an example is drawn in proportion to its Z, then an item by its kernel.
    """

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [K] ids. Raises TrainingError as for draws of each example's own."""
        self.snapshot.check_query(query)
        check_positives(positives, self.snapshot.item_count)
        masses = self.snapshot.sums.masses(query)
        shares = (masses / masses.sum()).cpu().numpy()
        counts = torch.from_numpy(context.random.multinomial(self.negatives, shares)).to(query.device)
        seed = int(context.random.integers(2**63))
        nobody = torch.full_like(positives, -1)
        ids = self.snapshot.sums.draw(query, masses, counts, nobody, seed)
        ids = ids[torch.from_numpy(context.random.permutation(self.negatives)).to(ids.device)]
        return Draw(
            ids=ids,
            log_count=self._log_counts(query, ids),
            positive_log_count=self._log_counts(query, positives),
            valid=without_accidental_hits(ids, positives),
        )

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The q [N] that the batch of queries shares, for each of them: [B, N]."""
        self.snapshot.check_query(query)
        q = torch.cat([self._log_q(query, some).exp().float() for some in self._blocks(query)])
        return q.expand(len(query), -1)

    def _log_counts(self, query: Tensor, ids: Tensor) -> Tensor:
        """log(K q) of `ids` [n], by the whole batch of queries."""
        return (self._log_q(query, ids) + math.log(self.negatives)).float()

    def _log_q(self, query: Tensor, rows: Tensor) -> Tensor:
        # The sum over b of <h_b, w>^2 is w' (H'H) w.
        vectors, moments = self.snapshot.sums.vectors(rows), query.double().T @ query.double()
        kernels = self.scale * ((vectors @ moments) * vectors).sum(dim=1) + len(query)
        return kernels.log() - self.snapshot.sums.masses(query).sum().log()
