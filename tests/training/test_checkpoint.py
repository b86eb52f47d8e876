"""Files of models and checkpoints, random streams, and the memory of a training process."""

from pathlib import Path

import pytest
import torch

from tests.support.limits import small_files
from turret.training.checkpoint import (
    Progress,
    all_parameters,
    load_checkpoint,
    load_parameters,
    save_checkpoint,
    save_tensors,
)
from turret.training.errors import TrainingError
from turret.training.optimiser import Optimiser


def stepped() -> tuple[torch.nn.Linear, Optimiser]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimiser = Optimiser([model], [], learning_rate=1e-3, weight_decay=0.0)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimiser.step()
    return model, optimiser


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    model, optimiser = stepped()
    progress = Progress(epoch=2, step=9, best=0.1 + 0.2, loss_sum=1e-300)
    saved = {
        "model": model.state_dict(),
        "optimiser": optimiser.tensors(),
        "sampler": {"now": torch.tensor(5)},
    }
    save_checkpoint(tmp_path / "c.safetensors", progress, **saved)
    loaded, groups = load_checkpoint(tmp_path / "c.safetensors")
    assert loaded == progress
    for group, ours in saved.items():
        assert groups[group].keys() == ours.keys()
        assert all(torch.equal(groups[group][name], ours[name]) for name in ours)


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_tensors(path, {"weight": torch.ones(2, 3), "bias": torch.ones(2)})
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.safetensors"]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TrainingError, match="can't be read"):
        load_parameters(path, torch.nn.Linear(3, 2))


def test_a_model_and_its_objective_share_a_file(tmp_path: Path) -> None:
    model, objective, path = torch.nn.Linear(3, 2), torch.nn.Linear(4, 5), tmp_path / "m.safetensors"
    save_tensors(path, all_parameters(model, objective))
    other, another = torch.nn.Linear(3, 2), torch.nn.Linear(4, 5)
    load_parameters(path, other)
    load_parameters(path, another, is_objective=True)
    assert torch.equal(other.weight, model.weight)
    assert torch.equal(another.weight, objective.weight)
    save_tensors(path, model.state_dict())
    with pytest.raises(TrainingError, match="another model"):
        load_parameters(path, another, is_objective=True)


def test_a_full_disk_is_a_sentence_and_keeps_the_file_that_is_there(tmp_path: Path) -> None:
    """safetensors has an error of its own for it."""
    path, model = tmp_path / "m.safetensors", torch.nn.Linear(3, 2)
    save_tensors(path, model.state_dict())
    before = path.read_bytes()
    with small_files(4000), pytest.raises(TrainingError, match=rf"^{path}: it can't be written .*make room"):
        save_tensors(path, {"weight": torch.ones(1000, 3)})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.safetensors"]
