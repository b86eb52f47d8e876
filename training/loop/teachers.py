"""The teachers of a run: trained runs whose mean score it imitates (Hinton et al. 2015)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.model import TwoTowers
from turret.training.errors import TrainingError
from turret.training.run import Run


@dataclass(frozen=True)
class Teachers:
    """Towers without dropout and without gradients, whose mean tempered score is one inner product.

    Attributes:
        models: the towers of each teacher.
        vectors: [N, T], the item vectors of all of them side by side.
        weight: the share of the teachers in the loss.
    """

    models: tuple[TwoTowers, ...]
    vectors: Tensor
    weight: float

    @classmethod
    def open(
        cls, folders: Sequence[str], weight: float, student: Run, data: PreparedData, device: torch.device
    ) -> "Teachers":
        """Open the runs in `folders`. Raises TrainingError for one that can't teach `student`."""
        models = []
        for folder in folders:
            teacher = Run.read(Path(folder))
            if reason := _refusal(teacher, student):
                raise TrainingError(f"training.teacher: {folder} {reason}.")
            models.append(teacher.open_model(data, "validation").to(device))
        with torch.no_grad():
            vectors = torch.cat([model.catalog_vectors() for model in models], dim=1)
        return cls(tuple(models), vectors, weight)

    @torch.no_grad()
    def lesson(self, histories: PackedHistories) -> tuple[Tensor, Tensor]:
        """Vectors [B, T] and [N, T] whose products are the teachers' mean score of each item."""
        users, first = [], 0
        for model in self.models:
            width = self.vectors.shape[1] // len(self.models)
            own = self.vectors[:, first : first + width]
            scale = model.config.scoring.temperature * len(self.models)
            users.append(model.user_vectors(histories, own[histories.rows]) / scale)
            first += width
        return torch.cat(users, dim=1), self.vectors


def _refusal(teacher: Run, student: Run) -> str | None:
    """Why a run can't teach another, as a clause with a remedy; None if it can."""
    tower, own = teacher.experiment.tower, student.experiment.tower
    if teacher.fingerprint != student.fingerprint:
        return "was trained on other data; train it on the data of this run"
    if tower.user.context != own.user.context:
        return f"has a user tower of kind {tower.user.kind!r}, which reads other histories"
    return None
