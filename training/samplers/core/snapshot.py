"""Snapshots of item vectors for samplers: a few steps old, with a part renewed in each step."""

import torch
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import Encode, Sampler, State


class Snapshot:
    """A copy [N, D] of the scored item vectors, none older than `refresh_every` steps.

    Counts that are computed from the copy that the draw was made from are right however old it is; age
    costs sharpness alone. A step's share of the work is ceil(N / refresh_every) rows, from the first row to
    the last and over again.
    """

    def __init__(self, item_count: int, refresh_every: int, device: torch.device) -> None:
        """Allocate for `item_count` items on `device`; empty at first."""
        self.item_count = item_count
        self.rows_a_step = -(-item_count // refresh_every)
        self.device = device
        self.position = 0
        self._vectors: Tensor | None = None

    @property
    def vectors(self) -> Tensor:
        """The copy [N, D]. Raises TrainingError before the first refresh."""
        if self._vectors is None:
            raise no_vectors()
        return self._vectors

    def refresh(self, item_vectors: Tensor) -> None:
        """Copy all of [N, D], and renew from the first row on again.

        Raises:
            TrainingError: a catalog of another size, or a vector that isn't finite; the copy is as before.
        """
        check_size(item_vectors, self.item_count)
        _check_finite(item_vectors, 0)
        self._vectors = item_vectors.detach().to(self.device, copy=True)
        self.position = 0

    def update(self, encode: Encode) -> slice:
        """Replace the next rows by their current vectors; return the rows.

        Raises:
            TrainingError: before the first refresh, or a vector isn't finite; the copy is as before.
        """
        vectors, part = self.vectors, self.next_rows()
        replaced = encode(torch.arange(part.start, part.stop, device=self.device))
        _check_finite(replaced, part.start)
        vectors[part] = replaced
        self.position = part.stop % self.item_count
        return part

    def next_rows(self) -> slice:
        """The rows of the next update."""
        return slice(self.position, min(self.position + self.rows_a_step, self.item_count))

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


def check_size(vectors: Tensor, item_count: int) -> None:
    """Raise TrainingError unless `vectors` [N, D] are of the catalog that a sampler was built for."""
    if len(vectors) != item_count:
        raise TrainingError(
            f"objective.sampler: there are vectors of {len(vectors)} items, and the sampler was built for "
            f"{item_count}; build a sampler for this catalog, as turret train does."
        )


def _check_finite(vectors: Tensor, first_row: int) -> None:
    """Raise TrainingError if `vectors` [R, D], of the rows from `first_row` on, have NaN or infinity."""
    finite = vectors.isfinite()
    if not finite.all():
        row = first_row + int((~finite.all(dim=1)).nonzero()[0])
        raise not_finite(row)


def no_vectors() -> TrainingError:
    """The error of a draw before the first refresh."""
    return TrainingError(
        "objective.sampler: this sampler draws by item vectors and has none yet; call "
        "refresh with the vectors of the whole catalog before the first draw."
    )


def not_finite(row: int) -> TrainingError:
    """The error of an item vector with NaN or infinity."""
    return TrainingError(
        f"objective.sampler: the vector of item row {row} isn't finite, so nothing can be drawn by it; "
        "lower training.learning_rate or raise tower.scoring.temperature."
    )


class SnapshotSampler(Sampler):
    """Draws by its `snapshot`, by which its counts are exact however old the vectors are."""

    snapshot: Snapshot

    def refresh(self, item_vectors: Tensor) -> None:
        self.snapshot.refresh(item_vectors)

    def update(self, encode: Encode) -> None:
        self.snapshot.update(encode)

    def state(self) -> State:
        return self.snapshot.state()

    def restore(self, state: State) -> None:
        self.snapshot.restore(state)
