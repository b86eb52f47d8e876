"""Checkpoints in safetensors, from which training resumes bit for bit."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from turret.data.files import new_file
from turret.tower.config import Settings
from turret.training.errors import TrainingError, naming_damage

_OBJECTIVE, _AGAIN = "objective.", "train again with --overwrite"


@dataclass
class Progress:
    """The progress of a run, stored as JSON in its checkpoint.

    `epoch` and `step` count finished epochs and steps; `step_in_epoch`, `loss_sum`, `examples` and `masked`
    belong to the current epoch; `stale` counts evaluations since the best one. `validated` has
    `[epoch, value]` of each evaluation.
    """

    epoch: int = 0
    step: int = 0
    step_in_epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    stale: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    examples: int = 0
    masked: int = 0
    finished: bool = False
    validated: list[list[float]] = field(default_factory=list)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Replace the file at `path` by tensors in the safetensors format.

    Raises:
        TrainingError: safetensors can't write them, such as to a full disk.
        OSError: the file can't be made or replaced.
    """
    with new_file(path) as draft:
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            save_file(contiguous, draft, metadata)
        except SafetensorError as error:
            raise TrainingError(f"{path}: it can't be written ({error}); make room on the disk.") from None


def save_checkpoint(path: Path, progress: Progress, **groups: dict[str, Tensor]) -> None:
    """Replace the checkpoint at `path`; tensors of the group `model` are named "model.item.table.weight"."""
    tensors = {f"{group}.{name}": tensor for group in groups for name, tensor in groups[group].items()}
    save_tensors(path, tensors, {"progress": json.dumps(vars(progress))})


def load_checkpoint(path: Path) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """Read a checkpoint and its groups of tensors. Raises TrainingError for any other file."""
    progress, groups = load_progress(path), defaultdict[str, dict[str, Tensor]](dict)
    with safe_open(path, framework="pt") as stored:
        for key in list(stored.keys()):
            group, name = key.split(".", 1)
            groups[group][name] = stored.get_tensor(key)
    return progress, groups


def load_progress(path: Path) -> Progress:
    """Read the progress alone of a checkpoint. Raises TrainingError for any other file."""
    # Opened for torch, the whole file would count as memory of the process.
    with naming_damage(path, _AGAIN, OSError, SafetensorError), safe_open(path, framework="numpy") as stored:
        return Progress(**json.loads((stored.metadata() or {})["progress"]))


def all_parameters(model: nn.Module, objective: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters of a model and its objective, for one file."""
    objective_tensors = {_OBJECTIVE + name: tensor for name, tensor in objective.state_dict().items()}
    tensors = {**model.state_dict(), **objective_tensors}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


class ChosenPairs(Settings):
    """The factors of pairs that validation chose: of the newest `share` of the log's time, with a weight.

    A weight of 0 leaves them out. `validation` has the metric with them by its name, if they are kept.
    """

    share: float
    weight: float
    validation: dict[str, float]


def load_pairs(path: Path) -> tuple[Tensor, ChosenPairs]:
    """The factors of pairs in a file of a run, mapped, and their choice. Raises TrainingError."""
    with naming_damage(path, _AGAIN, OSError, SafetensorError), safe_open(path, "pt") as file:
        return file.get_tensor("pairs"), ChosenPairs.model_validate_json(file.metadata()["chosen"])


def load_parameters(path: Path, module: nn.Module, is_objective: bool = False) -> None:
    """Replace the parameters of a model or an objective by those of a file of `all_parameters`, mapped.

    Raises:
        TrainingError: the file holds something else, or the parameters of another module.
    """
    with naming_damage(path, _AGAIN, OSError, SafetensorError):
        tensors = load_file(path)
    selected = {
        name.removeprefix(_OBJECTIVE): tensor
        for name, tensor in tensors.items()
        if name.startswith(_OBJECTIVE) == is_objective
    }
    try:
        module.load_state_dict(selected, assign=True)
    except RuntimeError as error:
        raise TrainingError(f"{path}: these parameters belong to another model: {error}") from None
