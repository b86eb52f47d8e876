"""Checkpoints in safetensors, from which training resumes bit for bit."""

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from turret.data.files import new_file
from turret.training.errors import TrainingError, naming_damage

_OBJECTIVE, _AGAIN = "objective.", "train again with --overwrite"
# As safetensors calls them.
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "BOOL": torch.bool,
}


@dataclass
class Progress:
    """The progress of a run, stored as JSON in its checkpoint.

    `epoch` and `step` count finished ones; `step_in_epoch`, `loss_sum`, `examples` and `masked` belong to the
    current epoch; `stale` counts evaluations since the best one. `validated` has
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


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run: parameters, moments of the optimiser, state of the sampler, progress.

    `objective` has the objective's own parameters, `best` those of model and objective at the best
    evaluation.
    """

    model: dict[str, Tensor]
    objective: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    sampler: dict[str, Tensor]
    best: dict[str, Tensor]
    progress: Progress


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


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint at `path`; its tensors have names such as "model.item.table.weight"."""
    groups = {name: group for name, group in vars(checkpoint).items() if name != "progress"}
    tensors = {f"{group}.{name}": tensor for group in groups for name, tensor in groups[group].items()}
    save_tensors(path, tensors, {"progress": json.dumps(vars(checkpoint.progress))})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises TrainingError for any other file."""
    checkpoint = Checkpoint({}, {}, {}, {}, {}, load_progress(path))
    with safe_open(path, framework="pt") as stored:
        for key in list(stored.keys()):
            group, name = key.split(".", 1)
            vars(checkpoint)[group][name] = stored.get_tensor(key)
    return checkpoint


def load_progress(path: Path) -> Progress:
    """Read the progress alone of a checkpoint. Raises TrainingError for any other file."""
    # For torch, the whole file would count as memory of the process.
    with naming_damage(path, _AGAIN, OSError, SafetensorError), safe_open(path, framework="numpy") as stored:
        return Progress(**json.loads((stored.metadata() or {})["progress"]))


def all_parameters(model: nn.Module, objective: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters of a model and its objective, for one file."""
    objective_tensors = {_OBJECTIVE + name: tensor for name, tensor in objective.state_dict().items()}
    tensors = {**model.state_dict(), **objective_tensors}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def map_model(path: Path, model: nn.Module) -> None:
    """Put the model's parameters of a file of `all_parameters` in place of its own, mapped for reading."""
    tensors = mapped_tensors(path)
    _load(path, model, {name: tensors[name] for name in tensors if not name.startswith(_OBJECTIVE)})


def load_objective(path: Path, objective: nn.Module) -> None:
    """Put the objective's parameters of such a file in place of its own, mapped for reading."""
    tensors = mapped_tensors(path)
    names = (name for name in tensors if name.startswith(_OBJECTIVE))
    _load(path, objective, {name.removeprefix(_OBJECTIVE): tensors[name] for name in names})


def _load(path: Path, module: nn.Module, tensors: dict[str, Tensor]) -> None:
    try:
        module.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise TrainingError(f"{path}: these parameters belong to another model: {error}") from None


def mapped_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, mapped for reading alone: they take no memory of the process.

    A tensor that is written to ends the process. safetensors maps a file for writing, which counts as memory.
    Raises TrainingError for any other file.
    """
    with naming_damage(path, _AGAIN, OSError, SafetensorError):
        with safe_open(path, framework="numpy") as checked:
            names = list(checked.keys())
        file = np.memmap(path, np.uint8, "r")
        start = 8 + int.from_bytes(file[:8].tobytes(), "little")
        header = json.loads(file[8:start].tobytes())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            data = torch.from_numpy(file[start:])
        return {name: _tensor(data, header[name]) for name in names}


def _tensor(data: Tensor, entry: dict[str, Any]) -> Tensor:
    first, end = entry["data_offsets"]
    return data[first:end].view(_DTYPES[entry["dtype"]]).view(entry["shape"])
