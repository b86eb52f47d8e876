"""Tensors whose rows several processes hold, in folders of torch.distributed.checkpoint.

The folders hold safetensors files alone: the format whose metadata is pickled is not used.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from turret.training.distributed.processes import Processes
from turret.training.errors import TrainingError


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor that this process holds: those from `first` to `last` of `total`."""

    first: int
    last: int
    total: int


def save_rows(
    folder: Path, tensors: Mapping[str, Tensor], rows: Mapping[str, Rows], world: Processes
) -> None:
    """Write this process's part of tensors; those without `rows` are the same in all and written once.

    Each tensor is a file of its own, as a file is held in memory until it is written.
    """
    files = {name: number for number, name in enumerate(tensors, start=1)}
    _save(HuggingFaceStorageWriter(str(folder), files, save_distributed=True), tensors, rows, world)


def save_whole(
    folder: Path, tensors: Mapping[str, Tensor], rows: Mapping[str, Rows], world: Processes
) -> Path:
    """As `save_rows`, then put together by process 0: the path of the one file with the whole tensors."""
    files = dict.fromkeys(tensors, 1)
    writer = HuggingFaceStorageWriter(str(folder), files, save_distributed=True, enable_consolidation=True)
    _save(writer, tensors, rows, world)
    return folder / "model-00001-of-00001.safetensors"


def _save(
    writer: HuggingFaceStorageWriter,
    tensors: Mapping[str, Tensor],
    rows: Mapping[str, Rows],
    world: Processes,
) -> None:
    state = {name: _distributed(tensor, rows.get(name), world) for name, tensor in tensors.items()}
    try:
        save(state, storage_writer=writer, process_group=world.group)
    except CheckpointException as error:
        causes = {rank: cause for rank, (cause, _) in error.failures.items()}
        raise TrainingError(
            f"{writer.path}: the checkpoint can't be written ({causes!r}); make room on the disk, or "
            "give each process more memory, or start more processes."
        ) from None


def load_rows(folder: Path, rows: Mapping[str, Rows], world: Processes) -> dict[str, Tensor]:
    """This process's `rows` of the tensors in a folder that any number of processes has written."""
    reader = HuggingFaceStorageReader(str(folder))
    parts = {
        name: torch.empty(rows[name].last - rows[name].first, *one.size[1:], dtype=one.properties.dtype)
        for name, one in _stored(reader).items()
    }
    state = {name: _distributed(tensor, rows[name], world) for name, tensor in parts.items()}
    load(state, storage_reader=reader, process_group=world.group)
    return parts


def load_whole(folder: Path) -> dict[str, Tensor]:
    """The whole tensors of such a folder, for one process alone."""
    reader = HuggingFaceStorageReader(str(folder))
    stored = _stored(reader)
    tensors = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in stored.items()}
    with warnings.catch_warnings():
        # It warns that there is one process alone, even if told so.
        warnings.simplefilter("ignore", UserWarning)
        load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def _stored(reader: HuggingFaceStorageReader) -> dict[str, TensorStorageMetadata]:
    stored = reader.read_metadata().state_dict_metadata
    return {name: one for name, one in stored.items() if isinstance(one, TensorStorageMetadata)}


def slice_of(path: Path, name: str, rows: Rows) -> Tensor:
    """Rows of a tensor that a file holds whole."""
    with safe_open(path, framework="pt") as stored:
        tensor: Tensor = stored.get_slice(name)[rows.first : rows.last]
        return tensor


def _distributed(tensor: Tensor, rows: Rows | None, world: Processes) -> Tensor:
    if rows is None:
        return tensor.detach()
    shape = torch.Size((rows.total, *tensor.shape[1:]))
    mesh = DeviceMesh.from_group(world.group, "cpu")
    stride = torch.empty(shape, device="meta").stride()
    part: Tensor = DTensor.from_local(
        tensor.detach(), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride
    )
    return part
