"""The catalog's vectors and the model as mapped files: a table of items is in memory once at most."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from turret.tower.towers.model import TwoTowers
from turret.training.checkpoint import save_tensors

# Items that pass the tower at once.
_BLOCK = 65_536


@torch.no_grad()
def mapped_vectors(
    model: TwoTowers, path: Path, cold: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Write the scored vectors of the catalog, and behind them `cold` [C, D], to the `.npy` file `path`.

    Returns them [N + C, D] mapped.
    """
    count = model.item.item_count
    first = model.item_vectors(torch.arange(min(count, _BLOCK))).numpy()
    form = {
        "descr": np.lib.format.dtype_to_descr(first.dtype),
        "fortran_order": False,
        "shape": (count + (0 if cold is None else len(cold)), first.shape[1]),
    }
    # By `write`, which raises OSError on a full disk; a write to mapped memory ends the process by SIGBUS.
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, form)
        file.write(np.ascontiguousarray(first).data)
        for start in range(_BLOCK, count, _BLOCK):
            rows = torch.arange(start, min(count, start + _BLOCK))
            file.write(np.ascontiguousarray(model.item_vectors(rows).numpy()).data)
        if cold is not None:
            file.write(np.ascontiguousarray(cold).data)
    # Writable, as torch warns of tensors that are not; nothing writes to it.
    vectors: NDArray[np.float32] = np.load(path, mmap_mode="r+")
    return vectors


def mapped_model(model: TwoTowers, path: Path) -> memoryview:
    """Write the parameters to the safetensors file `path`, and return its bytes mapped.

    Raises as `save_tensors` does.
    """
    save_tensors(path, model.state_dict())
    return np.memmap(path, np.uint8, "r").data
