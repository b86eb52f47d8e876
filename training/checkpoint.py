"""Checkpoints in safetensors, from which training resumes bit for bit."""

import json
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from turret.data.files.staging import new_file
from turret.training.distributed.tensor_files import mapped_tensors
from turret.training.errors import TrainingError

_OBJECTIVE = "objective."


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


def flat_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The tensors of a checkpoint by group and name, such as "model.item.table.weight"."""
    groups = {name: group for name, group in vars(checkpoint).items() if name != "progress"}
    return {f"{group}.{name}": tensor for group in groups for name, tensor in groups[group].items()}


def checkpoint_of(tensors: dict[str, Tensor], progress: Progress) -> Checkpoint:
    """The inverse of `flat_tensors`. Raises KeyError and ValueError for other names."""
    checkpoint = Checkpoint({}, {}, {}, {}, {}, progress)
    for key, tensor in tensors.items():
        group, name = key.split(".", 1)
        vars(checkpoint)[group][name] = tensor
    return checkpoint


@dataclass(frozen=True)
class RowsFolder:
    """The name of the folder beside a checkpoint with the tensors of split tables, and their row counts."""

    name: str
    counts: dict[str, int]


def save_checkpoint(path: Path, checkpoint: Checkpoint, rows: RowsFolder | None = None) -> None:
    """Replace the checkpoint at `path`; `rows` is the folder of split tables, written before."""
    metadata = {"progress": json.dumps(vars(checkpoint.progress))}
    if rows is not None:
        metadata |= {"rows": rows.name, "row_counts": json.dumps(rows.counts)}
    save_tensors(path, flat_tensors(checkpoint), metadata)


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint's file; `rows` is the folder of split tables, `left_out` the tensors not read."""

    tensors: dict[str, Tensor]
    left_out: tuple[str, ...]
    progress: Progress
    rows: RowsFolder | None


def read_checkpoint(path: Path, without: Container[str] = ()) -> CheckpointFile:
    """Read the file of a checkpoint, `without` some tensors. Raises TrainingError for any other file."""
    tensors, metadata, left_out = _read(path, without)
    try:
        progress, rows = Progress(**json.loads(metadata["progress"])), None
        if "rows" in metadata:
            rows = RowsFolder(metadata["rows"], json.loads(metadata.get("row_counts", "{}")))
        return CheckpointFile(tensors, left_out, progress, rows)
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"{path}: this is not a checkpoint ({error!r}); train again.") from None


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a whole checkpoint. Raises TrainingError for any other file."""
    stored = read_checkpoint(path)
    tensors = stored.tensors
    if stored.rows is not None:
        # Imports torch.distributed.checkpoint.
        from turret.training.distributed.shards import load_whole

        tensors = tensors | load_whole(path.parent / stored.rows.name, stored.rows.counts)
    try:
        return checkpoint_of(tensors, stored.progress)
    except (KeyError, ValueError) as error:
        raise TrainingError(f"{path}: this is not a checkpoint ({error!r}); train again.") from None


def load_progress(path: Path) -> Progress:
    """Read the progress alone of a checkpoint. Raises TrainingError for any other file."""
    try:
        # For torch, the whole file would count as memory of the process.
        with safe_open(path, framework="numpy") as stored:
            return Progress(**json.loads((stored.metadata() or {})["progress"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"{path}: this is not a checkpoint ({error!r}); train again.") from None


def _read(
    path: Path, without: Container[str] = ()
) -> tuple[dict[str, Tensor], dict[str, Any], tuple[str, ...]]:
    """The tensors of a file, its metadata, and the names that were left out."""
    try:
        with safe_open(path, framework="pt") as stored:
            names = list(stored.keys())
            left_out = tuple(name for name in names if name in without)
            tensors = {name: stored.get_tensor(name) for name in names if name not in left_out}
            return tensors, stored.metadata() or {}, left_out
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path}: it can't be read ({error}); train again with --overwrite.") from None


def all_parameters(model: nn.Module, objective: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters of a model and its objective, for one file."""
    objective_tensors = {_OBJECTIVE + name: tensor for name, tensor in objective.state_dict().items()}
    tensors = {**model.state_dict(), **objective_tensors}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def load_model(path: Path, model: nn.Module) -> None:
    """Load the model's parameters from a file of `save_tensors`; the objective's are ignored."""
    tensors, _, _ = _read(path)
    _load(path, model, _of_model(tensors))


def map_model(path: Path, model: nn.Module) -> None:
    """Put the parameters of such a file in place of the model's own, mapped for reading alone."""
    _load(path, model, _of_model(mapped_tensors(path)), assign=True)


def load_objective(path: Path, objective: nn.Module) -> None:
    """Load the objective's parameters from a file of `save_tensors`; the model's are ignored."""
    tensors, _, _ = _read(path)
    names = (name for name in tensors if name.startswith(_OBJECTIVE))
    _load(path, objective, {name.removeprefix(_OBJECTIVE): tensors[name] for name in names})


def _of_model(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if not name.startswith(_OBJECTIVE)}


def _load(path: Path, module: nn.Module, tensors: dict[str, Tensor], assign: bool = False) -> None:
    try:
        module.load_state_dict(tensors, assign=assign)
    except RuntimeError as error:
        raise TrainingError(f"{path}: these parameters belong to another model: {error}") from None
