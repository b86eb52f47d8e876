"""AdamW over layers, and by the row over large tables."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from turret.data.prepared import PreparedData
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.optimiser import Optimiser, RowAdam
from turret.training.run import Run
from turret.training.trainer import Trainer


def table() -> torch.nn.Embedding:
    torch.manual_seed(0)
    return torch.nn.Embedding(30, 7, sparse=True)


@pytest.mark.parametrize("draws", [[[3, 9], [9, 29], [0, 3]], [[5, 5, 1], [1, 5, 1], [2, 2, 2]]])
def test_rows_move_as_by_sparse_adam(draws: list[list[int]]) -> None:
    """Step after step, also where a row comes several times; without the bias correction it would not."""
    mine, other = table(), table()
    optimisers = (
        RowAdam(mine.parameters(), lr=0.1),
        torch.optim.SparseAdam(list(other.parameters()), lr=0.1),
    )
    for rows in draws:
        for embedding, optimiser in zip((mine, other), optimisers, strict=True):
            optimiser.zero_grad()
            embedding(torch.tensor(rows)).pow(2).sum().backward()
            optimiser.step()
    torch.testing.assert_close(mine.weight, other.weight)
    assert not torch.allclose(mine.weight, table().weight)


ROWS = torch.tensor([3, 7, 3])


class TableAndLayer(nn.Module):
    """A table whose rows pass a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(12, 4)
        self.layer = nn.Linear(4, 2)

    def loss(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.layer(self.table(rows))
        return (scores - 3.0).square().sum()


def made_optimiser(by_row: bool) -> tuple[TableAndLayer, Optimiser]:
    model = TableAndLayer()
    return model, Optimiser([model], [model.table] if by_row else [], 0.01, 0.0)


@pytest.mark.parametrize("by_row", [False, True])
def test_a_clipped_gradient_is_as_long_as_asked_for(by_row: bool) -> None:
    """A short one stays as it is. A row that came twice counts with its sum."""
    model, optimiser = made_optimiser(by_row)
    torch.autograd.backward(model.loss(ROWS))
    plain = TableAndLayer()
    torch.autograd.backward(plain.loss(ROWS))
    wanted = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])  # type: ignore[union-attr]
    for longest in (1e6, 0.5):
        optimiser.clip(longest)
        grads = [parameter.grad for parameter in model.parameters()]
        found = torch.cat([grad.to_dense().flatten() for grad in grads if grad is not None])
        torch.testing.assert_close(found, wanted * min(1.0, longest / float(wanted.norm())))


def by_row(trainer: Trainer) -> bool:
    return any(isinstance(one, RowAdam) for one in trainer.optimiser.optimisers.values())


def run_of(folder: Path, shop: PreparedData, **training: object) -> Run:
    settings = {"epochs": 2, "batch_size": 512, "device": "cpu", **training}
    return Run(folder, ExperimentConfig.model_validate({"training": settings}), shop.folder, shop.fingerprint)


@pytest.mark.parametrize(
    ("training", "loss", "line"),
    [
        ({}, "sampled_softmax", r"lazy Adam, only rows of the batch"),
        ({"tables": "dense"}, "sampled_softmax", r"AdamW, .*: training\.tables = 'dense'"),
        ({"weight_decay": 0.1}, "sampled_softmax", r"AdamW, .*: training\.weight_decay = 0\.1 changes"),
        ({}, "full_softmax", r"AdamW, .*: the loss is not sampled"),
    ],
)
def test_a_run_says_how_its_large_tables_are_updated(
    training: dict[str, Any],
    loss: str,
    line: str,
    shop: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = {"kind": "uniform", "negatives": 8} if loss == "sampled_softmax" else None
    objective = {"loss": loss, "sampler": sampler}
    settings = {"objective": objective, "training": {"device": "cpu", **training}}
    run = Run(tmp_path, ExperimentConfig.model_validate(settings), shop.folder, shop.fingerprint)
    lines: list[str] = []
    assert not by_row(Trainer(run, shop, lines.append))
    assert lines == []
    monkeypatch.setattr("turret.training.optimiser.LARGE", len(shop.item_ids))
    is_lazy = by_row(Trainer(run, shop, lines.append))
    assert is_lazy == ("lazy" in line)
    assert len(lines) == 1
    assert re.search(f"^The table of {len(shop.item_ids)} rows is updated by {line}", lines[0])


def test_lazy_tables_are_refused_where_all_rows_change(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.training.optimiser.LARGE", len(shop.item_ids))
    with pytest.raises(
        TrainingError, match=r"training\.tables = 'lazy': training\.weight_decay = 0\.1 .* 'dense'"
    ):
        Trainer(run_of(tmp_path, shop, weight_decay=0.1, tables="lazy"), shop)
    assert by_row(Trainer(run_of(tmp_path, shop, tables="lazy"), shop))
