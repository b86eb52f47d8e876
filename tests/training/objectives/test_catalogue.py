import pytest
import torch
from torch import Tensor

from data.sequences import PreparedData
from tower.config import ScoringConfig
from training.batches import Batch, TrainingBatches
from training.config import ExperimentConfig
from training.losses.blocked_softmax import blocked_softmax
from training.objectives.build import build_objective
from training.randomness import stream
from training.run import build_model

CPU = torch.device("cpu")


def loss_and_gradients(shop: PreparedData, batch: Batch, absolute: bool) -> list[Tensor]:
    tower = {"dimension": 8, "scoring": {"absolute": absolute}, "user": {"dropout": 0.0}}
    settings = {"tower": tower, "objective": {"loss": "full_softmax"}}
    experiment = ExperimentConfig.model_validate(settings)
    model = build_model(experiment, shop)
    objective = build_objective(experiment.objective, experiment.tower, shop, 0, CPU)
    out = objective(model, batch, stream(0, "draw", 0))
    return [out.loss.detach(), *torch.autograd.grad(out.loss, list(model.parameters()))]


@pytest.mark.parametrize("absolute", [False, True])
def test_a_catalogue_too_large_to_be_scored_at_once_trains_alike(
    shop: PreparedData, monkeypatch: pytest.MonkeyPatch, absolute: bool
) -> None:
    """A block of items at a time, with the same loss and the same gradient of every parameter."""
    batch = next(TrainingBatches(shop, 64, 50, 64).epoch(stream(0, "order", 0)))
    whole = loss_and_gradients(shop, batch, absolute)
    monkeypatch.setattr("training.objectives.catalogue.HELD", 1000)
    calls: list[int] = []

    def counted(users: Tensor, items: Tensor, positives: Tensor, scoring: ScoringConfig) -> Tensor:
        calls.append(1)
        return blocked_softmax(users, items, positives, scoring, held=1000)

    monkeypatch.setattr("training.objectives.catalogue.blocked_softmax", counted)
    for ours, plain in zip(loss_and_gradients(shop, batch, absolute), whole, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-6)
    assert calls == [1]
