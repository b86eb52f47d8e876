"""safetensors files that are written in parts, and mapped."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from turret.training.distributed.tensor_files import content, layout, mapped_tensors
from turret.training.errors import TrainingError

TENSORS = {
    "table": torch.arange(12, dtype=torch.float32).view(4, 3),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "one": torch.tensor(2.5),
    "none": torch.zeros(0, 3),
    "double": torch.tensor([0.1], dtype=torch.float64),
}


def are_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]) for name in theirs
    )


def test_safetensors_reads_a_file_that_was_written_in_parts(tmp_path: Path) -> None:
    parts = TENSORS | {"table": TENSORS["table"][2:]}
    header, places = layout(parts, {"table": 4})
    path = tmp_path / "parts.safetensors"
    with path.open("wb") as file:
        file.write(header)
        for name, tensor in TENSORS.items():
            file.seek(len(header) + places[name])
            file.write(content(tensor))
    assert are_equal(load_file(path), TENSORS)


def test_mapped_tensors_are_those_that_safetensors_wrote(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors", {"progress": "{}"})
    assert are_equal(mapped_tensors(tmp_path / "model.safetensors"), TENSORS)


def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for wrong in (b"", b"\xff" * 100):
        path.write_bytes(wrong)
        with pytest.raises(TrainingError, match=r"model\.safetensors: it can't be read"):
            mapped_tensors(path)
    with pytest.raises(TrainingError, match=r"other\.safetensors: it can't be read"):
        mapped_tensors(tmp_path / "other.safetensors")
