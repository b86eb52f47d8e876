"""Refusals of split tables."""

import pytest
import torch

from tests.training.distributed.scenarios import POOLED, experiment
from turret.data.prepared import PreparedData
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed.processes import Processes
from turret.training.errors import TrainingError
from turret.training.parallel import tables


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_split_tables_are_refused_on_gpus(
    device: str, shop: PreparedData, lone: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = experiment(POOLED, "full_softmax", training={"device": device})
    chosen = ExperimentConfig.model_validate(settings)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    whole = tables.build_split_model(lone, chosen, shop)
    assert not whole.is_split
    monkeypatch.setattr(tables, "SPLIT_FROM", 3)
    with pytest.raises(TrainingError, match=f"^training.device = '{device}': the tables .* on CPUs alone"):
        tables.build_split_model(lone, chosen, shop)
