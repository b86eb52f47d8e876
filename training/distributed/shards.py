"""Tensors whose rows several processes hold, in folders of torch.distributed.checkpoint.

The folders hold safetensors files alone: the format whose metadata is pickled is not used.
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from turret.training.distributed.processes import Processes
from turret.training.distributed.tensor_files import content, layout
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


def save_whole(path: Path, tensors: Mapping[str, Tensor], rows: Mapping[str, Rows], world: Processes) -> None:
    """Write whole tensors into one safetensors file: each process its rows, process 0 the others.

    torch.distributed.checkpoint writes such a file too, with up to four copies of a process's rows in memory.
    """
    header, places = layout(tensors, {name: part.total for name, part in rows.items()})
    try:
        if world.leads:
            with path.open("wb") as file:
                file.write(header)
        world.wait()
        with path.open("r+b") as file:
            for name, tensor in tensors.items():
                part = rows.get(name)
                if part is not None or world.leads:
                    row = 0 if part is None else part.first * tensor[:1].nbytes
                    file.seek(len(header) + places[name] + row)
                    file.write(content(tensor))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise TrainingError(
            f"{path}: the model can't be written ({error.strerror}); make room on the disk."
        ) from None
    world.wait()


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
        raise TrainingError(
            f"{writer.path}: the checkpoint can't be written ({_causes(error)}); make room on the disk, or "
            "give each process more memory, or start more processes."
        ) from None


def load_rows(
    folder: Path, counts: Mapping[str, int], rows: Mapping[str, Rows], world: Processes
) -> dict[str, Tensor]:
    """This process's `rows` of the tensors in a folder that any number of processes has written.

    `counts` has the number of rows of each tensor. Raises TrainingError for a folder that lacks rows.
    """
    reader = HuggingFaceStorageReader(str(folder))
    parts = {
        name: torch.empty(rows[name].last - rows[name].first, *one.size[1:], dtype=one.properties.dtype)
        for name, one in _stored(folder, counts, reader).items()
    }
    state = {name: _distributed(tensor, rows[name], world) for name, tensor in parts.items()}
    with _naming_damage(folder):
        load(state, storage_reader=reader, process_group=world.group)
    return parts


def load_whole(folder: Path, counts: Mapping[str, int]) -> dict[str, Tensor]:
    """The whole tensors of such a folder, for one process alone; arguments and errors as `load_rows`."""
    reader = HuggingFaceStorageReader(str(folder))
    stored = _stored(folder, counts, reader)
    tensors = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in stored.items()}
    with warnings.catch_warnings(), _naming_damage(folder):
        # It warns that there is one process alone, even if told so.
        warnings.simplefilter("ignore", UserWarning)
        load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def _stored(
    folder: Path, counts: Mapping[str, int], reader: HuggingFaceStorageReader
) -> dict[str, TensorStorageMetadata]:
    """The tensors of a folder, all of whose rows are there: torch does not read those of a missing file."""
    with _naming_damage(folder):
        metadata = reader.read_metadata().state_dict_metadata
    stored = {name: one for name, one in metadata.items() if isinstance(one, TensorStorageMetadata)}
    for name in sorted({*counts, *stored}):
        found = _leading_rows(stored[name]) if name in stored else 0
        # Checkpoints of earlier versions have no counts; the greatest row that is there stands for them.
        expected = counts[name] if name in counts else stored[name].size[0]
        if found != expected:
            raise TrainingError(
                f"{folder}: rows of {name!r} are missing from row {found:,} of {expected:,} on; restore the "
                "files of this folder, or train again with --overwrite."
            )
    return stored


def _leading_rows(stored: TensorStorageMetadata) -> int:
    """How many rows the chunks of a tensor have from the first one on, without a gap."""
    end = 0
    for first, count in sorted((chunk.offsets[0], chunk.sizes[0]) for chunk in stored.chunks):
        if first > end:
            break
        end = max(end, first + count)
    return end


@contextmanager
def _naming_damage(folder: Path) -> Iterator[None]:
    """Turn the errors of a missing or damaged file into a TrainingError."""
    try:
        yield
    except (OSError, SafetensorError, CheckpointException) as error:
        cause = _causes(error) if isinstance(error, CheckpointException) else error
        raise TrainingError(
            f"{folder}: the rows of the checkpoint can't be read ({cause}); restore the files of this "
            "folder, or train again with --overwrite."
        ) from None


def _causes(error: CheckpointException) -> dict[int, BaseException]:
    """The errors by rank, without their tracebacks."""
    return {rank: cause for rank, (cause, _) in error.failures.items()}


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
