"""Folders of rows from which a file is missing."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from turret.training.distributed.processes import Processes
from turret.training.distributed.shards import Rows, load_rows, load_whole
from turret.training.errors import TrainingError

TABLE = torch.arange(24.0).view(8, 3)
FIRSTS = (0, 3, 6)
COUNTS = {"table": len(TABLE)}


def written(folder: Path, tensor: Tensor) -> list[Path]:
    """The files of three processes, as torch.distributed.checkpoint writes them."""
    folder.mkdir()
    files = []
    for rank, (first, last) in enumerate(zip(FIRSTS, (*FIRSTS[1:], len(tensor)), strict=True), start=1):
        offsets = json.dumps({"table": {"saved_offsets": [first, 0]}})
        files.append(folder / f"shard-{rank:05}-model-00001-of-00001.safetensors")
        save_file({"table": tensor[first:last].contiguous()}, files[-1], {"DCP_SHARDING_INFO": offsets})
    return files


def test_the_rows_of_all_files_are_read(lone: Processes, tmp_path: Path) -> None:
    written(tmp_path / "rows", TABLE)
    assert torch.equal(load_whole(tmp_path / "rows", COUNTS)["table"], TABLE)
    parts = load_rows(tmp_path / "rows", COUNTS, {"table": Rows(0, 8, 8)}, lone)
    assert torch.equal(parts["table"], TABLE)


@pytest.mark.parametrize("missing", [[0], [1], [2], [0, 1, 2]])
def test_a_missing_file_is_named_by_its_folder(missing: list[int], lone: Processes, tmp_path: Path) -> None:
    """Its rows would be those of uninitialised memory."""
    folder = tmp_path / "rows"
    files = written(folder, TABLE)
    for number in missing:
        files[number].unlink()
    first = FIRSTS[missing[0]]
    sentence = f"{folder}: rows of 'table' are missing from row {first} of 8 on"
    with pytest.raises(TrainingError, match=sentence):
        load_whole(folder, COUNTS)
    with pytest.raises(TrainingError, match=sentence):
        load_rows(folder, COUNTS, {"table": Rows(0, 8, 8)}, lone)


def test_a_missing_or_damaged_folder_is_named(lone: Processes, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    with pytest.raises(TrainingError, match=f"{folder}: the rows of the checkpoint can't be read"):
        load_whole(folder, COUNTS)
    files = written(folder, TABLE)
    files[1].write_bytes(files[1].read_bytes()[:-5])
    with pytest.raises(TrainingError, match=f"{folder}: the rows of the checkpoint can't be read"):
        load_rows(folder, COUNTS, {"table": Rows(0, 8, 8)}, lone)
