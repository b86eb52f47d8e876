"""Samplers that draw by a copy of the item vectors, a few steps old."""

from abc import ABC

import torch
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import Encode, Sampler, State
from turret.training.samplers.core.settings import BuildContext, Negatives, SamplerSettings, Steps


class SnapshotSettings(SamplerSettings, ABC):
    """The settings of a sampler by a copy of the item vectors.

    Args:
        negatives: K, the number of candidates.
        refresh_every: the greatest age of a copied vector, in steps; each step renews 1 / `refresh_every` of
            the rows.
    """

    negatives: Negatives = 64
    refresh_every: Steps = 100


class SnapshotSampler(Sampler):
    """Draws by a copy [N, D] of the scored item vectors in float32, none older than `refresh_every` steps.

    Counts are computed from the copy that the draw was made from, so they are right however old the copy is;
    age costs sharpness alone. Each step renews ceil(N / refresh_every) rows, from the first row to the last,
    and then starts over.
    """

    merges = True  # the copies are the same in all processes

    def __init__(self, settings: SnapshotSettings, context: BuildContext) -> None:
        """Draw `settings.negatives` candidates; there is no copy before the first refresh."""
        self.negatives = settings.negatives
        self.item_count, self.device = context.item_count, context.device
        self.rows_a_step = -(-self.item_count // settings.refresh_every)
        self.position = 0
        self._vectors: Tensor | None = None

    def follow(self, rows: slice) -> None:
        """Renew the state that depends on the vectors of `rows`, which have changed. This class has none."""

    @property
    def vectors(self) -> Tensor:
        """The copy [N, D]. Raises TrainingError before the first refresh."""
        if self._vectors is None:
            raise TrainingError(
                "objective.sampler: this sampler draws by item vectors and has none yet; call "
                "refresh with the vectors of the whole catalog before the first draw."
            )
        return self._vectors

    def refresh(self, item_vectors: Tensor) -> None:
        """Copy all of [N, D], and renew from the first row on again.

        Raises:
            TrainingError: a catalog of another size, or a vector that isn't finite; the copy is as before.
        """
        if len(item_vectors) != self.item_count:
            raise TrainingError(
                f"objective.sampler: there are vectors of {len(item_vectors)} items, and the sampler was "
                f"built for {self.item_count}; build a sampler for this catalog, as turret train does."
            )
        check_finite(item_vectors, 0)
        if self._vectors is None or self._vectors.shape != item_vectors.shape:
            self._vectors = torch.empty(item_vectors.shape, device=self.device)
        self._vectors.copy_(item_vectors.detach())
        self.position = 0
        self.follow(slice(0, self.item_count))

    def update(self, encode: Encode) -> None:
        """Replace the next rows by their current vectors.

        Raises:
            TrainingError: before the first refresh, or a vector isn't finite; the copy is as before.
        """
        vectors = self.vectors
        part = slice(self.position, min(self.position + self.rows_a_step, self.item_count))
        replaced = encode(torch.arange(part.start, part.stop, device=self.device)).detach()
        check_finite(replaced, part.start)
        vectors[part] = replaced.to(vectors)
        self.position = part.stop % self.item_count
        self.follow(part)

    def state(self) -> State:
        """The copy and the position of the next renewal; nothing before the first refresh."""
        if self._vectors is None:
            return {}
        return {"vectors": self._vectors, "position": torch.tensor(self.position)}

    def restore(self, state: State) -> None:
        """Restore a `state`. Raises TrainingError for a catalog of another size."""
        if state:
            self.refresh(state["vectors"])
            self.position = int(state["position"])


def check_finite(vectors: Tensor, first_row: int) -> None:
    """Raise TrainingError unless the norms of `vectors` [R, D] are finite in float32.

    `first_row` is the item row of the first vector.
    """
    finite = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64).float().isfinite()
    if not finite.all():
        row = first_row + int((~finite).nonzero()[0])
        raise TrainingError(
            f"objective.sampler: the vector of item row {row} isn't finite, so nothing can be drawn by it; "
            "lower training.learning_rate or raise tower.scoring.temperature."
        )
