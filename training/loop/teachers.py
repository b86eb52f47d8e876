"""The teachers of a run: trained runs whose mean score it imitates (Hinton et al. 2015)."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.model import TwoTowers
from turret.training.errors import TrainingError
from turret.training.objectives.contract import Lesson
from turret.training.run import Run

# The settings of a user tower by which a batch is read, once for a run and its teachers.
_READ = ("history_length", "reads_times", "kinds", "context_features")


@dataclass(frozen=True)
class Teachers:
    """Towers without dropout and without gradients, whose mean tempered score is one inner product.

    Attributes:
        models: the towers of each teacher.
        vectors: [N, T_m], the item vectors of each.
        weight: the share of the teachers in the label.
    """

    models: tuple[TwoTowers, ...]
    vectors: tuple[Tensor, ...]
    weight: float

    @classmethod
    def open(cls, run: Run, data: PreparedData, device: torch.device, masks_seen: bool) -> "Teachers":
        """Open the teachers of a run. Raises TrainingError for those that can't teach it.

        `masks_seen` tells whether the loss leaves out used items, which the teachers rank.
        """
        settings = run.experiment.training
        if masks_seen:
            raise TrainingError(
                "training.teacher: the loss of this run leaves out used items, and teachers score all; set "
                "training.repeats = false, or training.teacher = []."
            )
        models = []
        for folder in settings.teacher:
            try:
                teacher = Run.read(Path(folder))
                if reason := refusal(teacher, run):
                    raise TrainingError(f"{folder} {reason}.")
                models.append(teacher.open_model(data, "validation").to(device))
            except TrainingError as error:
                raise TrainingError(f"training.teacher: {error}") from None
            models[-1].chunk_size = settings.chunk_size
        with torch.no_grad():
            vectors = tuple(model.catalog_vectors() for model in models)
        return cls(tuple(models), vectors, settings.teacher_weight)

    @torch.no_grad()
    def lesson(self, histories: PackedHistories) -> Lesson:
        """The softmax of the teachers' mean score of each item, for each history."""
        users = [
            model.user_vectors(histories, vectors[histories.rows])
            / (model.config.scoring.temperature * len(self.models))
            for model, vectors in zip(self.models, self.vectors, strict=True)
        ]
        return Lesson(torch.cat(users, dim=1), torch.cat(self.vectors, dim=1), self.weight)


def refusal(teacher: Run, run: Run) -> str | None:
    """The reason why `teacher` can't teach `run`, as a clause with a remedy; None if it can."""
    tower, own = teacher.experiment.tower, run.experiment.tower
    if teacher.folder.resolve() == run.folder.resolve():
        return "is the folder of this run; name the folder of another"
    if teacher.fingerprint != run.fingerprint:
        return "was trained on other data; train it on the data of this run"
    if tower.scoring.absolute or tower.user.interests > 1 or not teacher.experiment.objective.loss.servable:
        return "ranks by no signed inner product of one user vector; name a run that does"
    learnt, wanted = teacher.experiment.training.examples, run.experiment.training.examples
    if learnt != wanted:
        return f"has training.examples = {learnt!r}, and this run {wanted!r}; train it with that"
    if tower.user.context != own.user.context:
        return (
            f"has tower.user.kind = {tower.user.kind!r}, which reads other histories; use {own.user.kind!r}"
        )
    for name in _READ:
        value, needed = getattr(tower.user, name, None), getattr(own.user, name, None)
        if value != needed:
            setting = f"tower.user.{name.removeprefix('reads_')}"
            return f"has {setting} = {value!r}, and this run {needed!r}; train it with that"
    progress = teacher.progress()
    if progress is None or not progress.finished or teacher.lacks_pairs():
        return "is not trained to its end; continue it with --resume"
    return None
