"""The layout of safetensors files, for those that are written in parts or mapped."""

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from turret.training.errors import TrainingError

# As safetensors calls them.
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}


def layout(tensors: Mapping[str, Tensor], rows: Mapping[str, int]) -> tuple[bytes, dict[str, int]]:
    """The header of a file with whole tensors, and where each begins after it.

    `rows` has the numbers of rows of those that `tensors` has parts of.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    places, end = {}, 0
    for name, tensor in tensors.items():
        shape = [rows.get(name, *tensor.shape[:1]), *tensor.shape[1:]] if tensor.dim() else []
        places[name] = end
        end += math.prod(shape) * tensor.element_size()
        entries[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": [places[name], end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, places


def content(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, of one on the CPU without a copy."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def mapped_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, mapped for reading alone: they take no memory of the process.

    A tensor that is written to ends the process. safetensors maps a file for writing, which counts as memory.
    Raises TrainingError for any other file.
    """
    try:
        with safe_open(path, framework="numpy") as checked:
            names = list(checked.keys())
        file = np.memmap(path, np.uint8, "r")
        start = 8 + int.from_bytes(file[:8].tobytes(), "little")
        header = json.loads(file[8:start].tobytes())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            data = torch.from_numpy(file[start:])
        return {name: _tensor(data, header[name]) for name in names}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise TrainingError(f"{path}: it can't be read ({error}); train again with --overwrite.") from None


def _tensor(data: Tensor, entry: dict[str, Any]) -> Tensor:
    first, end = entry["data_offsets"]
    return data[first:end].view(_TORCH_DTYPES[entry["dtype"]]).view(entry["shape"])
