"""The quadratic kernel sampler (Blanc & Rendle 2018, section 3), and its snapshot of the item vectors."""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import (
    Draw,
    drawn_by_example,
    without_accidental_hits,
)
from turret.training.samplers.core.settings import BuildContext, ExcludingSettings
from turret.training.samplers.core.snapshot import SnapshotSampler, SnapshotSettings
from turret.training.samplers.fixed.complement import check_others
from turret.training.samplers.kernel.sums import KernelSums

# Rows scored at once by the dense closed form.
BLOCK = 65_536


class QuadraticConfig(SnapshotSettings, ExcludingSettings):
    """The kernel alpha s^2 + 1 of the tempered score s (Blanc & Rendle 2018).

    `per` draws for each example, or once for the batch by the sum of its kernels. No copy of an item
    vector is older than `refresh_every` steps.
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

    The kernel is large where the score is, of either sign, so that few candidates show most of the softmax;
    and it is symmetric, as the absolute softmax needs (their section 3.3). The temperature is a factor of the
    query's side alone, and no snapshot holds it: where a model learns one and divides its user vectors by
    it, each draw follows the temperature of its own step.
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
        return drawn_by_example(ids, log_q.float(), of_positive.float(), positives)

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
        blocks = [(query.double() @ some.double().T) ** 2 for some in torch.split(self.vectors, BLOCK)]
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
            valid=without_accidental_hits(ids, positives),
        )

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The q [N] that the batch of queries shares, for each of them: [B, N]."""
        masses = self.checked_sums(query).masses(query)
        parts = [self._log_q(query, some, masses).exp().float() for some in torch.split(self.vectors, BLOCK)]
        return torch.cat(parts).expand(len(query), -1)

    def _log_counts(self, query: Tensor, ids: Tensor, masses: Tensor) -> Tensor:
        """log(K q) of `ids` [n], by the whole batch of queries."""
        return (self._log_q(query, self.vectors[ids], masses) + math.log(self.negatives)).float()

    def _log_q(self, query: Tensor, vectors: Tensor, masses: Tensor) -> Tensor:
        # The sum over b of <h_b, w>^2 is w' (H'H) w.
        vectors, moments = vectors.double(), query.double().T @ query.double()
        kernels = self.scale * ((vectors @ moments) * vectors).sum(dim=1) + len(query)
        return kernels.log() - masses.sum().log()
